from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rendergen.launcher.child import ChildProcess
from rendergen.launcher.commands import ProcessSpec, Role
from tests.rendergen.launcher.conftest import MakeSpec, session_of
from tests.support.polling import eventually


@contextlib.asynccontextmanager
async def started(spec: ProcessSpec, log_dir: Path, grace_s: float = 10.0) -> AsyncIterator[ChildProcess]:
    child = ChildProcess(spec, log_dir, grace_s)
    await child.start()
    try:
        yield child
    finally:
        child.kill()
        await child.wait()


def log_of(child: ChildProcess) -> str:
    return child.log.path.read_text()


async def test_stop_asks_first(spec: MakeSpec, tmp_path: Path) -> None:
    """SIGTERM reaches the command, which ends by itself within the grace period."""
    async with started(spec(Role.ROUTER), tmp_path) as child:
        await eventually(lambda: "serving" in log_of(child))
        await child.stop()
        assert "ended in good order" in log_of(child)
        assert child.returncode == 0


async def test_stop_kills_what_does_not_stop(spec: MakeSpec, tmp_path: Path) -> None:
    """After the grace period the command and all its children are killed."""
    async with started(spec(Role.VLLM_ENGINE, "--stubborn", "--offspring"), tmp_path, grace_s=0.3) as child:
        await eventually(lambda: "serving" in log_of(child))
        assert child.pid is not None
        assert len(session_of(child.pid)) == 3, "the guard, the command and its child"
        await child.stop()
        await eventually(lambda: not session_of(child.pid or 0))


@pytest.mark.parametrize("how", [["--exit", "0"], ["--exit", "3"], ["--kill"]])
async def test_nothing_survives_the_command(spec: MakeSpec, tmp_path: Path, how: list[str]) -> None:
    """However the command ends, children that it left behind end with it, and the guard too."""
    async with started(spec(Role.VLLM_ENGINE, "--offspring", *how), tmp_path) as child:
        await child.wait()
        assert child.pid is not None
        assert session_of(child.pid) == set()


async def test_offspring_in_another_session_ends_too(tmp_path: Path) -> None:
    """A grandchild that leaves the process group is found as well: the guard becomes its parent."""
    script = (
        "import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], "
        "start_new_session=True); print(p.pid, flush=True)"
    )
    spec = ProcessSpec("daemon", Role.VLLM_ENGINE, (sys.executable, "-c", script), {}, "", "")
    async with started(spec, tmp_path) as child:
        assert await child.wait() == 0
        assert session_of(int(log_of(child))) == set()


@pytest.mark.parametrize(("flags", "code"), [(["--exit", "0"], 0), (["--exit", "3"], 3), (["--kill"], -signal.SIGKILL)])
async def test_exit_code_is_the_commands(spec: MakeSpec, tmp_path: Path, flags: list[str], code: int) -> None:
    """The guard ends as the command ended, by exit code or by signal."""
    async with started(spec(Role.ROUTER, *flags), tmp_path) as child:
        assert await child.wait() == code
        assert child.returncode == code
        assert not child.is_running()


async def test_command_that_cannot_run(tmp_path: Path) -> None:
    """A command that does not exist is a death like any other, with the reason in the log."""
    spec = ProcessSpec("gone", Role.ROUTER, ("/no/such/program",), {}, "", "")
    async with started(spec, tmp_path) as child:
        assert await child.wait() == 127
        assert str(child.death()) == (
            "gone ended with exit code 127: cannot run /no/such/program: No such file or directory"
        )


async def test_death_names_the_error(spec: MakeSpec, tmp_path: Path) -> None:
    """The one line tells which process, its exit code and the error; the log's end comes with it."""
    failing = spec(Role.VLLM_RENDER, "--say", "ValueError: no such model", "--exit", "1")
    async with started(failing, tmp_path) as child:
        await child.wait()
        death = child.death()
        assert str(death) == "vllm-render ended with exit code 1: ValueError: no such model"
        assert death.details() == f"  the end of {tmp_path}/vllm-render.log:\n    ValueError: no such model"


async def test_death_by_sigkill_speaks_of_memory(spec: MakeSpec, tmp_path: Path) -> None:
    """SIGKILL that is not ours is most often the kernel's answer to too little memory."""
    async with started(spec(Role.VLLM_ENGINE, "--kill"), tmp_path) as child:
        await child.wait()
        assert "memory" in str(child.death())


async def test_it_can_start_again(spec: MakeSpec, tmp_path: Path) -> None:
    """A process that ended starts again with the same command and adds to the same log."""
    async with started(spec(Role.ROUTER, "--exit", "0", "--say", "hello"), tmp_path) as child:
        await child.wait()
        await child.start()
        await child.wait()
        assert log_of(child) == "hello\nhello\n"


async def test_environment_is_added(spec: MakeSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command has the launcher's environment and its own variables."""
    monkeypatch.setenv("FROM_OUTSIDE", "1")
    show = "import os; print(os.environ['FROM_OUTSIDE'], os.environ['OWN'])"
    own = dataclasses.replace(spec(Role.ROUTER), argv=(sys.executable, "-c", show), environment={"OWN": "2"})
    async with started(own, tmp_path) as child:
        await child.wait()
        assert log_of(child) == "1 2\n"


async def test_stop_before_start(spec: MakeSpec, tmp_path: Path) -> None:
    """Stopping or killing what was never started does nothing."""
    child = ChildProcess(spec(Role.ROUTER), tmp_path, 1.0)
    child.kill()
    await asyncio.wait_for(child.stop(), 1.0)
    assert child.returncode is None
