"""Settings of the render service."""

from __future__ import annotations

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from rendergen.service.settings import PodUrl, ServiceSettings


class RenderServiceSettings(ServiceSettings):
    """Flags, environment (``RENDERGEN_RENDER_SERVICE__…``) and defaults of ``python -m render_service``."""

    model_config = SettingsConfigDict(env_prefix="RENDERGEN_RENDER_SERVICE__", cli_prog_name="render_service")

    vllm_url: PodUrl = Field(description="Base address of the vLLM render server (`vllm launch render`).")
    render_timeout_s: float = Field(120.0, gt=0, description="Budget of one render, its answer's transfer included.")
    derender_timeout_s: float = Field(60.0, gt=0, description="Budget of one derender.")
    derender_stream_timeout_s: float = Field(
        600.0,
        gt=0,
        description="Budget of one derender in a stream, which lasts as long as the generation that it answers. "
        "It is also the longest pause within such a request's body, in the place of `idle_timeout_s`.",
    )
