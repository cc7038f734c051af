"""The render service's routes."""

from __future__ import annotations

from aiohttp import web

from render_service.settings import RenderServiceSettings
from rendergen.service.door import Route, make_door
from rendergen.service.pods import CAPABILITIES

SHORT_TIMEOUT_S = 10.0

# What vLLM renders. Derendering each of them in a stream takes the plugin: a bare vLLM answers with its own 404.
APIS = ("/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses")


async def make_app(settings: RenderServiceSettings) -> web.Application:
    """An application that serves render and derender by calling the vLLM render server of ``settings``."""
    stream_s = settings.derender_stream_timeout_s
    routes = (
        *(Route("POST", f"{api}/render", settings.render_timeout_s) for api in APIS),
        Route("POST", "/v1/chat/completions/derender", settings.derender_timeout_s),
        Route("POST", "/v1/completions/derender", settings.derender_timeout_s),
        # The engine may think for as long as the whole lasts before the next bytes of the body come.
        *(Route("POST", f"{api}/derender/stream", stream_s, body_pause_s=stream_s) for api in APIS),
        Route("GET", "/v1/models", SHORT_TIMEOUT_S),
        Route("GET", CAPABILITIES, SHORT_TIMEOUT_S),
    )
    return await make_door("render server", settings.vllm_url, routes, settings)
