from __future__ import annotations

import socket
from pathlib import Path

import pytest

from rendergen.launcher.machine import Device, available_memory_bytes, free_ports, installed_device, visible_gpus


def test_free_ports_are_free_and_different() -> None:
    """Each can be listened on, all at once."""
    ports = free_ports(20)
    servers = [socket.create_server(("127.0.0.1", port)) for port in ports]
    for server in servers:
        server.close()
    assert len(set(ports)) == 20


def test_the_installed_vllm() -> None:
    """The distribution's name tells what vLLM was built for; it is not imported to find out."""
    assert installed_device() in (Device.CPU, Device.GPU)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, None),
        ({"proc/meminfo": "MemTotal: 9 kB\nMemAvailable:    2048 kB\n"}, 2048 * 1024),
        ({"proc/meminfo": "MemAvailable: 2048 kB\n", "sys/fs/cgroup/memory.max": "max\n"}, 2048 * 1024),
        (
            {
                "proc/meminfo": "MemAvailable: 2048 kB\n",
                "sys/fs/cgroup/memory.max": "5000\n",
                "sys/fs/cgroup/memory.current": "1000\n",
            },
            4000,
        ),
        (
            {
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "100\n",
                "sys/fs/cgroup/memory/memory.usage_in_bytes": "300\n",
            },
            0,
        ),
    ],
)
def test_available_memory(files: dict[str, str], expected: int | None, tmp_path: Path) -> None:
    """The smaller of what the kernel has and what a container's limit leaves; None where neither is told."""
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert available_memory_bytes(tmp_path) == expected


@pytest.mark.parametrize(("value", "gpus"), [("", ()), ("0", ("0",)), ("2,GPU-ab", ("2", "GPU-ab"))])
def test_visible_gpus(value: str, gpus: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA_VISIBLE_DEVICES, entry by entry."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    assert visible_gpus() == gpus
