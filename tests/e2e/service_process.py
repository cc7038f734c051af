"""A rendergen service as a process of its own, for tests that need one with other settings than the stack's."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import aiohttp

from rendergen.launcher.child import ChildProcess
from rendergen.launcher.commands import ProcessSpec, Role
from rendergen.launcher.machine import free_ports
from tests.e2e.polling import eventually

STOP_GRACE_S = 10.0

# Nobody waits for requests to end when a test has, and a pod that is gone is noticed soon.
QUICK = ("--drain-timeout-s", "1", "--probe-interval-s", "0.1")


@asynccontextmanager
async def service_process(module: str, *flags: str, ready: bool = True) -> AsyncIterator[ChildProcess]:
    """``python -m module flags`` on a free loopback port, stopped at the end; its address is ``.spec.url``.

    It is run as the launcher runs its own, so nothing is left of it even if the tests are killed.

    Args:
        module: ``router``, ``render_service`` or ``generate_service``.
        flags: its flags.
        ready: whether to wait until it can serve, or only until it listens.
    """
    [port] = free_ports(1)
    path = "/readyz" if ready else "/livez"
    argv = (sys.executable, "-m", module, "--port", str(port), *QUICK, *flags)
    spec = ProcessSpec(module, Role(module.replace("_", "-")), argv, {}, f"http://127.0.0.1:{port}", path)
    with TemporaryDirectory() as log_dir:
        process = ChildProcess(spec, Path(log_dir), STOP_GRACE_S)
        await process.start()
        try:
            await eventually(lambda: _answers(process), f"{module} is up")
            yield process
        finally:
            await process.stop()
        assert_no_traceback(process.log.path.read_text())


def assert_no_traceback(log: str) -> None:
    """Nothing that a service did not expect has happened to it."""
    assert [line for line in log.splitlines() if '"unexpected failure"' in line or line.startswith("Traceback")] == []


async def _answers(process: ChildProcess) -> bool:
    if process.returncode is not None:
        raise process.death()
    try:
        async with (
            aiohttp.ClientSession() as session,
            session.get(process.spec.url + process.spec.ready_path) as answer,
        ):
            return answer.status == 200
    except aiohttp.ClientError:
        return False
