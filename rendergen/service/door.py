"""A service that is the door of one vLLM server: a table of paths, each carried through as it is."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass

from aiohttp import web

from rendergen.service.app import Handler, make_app
from rendergen.service.forward import forward
from rendergen.service.health import PodWatch
from rendergen.service.metrics import ServiceMetrics
from rendergen.service.pods import Pod, PodClient, open_session
from rendergen.service.settings import ServiceSettings


@dataclass(frozen=True, slots=True)
class Route:
    """One path that is carried through.

    Attributes:
        method: HTTP method.
        path: here and on the pod.
        timeout_s: budget for the whole request, in seconds.
        body_pause_s: longest wait for the next bytes of the request's body, in seconds, where it is made while it is
            sent; None where a caller has it at hand, for which ``idle_timeout_s`` is enough.
    """

    method: str
    path: str
    timeout_s: float
    body_pause_s: float | None = None


async def make_door(role: str, url: str, routes: Iterable[Route], settings: ServiceSettings) -> web.Application:
    """An application that carries ``routes`` to one vLLM server.

    Args:
        role: what to call that server in messages to callers.
        url: where it is.
        routes: what is carried.
        settings: limits.
    """
    session = open_session(settings)
    metrics = ServiceMetrics()
    pod = PodClient(session, Pod(role, url))
    watch = PodWatch([pod], settings, metrics)
    app = make_app(metrics, watch.any_ready)

    async def background(_: web.Application) -> AsyncIterator[None]:
        async with session, watch.running():
            yield

    app.cleanup_ctx.append(background)
    for route in routes:
        app.router.add_route(route.method, route.path, _carrier(route, pod, settings))
    return app


def _carrier(route: Route, pod: PodClient, settings: ServiceSettings) -> Handler:
    async def carry(request: web.Request) -> web.StreamResponse:
        return await forward(request, pod, route.path, settings, route.timeout_s, body_pause_s=route.body_pause_s)

    return carry
