"""The render service's routes."""

from __future__ import annotations

from aiohttp import web

from render_service.settings import RenderServiceSettings
from rendergen.service.door import Route, make_door
from rendergen.service.pods import CAPABILITIES

SHORT_TIMEOUT_S = 10.0


async def make_app(settings: RenderServiceSettings) -> web.Application:
    """An application that serves render and derender by calling the vLLM render server of ``settings``."""
    routes = (
        Route("POST", "/v1/chat/completions/render", settings.render_timeout_s),
        Route("POST", "/v1/completions/render", settings.render_timeout_s),
        Route("POST", "/v1/chat/completions/derender", settings.derender_timeout_s),
        Route("POST", "/v1/completions/derender", settings.derender_timeout_s),
        Route("GET", "/v1/models", SHORT_TIMEOUT_S),
        Route("GET", CAPABILITIES, SHORT_TIMEOUT_S),
    )
    return await make_door("render server", settings.vllm_url, routes, settings)
