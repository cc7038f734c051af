"""Settings of the router."""

from __future__ import annotations

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from rendergen.service.settings import PodUrls, ServiceSettings


class RouterSettings(ServiceSettings):
    """Flags, environment (``RENDERGEN_ROUTER__…``) and defaults of ``python -m router``."""

    model_config = SettingsConfigDict(env_prefix="RENDERGEN_ROUTER__", cli_prog_name="router")

    render_pods: PodUrls = Field(
        min_length=1, description="Base addresses of the render pods, separated by commas, taken in turn."
    )
    generate_pods: PodUrls = Field(
        min_length=1, description="Base addresses of the generate pods, separated by commas, taken in turn."
    )
    render_timeout_s: float = Field(120.0, gt=0, description="Budget of one render, its payload's transfer included.")
    generate_timeout_s: float = Field(600.0, gt=0, description="Budget of one generation, streamed or not.")
    derender_timeout_s: float = Field(60.0, gt=0, description="Budget of one derender.")
