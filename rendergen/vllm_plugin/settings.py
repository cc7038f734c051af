"""Settings of the plugin. It lives in vLLM's process, so they come from the environment alone."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Self

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

MIB = 1024 * 1024
ENVIRONMENT_PREFIX = "RENDERGEN_PLUGIN__"


class PluginSettings(BaseSettings):
    """Environment (``RENDERGEN_PLUGIN__…``) and defaults of the plugin in vLLM."""

    model_config = SettingsConfigDict(env_prefix=ENVIRONMENT_PREFIX, frozen=True, extra="ignore")

    signing_keys: SecretStr = Field(
        default=SecretStr(""),
        description="Secrets of at least 32 characters, separated by commas: payloads are signed with the first, and "
        "signatures of any of them are accepted. Empty: payloads are neither signed nor need a signature.",
    )
    signing_keys_file: Path | None = Field(
        default=None, description="A file with those secrets, one a line, instead of the variable. Read at start."
    )
    max_body_bytes: int = Field(default=256 * MIB, ge=1, description="Largest request body taken; more is a 413.")
    max_renders: int = Field(
        default=4,
        ge=1,
        description="Requests rendered at a time. vLLM processes the images of one after the other, so more than a few "
        "gain nothing.",
    )
    max_queued_renders: int = Field(
        default=128, ge=0, description="Requests that may wait to be rendered; beyond them the answer is 429."
    )
    allow_content_parts: bool = Field(
        default=False,
        description="Take generate requests with `content_parts`, which make the engine's server fetch URLs.",
    )
    allow_transfer_params: bool = Field(
        default=False, description="Take generate requests with `kv_transfer_params` or `ec_transfer_params`."
    )

    @classmethod
    def read(cls) -> Self:
        """Settings from the environment.

        Raises:
            ValueError: a variable has the plugin's prefix and is none of its settings. A misspelt key must not leave
                a server that takes unsigned payloads.
        """
        known = {cls.environment_name(name) for name in cls.model_fields}
        prefix = cls.environment_name("")
        unknown = sorted(name for name in os.environ if name.startswith(prefix) and name not in known)
        if unknown:
            raise ValueError(f"{', '.join(unknown)}: no setting of rendergen's plugin")
        return cls()

    @classmethod
    def environment_name(cls, field: str) -> str:
        """The environment variable that sets ``field``."""
        return f"{cls.model_config.get('env_prefix', '')}{field}".upper()
