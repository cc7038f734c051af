"""What can be told before anything is started: each check raises a LaunchError with what to do."""

from __future__ import annotations

import errno
import os
import socket

from rendergen.launcher.errors import LaunchError
from rendergen.launcher.machine import Device
from rendergen.launcher.settings import LaunchSettings
from rendergen.service.api_keys import ApiKeys
from rendergen.service.hosts import host_name, is_loopback
from rendergen.service.watched_file import BadFile, WatchedFile

__all__ = [
    "check_auth",
    "check_media_domains",
    "check_memory",
    "check_model",
    "check_port",
    "check_replicas",
    "memory_needed_gib",
]

GIB = 2**30

# Resident memory in GiB, measured on vLLM 0.32 with a model of 4.5 MB.
_RENDER_GIB = 0.8
_ENGINE_GIB = 2.4  # API server, engine core and worker, without weights and KV cache
_GPU_ENGINE_GIB = 4.0  # the same with CUDA's libraries; weights and KV cache are on the GPU
_SERVICE_GIB = 0.1


def check_replicas(settings: LaunchSettings) -> None:
    """There is at least one pod of each kind."""
    for flag, count in (
        ("--render-replicas", settings.render_replicas),
        ("--generate-replicas", settings.generate_replicas),
    ):
        if count < 1:
            raise LaunchError(f"{flag} is {count}; it must be 1 or more")


def check_auth(settings: LaunchSettings) -> None:
    """Callers need keys, and there are some; or nobody but this machine can reach the router; or nobody minds."""
    if settings.api_keys_file is not None and settings.no_auth:
        raise LaunchError("--api-keys-file and --no-auth contradict each other; give one of them")
    if settings.api_keys_file is not None:
        try:
            WatchedFile("--api-keys-file", settings.api_keys_file, ApiKeys.read)
        except BadFile as error:
            raise LaunchError(str(error)) from error
    elif not settings.no_auth and not is_loopback(settings.host):
        raise LaunchError(
            f"others than this machine may reach --host {settings.host}; give --api-keys-file FILE for callers to need "
            "a key (`rendergen keys new NAME` makes one), or --no-auth to serve whoever can reach it"
        )


def check_media_domains(settings: LaunchSettings) -> None:
    """Each is a host name."""
    for domain in settings.allowed_media_domains:
        try:
            host_name(domain)
        except ValueError as error:
            raise LaunchError(f"--allow-media-domain: {error}") from error


def check_model(settings: LaunchSettings) -> None:
    """The model is a directory that holds one, or may be on the hub."""
    path = settings.model_path
    if path is None:
        if os.environ.get("HF_HUB_OFFLINE", "0") not in ("", "0") and not _in_hub_cache(settings.model):
            raise LaunchError(
                f"model {settings.model} is not in the local Hugging Face cache and HF_HUB_OFFLINE is set; "
                "unset it to download the model, or give --model a directory"
            )
    elif not path.exists():
        raise LaunchError(f"model {path} does not exist; give --model a directory or a name on the Hugging Face hub")
    elif not (path / "config.json").is_file():
        raise LaunchError(f"model {path} has no config.json; give --model the directory that holds it")
    elif not any(path.glob("*.safetensors")) and not any(path.glob("*.bin")):
        raise LaunchError(f"model {path} has a config.json but no weights (*.safetensors)")


def _in_hub_cache(model: str) -> bool:
    try:
        from huggingface_hub import try_to_load_from_cache
        from huggingface_hub.errors import HFValidationError
    except ImportError:
        return True  # vLLM brings it along; without it vLLM itself says what is missing
    try:
        return isinstance(try_to_load_from_cache(model, "config.json"), str)
    except HFValidationError as error:
        raise LaunchError(f"model {model} is neither a directory nor a name on the Hugging Face hub") from error


def check_port(host: str, port: int) -> None:
    """The router can listen where it is asked to."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: TIME_WAIT is not "taken"
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise LaunchError(
                    f"port {port} on {host} is taken; choose another with --port (0 takes a free one)"
                ) from None
            raise LaunchError(f"cannot listen on {host}:{port}: {error.strerror}") from None


def check_memory(settings: LaunchSettings, device: Device, available_bytes: int | None) -> None:
    """The estimate fits into what is available; nothing is checked where that is not known."""
    needed = memory_needed_gib(settings, device)
    if settings.check_memory and available_bytes is not None and available_bytes < needed * GIB:
        raise LaunchError(
            f"about {needed:.1f} GiB of memory are needed and {available_bytes / GIB:.1f} GiB are available; "
            "stop other programs, start fewer replicas, or skip this check with --no-memory-check"
        )


def memory_needed_gib(settings: LaunchSettings, device: Device) -> float:
    """An estimate of the memory that the whole stack takes, in GiB."""
    engine = _GPU_ENGINE_GIB if device is Device.GPU else _ENGINE_GIB + settings.kv_cache_gib + _weights_gib(settings)
    pods = settings.render_replicas * (_RENDER_GIB + _SERVICE_GIB) + settings.generate_replicas * (
        engine + _SERVICE_GIB
    )
    return pods + _SERVICE_GIB


def _weights_gib(settings: LaunchSettings) -> float:
    """Size of the weights where the model is a directory; unknown, so nothing, for one on the hub."""
    if settings.model_path is None:
        return 0.0
    return sum(file.stat().st_size for file in settings.model_path.glob("*.safetensors")) / GIB
