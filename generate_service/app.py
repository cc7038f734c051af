"""The generate service's routes."""

from __future__ import annotations

from aiohttp import web

from generate_service.settings import GenerateServiceSettings
from rendergen.service.door import Route, make_door
from rendergen.service.pods import CAPABILITIES

SHORT_TIMEOUT_S = 10.0


async def make_app(settings: GenerateServiceSettings) -> web.Application:
    """An application that serves generate and abort by calling the vLLM engine of ``settings``.

    A caller that leaves has its connection to the engine closed, which is how vLLM is told to abort.
    """
    routes = (
        Route("POST", "/inference/v1/generate", settings.generate_timeout_s),
        Route("POST", "/inference/v1/abort_requests", SHORT_TIMEOUT_S),
        Route("GET", "/v1/models", SHORT_TIMEOUT_S),
        Route("GET", CAPABILITIES, SHORT_TIMEOUT_S),
    )
    return await make_door("engine", settings.vllm_url, routes, settings)
