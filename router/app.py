"""The router's routes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial

from aiohttp import web

from rendergen.payload.frames import (
    MEDIA_TYPE as FRAMES_MEDIA_TYPE,
)
from rendergen.service import request_id
from rendergen.service.app import Handler, make_app
from rendergen.service.bodies import RequestBody
from rendergen.service.deadline import HEADER as DEADLINE
from rendergen.service.deadline import Deadline
from rendergen.service.errors import Unavailable
from rendergen.service.forward import forward, passed_on
from rendergen.service.pods import PodClient, open_session
from router.api_request import read_api_request, without_remote_media
from router.apis import APIS, Api, error_body, is_messages
from router.auth import Gate
from router.fleet import Fleet
from router.metrics import RouterMetrics
from router.models import models_handler
from router.openapi import add_openapi
from router.pipeline import GENERATE, Pipeline
from router.pool import Pool, Wanted
from router.prompts import answer_all, requests_of
from router.retry import Retry
from router.sending import send
from router.settings import RouterSettings

ABORT = "/inference/v1/abort_requests"
# By this header a caller of a raw path names the model, where pods of several are behind the router: its body, which
# may be megabytes, is carried and not looked at.
MODEL = "X-Rendergen-Model"
SHORT_TIMEOUT_S = 10.0
MAX_ABORT_BYTES = 1024 * 1024


async def make_router(settings: RouterSettings) -> web.Application:
    """An application that serves the APIs, and the raw paths, by the pods of ``settings``."""
    gate = Gate.open(settings)
    session = open_session(settings, (gate.to_pods,))
    metrics = RouterMetrics()
    fleet = Fleet(session, settings, metrics)
    app = make_app(metrics, fleet.any_ready, error_body)
    app.middlewares.append(gate.admit)

    async def background(_: web.Application) -> AsyncIterator[None]:
        async with session, fleet.running(), gate.running():
            yield

    app.cleanup_ctx.append(background)
    app.on_response_prepare.append(_set_anthropic_id)
    pipeline = Pipeline(fleet, settings, metrics, Retry())
    for api in APIS:
        app.router.add_post(api.path, _api(api, pipeline, settings))
    app.router.add_get("/v1/models", models_handler((fleet.generate, fleet.render)))
    if settings.raw_render:
        _add_raw_render(app, fleet, settings)
    if settings.raw_generate:
        app.router.add_post(GENERATE, _raw(GENERATE, fleet.generate, settings, settings.generate_timeout_s))
        app.router.add_post(ABORT, _abort(fleet.generate, settings))
    add_openapi(app)
    return app


def _add_raw_render(app: web.Application, fleet: Fleet, settings: RouterSettings) -> None:
    """What callers need of render pods that do the steps themselves."""
    stream_s = settings.generate_timeout_s  # derender in a stream lasts as long as what it derenders
    for api in APIS:
        look = partial(without_remote_media, api=api, allowed_media_domains=settings.allowed_media_domains)
        looked_at = look if api.conversation else None
        render = _raw(api.render, fleet.render, settings, settings.render_timeout_s, looked_at=looked_at)
        app.router.add_post(api.render, render)
        if api.upstream_derenders:
            app.router.add_post(api.derender, _raw(api.derender, fleet.derender, settings, settings.derender_timeout_s))
        path = api.derender_stream
        app.router.add_post(path, _raw(path, fleet.derender, settings, stream_s, body_pause_s=stream_s))


def _api(api: Api, pipeline: Pipeline, settings: RouterSettings) -> Handler:
    """Answers requests of one API by the pipeline."""

    async def answer(request: web.Request) -> web.StreamResponse:
        deadline = Deadline.given(request.headers.get(DEADLINE))
        body = RequestBody(request, settings)
        read = await read_api_request(body, passed_on(request), api, settings.allowed_media_domains)
        requests = await requests_of(read, settings.max_prompts)
        async with answer_all(pipeline, requests, deadline) as made:
            return await send(request, api, made, settings)

    return answer


def _raw(
    path: str,
    pool: Pool,
    settings: RouterSettings,
    timeout_s: float,
    body_pause_s: float | None = None,
    looked_at: Callable[[AsyncIterator[bytes]], AsyncIterator[bytes]] | None = None,
) -> Handler:
    """Carries a request to one pod as it is, for callers that do the steps themselves."""

    async def carry(request: web.Request) -> web.StreamResponse:
        wanted = Wanted(request.headers.get(MODEL), frames=request.content_type == FRAMES_MEDIA_TYPE)
        with pool.take(wanted) as taken:
            taken.carry(request.content_length or 0)
            try:
                return await forward(
                    request, taken.pod, path, settings, timeout_s, body_pause_s=body_pause_s, looked_at=looked_at
                )
            except Unavailable:  # it refuses connections: others need not find that out
                pool.failed(taken.pod)
                raise

    return carry


def _abort(pool: Pool, settings: RouterSettings) -> Handler:
    """Tells every generate pod, ready or not: which of them serves an id is not known, and the others ignore it."""

    async def abort(request: web.Request) -> web.StreamResponse:
        body = b"".join([chunk async for chunk in RequestBody(request, settings, limit=MAX_ABORT_BYTES).chunks()])
        headers = passed_on(request)

        async def tell(pod: PodClient) -> None:
            async with pod.request("POST", ABORT, headers=headers, body=body, timeout_s=SHORT_TIMEOUT_S) as answer:
                await answer.read(MAX_ABORT_BYTES)

        results = await asyncio.gather(*(tell(pod) for pod in pool.pods), return_exceptions=True)
        told = [result for result in results if not isinstance(result, Unavailable)]
        # A pod that cannot be reached serves nobody; the others must have taken it.
        for failure in told or results:
            if failure is not None:
                raise failure
        return web.Response()

    return abort


async def _set_anthropic_id(request: web.Request, response: web.StreamResponse) -> None:
    """Anthropic's clients show this header with an error."""
    if is_messages(request.path):
        response.headers["request-id"] = request_id.current.get()
