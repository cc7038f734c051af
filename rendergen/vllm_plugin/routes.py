"""The plugin's routes, and the state behind them."""

from __future__ import annotations

import secrets
from argparse import Namespace
from collections.abc import Awaitable, Callable
from typing import Any

import vllm
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute

import rendergen
from rendergen.payload.frames import (
    MEDIA_TYPE,
    VERSION,
)
from rendergen.vllm_plugin import derender
from rendergen.vllm_plugin.attestation import Attestor
from rendergen.vllm_plugin.derender.dialects import DIALECTS
from rendergen.vllm_plugin.gate import RenderGate
from rendergen.vllm_plugin.generate import GenerateRoute, with_prepared_inputs
from rendergen.vllm_plugin.render import RecordingRender, RenderRoutes
from rendergen.vllm_plugin.settings import PluginSettings
from rendergen.vllm_plugin.trust.checks import Checks
from rendergen.vllm_plugin.trust.fingerprint import fingerprint_of
from rendergen.vllm_plugin.trust.geometry import Geometry
from rendergen.vllm_plugin.trust.keys import Keys

INFO = "/inference/v1/rendergen"
RENDERS = {
    "/v1/chat/completions/render": "chat",
    "/v1/completions/render": "completions",
    "/v1/messages/render": "messages",
    "/v1/responses/render": "responses",
}
GENERATE = "/inference/v1/generate"

# What vLLM answers in a scale-out route's place where `--enable-scale-out` was not given.
_DISABLED = "disabled_scale_out"


def attach(app: FastAPI) -> None:
    """Add all routes to vLLM's app: those that take a core route's place only where vLLM serves that one."""
    served = {
        route.path for route in app.routes if isinstance(route, APIRoute) and route.endpoint.__name__ != _DISABLED
    }
    app.add_api_route(INFO, _info, methods=["GET"])
    for path, api in RENDERS.items():
        if path in served:
            app.add_api_route(path, _render(api), methods=["POST"])
    if GENERATE in served:
        app.add_api_route(GENERATE, _generate, methods=["POST"])
    derender.attach(app)


async def init_state(engine_client: Any, state: Any, args: Namespace) -> None:
    """Make what the routes stand on, once vLLM's own state is made."""
    settings = PluginSettings.read()
    keys = Keys.of(settings)
    fingerprint = fingerprint_of(state)
    state.rendergen_info = {
        "rendergen": rendergen.__version__,
        "vllm": vllm.__version__,
        "models": [model.name for model in state.openai_serving_models.base_model_paths],
        "payload_versions": [VERSION],
        "media_types": [MEDIA_TYPE],
        "fingerprint": fingerprint,
        "signing": bool(keys),
        "role": "render" if engine_client is None else "generate",
        "supports": {"frames": True, "derender_stream": [dialect.path for dialect in DIALECTS]},
        "limits": {
            "max_body_bytes": settings.max_body_bytes,
            "max_renders": settings.max_renders,
            "max_queued_renders": settings.max_queued_renders,
        },
    }
    serving = RecordingRender(
        state.openai_serving_models,
        state.online_renderer,
        request_logger=state.serving_render.request_logger,
        tool_server=state.tool_server,
    )
    state.rendergen_render = RenderRoutes(
        serving,
        RenderGate(settings.max_renders, settings.max_queued_renders),
        Attestor(fingerprint, keys),
        settings.max_body_bytes,
    )
    derender.init_state(state, args)
    if engine_client is not None:
        checks = Checks(
            fingerprint,
            keys,
            secrets.token_bytes(32),
            Geometry.of(state.vllm_config, state.online_renderer.renderer.tokenizer),
            state.vllm_config.model_config.get_vocab_size(),
            settings.allow_content_parts,
            settings.allow_transfer_params,
        )
        state.rendergen_generate = GenerateRoute(
            with_prepared_inputs(state.serving_tokens), checks, settings.max_body_bytes
        )


async def _info(raw_request: Request) -> Response:
    """What this server speaks: asked once by those who send it payloads."""
    return JSONResponse(raw_request.app.state.rendergen_info)


def _render(api: str) -> Callable[[Request], Awaitable[Response]]:
    async def render(raw_request: Request) -> Response:
        routes: RenderRoutes = raw_request.app.state.rendergen_render
        handler: Callable[[Request], Awaitable[Response]] = getattr(routes, api)
        return await handler(raw_request)

    # FastAPI reads annotations by their names in the module, where a closure's are strings.
    render.__annotations__ = {"raw_request": Request, "return": Response}
    return render


async def _generate(raw_request: Request) -> Response:
    route: GenerateRoute = raw_request.app.state.rendergen_generate
    return await route(raw_request)
