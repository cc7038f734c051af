"""CPU time of processes, to the nanosecond."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

_ENGINE = ("VLLM::EngineCore", "VLLM::Worker")


def cpu_seconds(pids: Iterable[int]) -> float:
    """CPU time that the processes ``pids`` have used so far, all threads, user and system."""
    return sum(time.clock_gettime(_clock_of(pid)) for pid in pids)


def _clock_of(pid: int) -> int:
    # Linux's clock id of another process's CPU time (CPUCLOCK_SCHED), as clock_getcpuclockid(3) gives it.
    return (~pid << 3) | 2


def tree(pid: int) -> list[int]:
    """The process ``pid`` and all its descendants."""
    found = [pid]
    for parent in found:
        for children in Path(f"/proc/{parent}/task").glob("*/children"):
            found += [int(child) for child in children.read_text().split()]
    return found


def engine_processes(pids: Iterable[int]) -> list[int]:
    """Those of ``pids`` that are vLLM's engine, which computes, rather than its API server."""
    return [pid for pid in pids if Path(f"/proc/{pid}/cmdline").read_text(errors="replace").startswith(_ENGINE)]
