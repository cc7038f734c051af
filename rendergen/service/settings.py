"""Settings that every service process has, and how they are read.

A service declares one frozen class; flags, environment names, validation and ``docs/settings.md`` derive from it.
Environment names have a double underscore after the service's name (``RENDERGEN_ROUTER__PORT``): Kubernetes sets
variables like ``RENDERGEN_ROUTER_PORT=tcp://…`` in every pod of a namespace that has a Service of that name.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError
from pydantic_settings import BaseSettings, CliApp, NoDecode, SettingsConfigDict, SettingsError

from rendergen.service.hosts import host_name

MIB = 1024 * 1024

# Before a name of which every address is a pod.
DNS_PREFIX = "dns+http://"


def _pod_url(value: str) -> str:
    parts = urlsplit(value)
    try:
        valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # of the port
        valid = False
    if not valid or "@" in parts.netloc or parts.query or parts.fragment:
        raise ValueError(f"{value!r} is no pod address: write http://HOST:PORT")
    return value.rstrip("/")


def _pod_entry(value: str) -> str:
    if not value.startswith(DNS_PREFIX):
        return _pod_url(value)
    url = _pod_url(value.removeprefix("dns+"))
    parts = urlsplit(url)
    if parts.port is None or parts.path:
        raise ValueError(f"{value!r} is no name to resolve: write dns+http://NAME:PORT")
    return "dns+" + url


def _split(value: object) -> object:
    """The environment gives a string, the command line a list (flags may be repeated); both may hold commas."""
    entries = [value] if isinstance(value, str) else value
    if not isinstance(entries, list):
        return value
    return [part.strip() for entry in entries for part in str(entry).split(",") if part.strip()]


PodUrl = Annotated[str, AfterValidator(_pod_url)]
PodEntry = Annotated[str, AfterValidator(_pod_entry)]
PodEntries = Annotated[tuple[PodEntry, ...], NoDecode, BeforeValidator(_split)]
Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split)]
HostNames = Annotated[tuple[Annotated[str, AfterValidator(host_name)], ...], NoDecode, BeforeValidator(_split)]


class ServiceSettings(BaseSettings):
    """What a service process needs whatever it serves."""

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        cli_kebab_case=True,
        cli_implicit_flags=True,
        cli_avoid_json=True,
        cli_hide_none_type=True,
        cli_exit_on_error=False,
        allow_inf_nan=False,
    )

    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(0, ge=0, le=65535, description="Port to listen on; 0 takes a free one and logs it.")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Least severe log level shown.")
    max_body_bytes: int = Field(
        256 * MIB,
        ge=1,
        description="Largest request body taken; more is a 413. An answer of a pod that has to be held "
        "(tokens, text) may be as large; more is a 502.",
    )
    idle_timeout_s: float = Field(
        30.0,
        gt=0,
        description="Longest wait for a caller: for the next bytes of its request (then 408), or to take the next of "
        "its answer (then it is cut off).",
    )
    connect_timeout_s: float = Field(3.0, gt=0, description="Longest wait for a connection to a pod.")
    pod_keepalive_s: float = Field(
        4.0,
        gt=0,
        description="How long an idle connection to a pod is kept. Below the 5 s after which vLLM closes them.",
    )
    probe_interval_s: float = Field(1.0, gt=0, description="Time between two health probes of a pod.")
    probe_timeout_s: float = Field(2.0, gt=0, description="Longest wait for a health probe's answer.")
    probe_failures: int = Field(
        3,
        ge=1,
        description="So many probes in a row without an answer in time make a ready pod unready: a busy one may be "
        "late. A refused connection, or an answer other than 200, does at once.",
    )
    drain_delay_s: float = Field(
        0.0,
        ge=0,
        description="After SIGTERM: time in which readiness is already off but requests are still taken, "
        "for load balancers to notice.",
    )
    drain_timeout_s: float = Field(
        60.0, ge=0, description="After that: time for requests in flight to end before they are cancelled."
    )

    @classmethod
    def read(cls, argv: list[str]) -> Self:
        """Settings from flags, then environment, then defaults. On a mistake: one line each, and exit code 2."""
        mistakes = [f"{name} is no setting of this service" for name in cls._unknown_environment()]
        try:
            settings = CliApp.run(cls, cli_args=argv)
        except SettingsError as error:  # of the command line's form
            mistakes.append(str(error).removeprefix("error parsing CLI: "))
        except ValidationError as error:
            # Once a flag: a list whose entries are wrong is too short as well.
            told = {_flag_of(item["loc"]): item["msg"] for item in reversed(error.errors())}
            mistakes += [f"--{flag}: {message}" for flag, message in reversed(told.items())]
        if mistakes:
            for mistake in mistakes:
                print(f"{cls.model_config.get('cli_prog_name')}: {mistake}", file=sys.stderr)
            raise SystemExit(2)
        return settings

    @classmethod
    def environment_name(cls, field: str) -> str:
        """The environment variable that sets ``field``."""
        return f"{cls.model_config.get('env_prefix', '')}{field}".upper()

    @classmethod
    def _unknown_environment(cls) -> list[str]:
        """Variables that look like ours and are none: a misspelt setting must not be a silent default."""
        known = {cls.environment_name(field) for field in cls.model_fields}
        prefix = cls.environment_name("")
        return sorted(name for name in os.environ if prefix and name.startswith(prefix) and name not in known)


def _flag_of(location: tuple[int | str, ...]) -> str:
    return str(location[0]).replace("_", "-") if location else ""
