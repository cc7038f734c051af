"""Child processes: started on a core of their own, waited for, measured, and ended whatever happens."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

_START_TIMEOUT_S = 30.0
_STOP_TIMEOUT_S = 5.0
_POLL_S = 0.02


class ProcessFailed(Exception):
    """A process ended early or never became ready; the message has the end of its output."""


@dataclass(frozen=True, slots=True)
class Process:
    """A child process, the leader of a process group of its own.

    Attributes:
        popen: the process.
        output: the file that takes its standard output and error.
    """

    popen: subprocess.Popen[bytes]
    output: Path

    async def port(self) -> int:
        """The port that it says it listens on, in the line `{"message": "listening", "url": …}` of its output."""

        async def look() -> int | None:
            for line in self.output.read_text(errors="replace").splitlines():
                with suppress(ValueError):
                    entry = json.loads(line)
                    if entry["message"] == "listening":
                        return int(entry["url"].rpartition(":")[2])
            return None

        return await self.until(look)

    async def worker(self) -> int:
        """The process id of its first child."""

        async def look() -> int | None:
            return _first_child(self.popen.pid)

        return await self.until(look)

    async def until(self, look: Callable[[], Awaitable[T | None]]) -> T:
        """What `look` gives once it gives something.

        Raises:
            ProcessFailed: the process ended before that, or 30 s went by.
        """
        deadline = time.monotonic() + _START_TIMEOUT_S
        while self.popen.poll() is None and time.monotonic() < deadline:
            found = await look()
            if found is not None:
                return found
            await asyncio.sleep(_POLL_S)
        raise ProcessFailed(f"{self.output.stem} is not ready:\n{self.output.read_text(errors='replace')[-2000:]}")


def _first_child(pid: int) -> int | None:
    pids = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(pids[0]) if pids else None


@contextmanager
def running(name: str, command: Sequence[str], directory: Path, core: int | None) -> Iterator[Process]:
    """A process that runs while the context lasts.

    Args:
        name: what to call it.
        command: what to run.
        directory: where the file goes that takes its output.
        core: the one core that it and its children may run on; None for any.
    """
    output = directory / f"{name}.log"
    with output.open("wb") as file:
        popen = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C reaches us alone, and we end them in order
            preexec_fn=None if core is None else lambda: os.sched_setaffinity(0, {core}),
        )
    try:
        yield Process(popen, output)
    finally:
        _end(popen)


def _end(popen: subprocess.Popen[bytes]) -> None:
    # The group, as nginx has a worker. It exists until its leader is waited for.
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(popen.pid, number)
        with suppress(subprocess.TimeoutExpired):
            popen.wait(_STOP_TIMEOUT_S)
            return


def cpu_seconds(pids: Iterable[int]) -> float:
    """CPU time that processes have used so far, user and system, all threads.

    It is what `/proc/PID/stat` has in ticks of 10 ms, read from each process's CPU clock instead, which is exact.
    """
    return sum(time.clock_gettime((~pid << 3) | 2) for pid in pids)  # as clock_getcpuclockid(3) makes it


def peak_rss_bytes(pids: Iterable[int]) -> int:
    """The most memory that processes have held, each since its last `reset_peak_rss`, summed."""
    return sum(_peak_rss_bytes(pid) for pid in pids)


def _peak_rss_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "VmHWM":
            return int(value.split()[0]) * 1024
    raise ProcessFailed(f"process {pid} has no memory: it has ended")


def reset_peak_rss(pids: Iterable[int]) -> None:
    """Let the peak begin anew, from what is held now."""
    for pid in pids:
        Path(f"/proc/{pid}/clear_refs").write_text("5")
