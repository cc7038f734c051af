"""The stack as a library: what the end-to-end tests and the demo build on."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import aiohttp
import pytest

from rendergen.launcher.commands import ProcessSpec, Role
from rendergen.launcher.display import ProcessState
from rendergen.launcher.errors import ChildDiedError, LaunchError, StartTimeoutError
from rendergen.launcher.settings import LaunchSettings
from rendergen.launcher.stack import Stack
from tests.rendergen.launcher.conftest import MakeSpec, session_of
from tests.support.polling import eventually, soon


class Recorder:
    """A display that remembers."""

    def __init__(self) -> None:
        self.stages: list[tuple[str, str]] = []
        self.closed = 0

    def show(self, states: object) -> None:
        assert isinstance(states, list)
        for state in states:
            assert isinstance(state, ProcessState)
            if (state.name, state.stage) not in self.stages:
                self.stages.append((state.name, state.stage))

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def settings(tmp_path: Path) -> LaunchSettings:
    return LaunchSettings(log_dir=tmp_path / "logs", stop_grace_s=10.0)


def sessions(stack: Stack) -> list[int]:
    return [child.pid for child in stack.processes if child.pid is not None]


async def gone(stack: Stack) -> None:
    await eventually(lambda: not any(session_of(sid) for sid in sessions(stack)))


async def test_ready_means_that_all_answer(settings: LaunchSettings, spec: MakeSpec) -> None:
    """When start returns every process serves, and its URL is known by what it is for."""
    stack = Stack(settings)
    specs = [spec(role) for role in Role]
    try:
        await stack.start(specs)
        urls = [
            *(*stack.vllm_render_urls, *stack.vllm_engine_urls),
            *(*stack.render_service_urls, *stack.generate_service_urls, stack.router_url),
        ]
        assert urls == [each.url for each in specs]
        async with aiohttp.ClientSession() as session:
            for url in urls:
                async with session.get(url) as response:
                    assert response.status == 200
    finally:
        await stack.stop()
    await gone(stack)


async def test_the_order_of_stopping(settings: LaunchSettings, spec: MakeSpec) -> None:
    """The router first, then the services, then vLLM, which they need until they are done."""
    shown = Recorder()
    stack = Stack(settings, shown)
    await stack.start([spec(role) for role in Role])
    await stack.stop()
    stopped = [Role(name) for name, stage in shown.stages if stage == "stopped"]
    assert stopped[0] is Role.ROUTER
    assert set(stopped[1:3]) == {Role.RENDER_SERVICE, Role.GENERATE_SERVICE}
    assert set(stopped[3:]) == {Role.VLLM_RENDER, Role.VLLM_ENGINE}
    assert shown.closed == 2, "once when all was ready, once at the end: other text may follow"


async def test_a_process_that_is_never_ready(spec: MakeSpec, tmp_path: Path) -> None:
    """The wait has an end: the line names the process and what it was doing, and all is stopped."""
    stack = Stack(LaunchSettings(log_dir=tmp_path / "logs", start_timeout_s=0.5))
    with pytest.raises(StartTimeoutError, match="router was not ready after 0 s: waiting for what is behind it"):
        await soon(stack.start([spec(Role.ROUTER, "--unready")]))
    await gone(stack)


async def test_an_answer_is_not_readiness(settings: LaunchSettings, spec: MakeSpec) -> None:
    """A process that answers, but not 200, is waited for."""
    stack = Stack(settings)
    start = asyncio.create_task(stack.start([spec(Role.ROUTER, "--unready")]))
    log = stack.log_dir / "router.log"
    await eventually(lambda: log.exists() and log.read_text().count("not ready") >= 2)
    assert not start.done()
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start


async def test_a_cancelled_start(settings: LaunchSettings, spec: MakeSpec) -> None:
    """A caller that gives up leaves nothing behind."""
    stack = Stack(settings)
    start = asyncio.create_task(stack.start([spec(Role.VLLM_ENGINE, "--unready", "--offspring")]))
    await eventually(lambda: sessions(stack) and len(session_of(sessions(stack)[0])) == 3)
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start
    await gone(stack)


async def test_a_program_that_is_missing(settings: LaunchSettings, spec: MakeSpec) -> None:
    """A service that cannot even start is told like any other death."""
    missing = ProcessSpec("router", Role.ROUTER, ("/no/such/program",), {}, "http://127.0.0.1:9", "/readyz")
    stack = Stack(settings)
    with pytest.raises(ChildDiedError, match="router ended with exit code 127"):
        await stack.start([spec(Role.VLLM_RENDER), missing])
    await gone(stack)


async def test_wait_tells_of_a_death(settings: LaunchSettings, spec: MakeSpec) -> None:
    """Whoever waits hears which process died; the others go on until they are stopped."""
    stack = Stack(settings)
    try:
        await stack.start([spec(Role.VLLM_ENGINE), spec(Role.ROUTER)])
        waiting = asyncio.create_task(stack.wait())
        engine = stack.process("vllm-engine")
        assert engine.pid is not None
        os.killpg(engine.pid, signal.SIGKILL)
        with pytest.raises(ChildDiedError, match="vllm-engine was killed"):
            await soon(waiting)
        assert stack.process("router").is_running()
    finally:
        await stack.stop()


async def test_a_process_can_be_killed_and_started_again(settings: LaunchSettings, spec: MakeSpec) -> None:
    """A test kills a pod on purpose and brings it back at the same address; the others are not touched."""
    stack = Stack(settings)
    try:
        await stack.start([spec(Role.VLLM_ENGINE), spec(Role.ROUTER)])
        engine = stack.process("vllm-engine")
        engine.kill()
        await soon(engine.wait())
        await engine.start()
        await soon(stack.until_ready())
        assert engine.is_running()
    finally:
        await stack.stop()
    await gone(stack)


async def test_checks_come_before_processes(tmp_path: Path) -> None:
    """What can be told in advance is told before anything is started."""
    stack = Stack(LaunchSettings(model=str(tmp_path / "nothing"), log_dir=tmp_path / "logs"))
    with pytest.raises(LaunchError, match="does not exist"):
        async with stack:
            pytest.fail("it started")
    assert stack.processes == ()
    assert not (tmp_path / "logs").exists()


async def test_logs_have_a_place_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a log directory each run gets a new one where the caller is."""
    monkeypatch.chdir(tmp_path)
    assert Stack(LaunchSettings()).log_dir.parent == tmp_path / ".rendergen/logs"
