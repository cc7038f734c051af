"""A stack of fake processes, and a look at which processes there are."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rendergen.launcher.commands import ProcessSpec, Role
from rendergen.launcher.machine import free_ports

FAKE = Path(__file__).with_name("fake_process.py")

MakeSpec = Callable[..., ProcessSpec]


def make_spec(role: Role, *flags: str) -> ProcessSpec:
    """A fake process that plays the given role."""
    (port,) = free_ports(1)
    argv = (sys.executable, "-I", "-S", str(FAKE), str(port), *flags)
    return ProcessSpec(str(role), role, argv, {}, f"http://127.0.0.1:{port}", "/health")


@pytest.fixture
def spec() -> MakeSpec:
    return make_spec


def alive(pid: int) -> bool:
    """Whether the process runs; one that has ended and waits to be reaped does not."""
    return _stat(pid)[:1] not in ([], ["Z"])


def session_of(sid: int) -> set[int]:
    """The running processes of a session: one that a child of ours leads holds all that it started."""
    pids = {int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()}
    return {pid for pid in pids if _stat(pid)[3:4] == [str(sid)] and alive(pid)}


def _stat(pid: int) -> list[str]:
    """State, parent, group, session, …; nothing for a process that is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []
