"""The router's routes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from aiohttp import web

from rendergen.payload.frames import (
    MEDIA_TYPE as FRAMES_MEDIA_TYPE,
)
from rendergen.service.app import Handler, make_app
from rendergen.service.bodies import RequestBody
from rendergen.service.errors import Unavailable
from rendergen.service.forward import forward, passed_on
from rendergen.service.health import PodWatch
from rendergen.service.pods import Pod, PodClient, open_session
from router.chat_request import read_chat_request
from router.choice import InTurn
from router.metrics import RouterMetrics
from router.pipeline import ChatPipeline
from router.pool import Pool
from router.settings import RouterSettings

SHORT_TIMEOUT_S = 10.0
MAX_ABORT_BYTES = 1024 * 1024


async def make_router(settings: RouterSettings) -> web.Application:
    """An application that serves the raw paths and chat completions by the pods of ``settings``."""
    session = open_session(settings)
    metrics = RouterMetrics()
    render_pods = [PodClient(session, Pod("render pod", url)) for url in settings.render_pods]
    generate_pods = [PodClient(session, Pod("generate pod", url)) for url in settings.generate_pods]
    watch = PodWatch([*render_pods, *generate_pods], settings, metrics, asks_capabilities=True)
    render = Pool("render pod", render_pods, watch, InTurn())
    # The same pods, in a turn of their own: with one turn for both steps, one pod of two would do all of the rendering.
    derender = Pool("render pod", render_pods, watch, InTurn())
    generate = Pool("generate pod", generate_pods, watch, InTurn())
    app = make_app(metrics, lambda: render.any_ready() and generate.any_ready())

    async def background(_: web.Application) -> AsyncIterator[None]:
        async with session, watch.running():
            yield

    app.cleanup_ctx.append(background)
    raw = (
        ("POST", "/v1/chat/completions/render", render, settings.render_timeout_s),
        ("POST", "/v1/completions/render", render, settings.render_timeout_s),
        ("POST", "/v1/chat/completions/derender", derender, settings.derender_timeout_s),
        ("POST", "/v1/completions/derender", derender, settings.derender_timeout_s),
        ("POST", "/inference/v1/generate", generate, settings.generate_timeout_s),
        ("GET", "/v1/models", generate, SHORT_TIMEOUT_S),
    )
    for method, path, pool, timeout_s in raw:
        app.router.add_route(method, path, _raw(path, pool, settings, timeout_s))
    app.router.add_post("/inference/v1/abort_requests", _abort(generate, settings))
    pipeline = ChatPipeline(render, generate, derender, settings, metrics)
    app.router.add_post("/v1/chat/completions", _chat(pipeline, settings))
    return app


def _raw(path: str, pool: Pool, settings: RouterSettings, timeout_s: float) -> Handler:
    """Carries a request to one pod as it is, for callers that do the two steps themselves."""

    async def carry(request: web.Request) -> web.StreamResponse:
        pod = pool.choose(frames=request.content_type == FRAMES_MEDIA_TYPE)
        return await forward(request, pod, path, settings, timeout_s)

    return carry


def _abort(pool: Pool, settings: RouterSettings) -> Handler:
    """Tells every generate pod, ready or not: which of them serves an id is not known, and the others ignore it."""

    async def abort(request: web.Request) -> web.StreamResponse:
        body = b"".join([chunk async for chunk in RequestBody(request, settings, limit=MAX_ABORT_BYTES).chunks()])
        headers = passed_on(request)

        async def tell(pod: PodClient) -> None:
            async with pod.request(
                "POST", "/inference/v1/abort_requests", headers=headers, body=body, timeout_s=SHORT_TIMEOUT_S
            ) as answer:
                await answer.read(MAX_ABORT_BYTES)

        results = await asyncio.gather(*(tell(pod) for pod in pool.pods), return_exceptions=True)
        told = [result for result in results if not isinstance(result, Unavailable)]
        # A pod that cannot be reached serves nobody; the others must have taken it.
        for failure in told or results:
            if failure is not None:
                raise failure
        return web.Response()

    return abort


def _chat(pipeline: ChatPipeline, settings: RouterSettings) -> Handler:
    async def chat(request: web.Request) -> web.StreamResponse:
        body = RequestBody(request, settings)
        pieces = await pipeline.answer(await read_chat_request(body, passed_on(request)))
        return web.Response(body=b"".join(pieces), content_type="application/json")

    return chat
