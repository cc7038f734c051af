"""`rendergen up` as its user sees it: a process that prints, gets signals and ends with an exit code."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.rendergen.launcher.conftest import alive, session_of
from tests.support.polling import eventually, soon

FAKE_UP = Path(__file__).with_name("fake_up.py")
ROOT = FAKE_UP.parents[3]


@dataclass
class Up:
    """A running `rendergen up` and what it has printed so far."""

    process: asyncio.subprocess.Process
    output: Path
    log_dir: Path

    def printed(self) -> str:
        return self.output.read_text()

    def sessions(self) -> list[int]:
        """The leaders of the children's sessions, one per process of the stack."""
        return children_of(self.process.pid)

    async def ready(self) -> list[int]:
        await eventually(lambda: "Ctrl-C stops everything." in self.printed() or self.process.returncode is not None)
        assert self.process.returncode is None, self.printed()
        return self.sessions()


@contextlib.asynccontextmanager
async def up(tmp_path: Path, *flags: str) -> AsyncIterator[Up]:
    output = tmp_path / "output"
    with output.open("w") as file:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.rendergen.launcher.fake_up", str(tmp_path / "logs"), *flags),
            cwd=ROOT,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=file,
            stderr=file,
        )
    try:
        yield Up(process, output, tmp_path / "logs")
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


async def none_left(sessions: list[int]) -> None:
    assert sessions
    await eventually(lambda: not any(session_of(sid) for sid in sessions))


async def test_it_says_where_everything_is(tmp_path: Path) -> None:
    """Once ready: each URL, the log directory, an example; and before that what each process is doing."""
    async with up(tmp_path) as stack:
        await stack.ready()
        text = stack.printed()
        for name in ("vllm-render", "vllm-engine", "render-service", "generate-service", "router"):
            assert (stack.log_dir / f"{name}.log").read_text() == "serving\n"
            assert f"{name:<18} ready" in text
        assert "router             http://127.0.0.1:" in text
        assert f"logs               {stack.log_dir}" in text
        assert "curl -s http://127.0.0.1:" in text


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_stops_everything(tmp_path: Path, number: signal.Signals) -> None:
    """Ctrl-C, or SIGTERM: every process ends in good order, none is left, exit code 0, no traceback."""
    async with up(tmp_path) as stack:
        sessions = await stack.ready()
        stack.process.send_signal(number)
        assert await soon(stack.process.wait()) == 0
        await none_left(sessions)
        for log in stack.log_dir.glob("*.log"):
            assert log.read_text() == "serving\nended in good order\n"
        assert "Traceback" not in stack.printed()


async def test_a_signal_while_starting(tmp_path: Path) -> None:
    """Ctrl-C before all is ready stops what has been started."""
    async with up(tmp_path, "--unready") as stack:
        await eventually(lambda: f"{'router':<18} ready" in stack.printed())
        sessions = stack.sessions()
        stack.process.send_signal(signal.SIGINT)
        assert await soon(stack.process.wait()) == 0
        await none_left(sessions)
        assert "Ctrl-C stops everything." not in stack.printed()


async def test_a_second_signal_kills(tmp_path: Path) -> None:
    """Ctrl-C again does not wait for a process that will not stop."""
    async with up(tmp_path, "--stubborn", "--offspring") as stack:
        sessions = await stack.ready()
        stack.process.send_signal(signal.SIGINT)
        await eventually(lambda: f"{'vllm-engine':<18} stopping" in stack.printed())
        begun = time.monotonic()
        stack.process.send_signal(signal.SIGINT)
        assert await soon(stack.process.wait()) == 0
        assert time.monotonic() - begun < 10, "it waited for the grace period of 15 s"
        await none_left(sessions)


async def test_a_killed_launcher_leaves_nothing(tmp_path: Path) -> None:
    """SIGKILL to the launcher, which can do nothing any more: its processes and their children still end."""
    async with up(tmp_path, "--offspring") as stack:
        sessions = await stack.ready()
        stack.process.kill()
        await stack.process.wait()
        await none_left(sessions)


async def test_death_while_starting(tmp_path: Path) -> None:
    """A child that dies: one line with the reason, the end of its log, everything else stopped, exit code 1."""
    async with up(tmp_path, "--say", "RuntimeError: no space", "--offspring", "--exit", "2") as stack:
        assert await soon(stack.process.wait()) == 1
        *_, line, heading, tail = stack.printed().splitlines()
        assert line == "rendergen: vllm-engine ended with exit code 2: RuntimeError: no space"
        assert heading == f"  the end of {stack.log_dir}/vllm-engine.log:"
        assert tail == "    RuntimeError: no space"
        assert (stack.log_dir / "router.log").exists()
        ended = [log.read_text() for log in stack.log_dir.glob("*.log") if log.name != "vllm-engine.log"]
        assert len(ended) == 4


async def test_death_while_serving(tmp_path: Path) -> None:
    """The same when it dies later, by a signal."""
    async with up(tmp_path, "--offspring") as stack:
        sessions = await stack.ready()
        engine = next(sid for sid in sessions if len(session_of(sid)) == 3)
        (command,) = (pid for pid in session_of(engine) - {engine} if children_of(pid))
        os.kill(command, signal.SIGKILL)
        assert await soon(stack.process.wait()) == 1
        assert "rendergen: vllm-engine was killed (SIGKILL)" in stack.printed()
        await none_left(sessions)
        assert not alive(command)
