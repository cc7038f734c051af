"""Settings of the router."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError
from pydantic_settings import CliToggleFlag, SettingsConfigDict

from rendergen.service.hosts import is_loopback
from rendergen.service.settings import HostNames, Names, PodEntries, ServiceSettings

_FORMS = "separated by commas: http://HOST:PORT, or dns+http://NAME:PORT, where every address of the name is a pod."


class RouterSettings(ServiceSettings):
    """Flags, environment (``RENDERGEN_ROUTER__…``) and defaults of ``python -m router``."""

    model_config = SettingsConfigDict(env_prefix="RENDERGEN_ROUTER__", cli_prog_name="router")

    render_pods: PodEntries = Field(min_length=1, description=f"The render pods, {_FORMS}")
    generate_pods: PodEntries = Field(min_length=1, description=f"The generate pods, {_FORMS}")
    dns_interval_s: float = Field(5.0, gt=0, description="Time between two resolutions of a dns+http:// name.")
    dns_timeout_s: float = Field(
        5.0, gt=0, description="Longest wait for such a resolution. While none succeeds, the last known pods stay."
    )
    models_interval_s: float = Field(
        10.0,
        gt=0,
        description="Time between two questions to a pod which models it serves (LoRA adapters come and go).",
    )
    json_unsafe_models: Names = Field(
        (),
        description="Names of served models, separated by commas, whose media may not travel as vLLM's JSON, beside "
        "those of the families that are known for it: without the plugin their requests with media are a 400.",
    )
    render_timeout_s: float = Field(120.0, gt=0, description="Budget of one render, its payload's transfer included.")
    generate_timeout_s: float = Field(600.0, gt=0, description="Budget of one generation, streamed or not.")
    derender_timeout_s: float = Field(60.0, gt=0, description="Budget of one derender.")
    keepalive_interval_s: float = Field(
        15.0, gt=0, description="After so long without an event a stream to a caller gets a comment, to keep it open."
    )
    max_prompts: int = Field(
        256, ge=1, description="Most prompts in one request to `/v1/completions`; each is a request of its own to pods."
    )
    raw_render: bool = Field(
        True, description="Serve the render and derender paths to callers that do the steps themselves."
    )
    raw_generate: bool = Field(
        True, description="Serve `/inference/v1/generate` and its abort path to callers that do the steps themselves."
    )
    no_auth: CliToggleFlag[bool] = Field(
        False, description="Serve whoever can reach the address, though others than this machine can."
    )
    api_keys_file: Path | None = Field(
        None,
        description="File of the API keys that callers need, a line `NAME sha256:HEX` each; `rendergen keys new NAME` "
        "makes them. Read again when it changes. None: callers need no key, which off loopback takes `--no-auth`.",
    )
    pod_api_key_file: Path | None = Field(
        None,
        description="File of the API key that the router sends to pods (vLLM's `--api-key`) instead of the caller's. "
        "Read again when it changes.",
    )
    allowed_media_domains: HostNames = Field(
        (),
        description="Host names, separated by commas, from which images given by URL may be fetched. "
        "vLLM must be told the same ones. None: images come within the request.",
    )

    @field_validator("api_keys_file")
    @classmethod
    def _has_keys_or_says_that_it_needs_none(cls, value: Path | None, info: ValidationInfo) -> Path | None:
        host, no_auth = info.data.get("host"), info.data.get("no_auth")
        if host is None or no_auth is None:  # a mistake of its own
            return value
        if value is not None and no_auth:
            raise PydanticCustomError("auth", "makes no sense beside --no-auth; give one of the two")
        if value is None and not no_auth and not is_loopback(host):
            raise PydanticCustomError(
                "auth",
                "needed for --host {host}, which others than this machine may reach; "
                "or say --no-auth, to serve whoever can",
                {"host": host},
            )
        return value
