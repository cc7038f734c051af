"""Settings of the generate service."""

from __future__ import annotations

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from rendergen.service.settings import PodUrl, ServiceSettings


class GenerateServiceSettings(ServiceSettings):
    """Flags, environment (``RENDERGEN_GENERATE_SERVICE__…``) and defaults of ``python -m generate_service``."""

    model_config = SettingsConfigDict(env_prefix="RENDERGEN_GENERATE_SERVICE__", cli_prog_name="generate_service")

    vllm_url: PodUrl = Field(description="Base address of the vLLM engine (`vllm serve --enable-scale-out`).")
    generate_timeout_s: float = Field(600.0, gt=0, description="Budget of one generation, streamed or not.")
