"""The whole stack on this machine, as one thing to start, watch and stop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import aiohttp

from rendergen.launcher.checks import (
    check_auth,
    check_media_domains,
    check_memory,
    check_model,
    check_port,
    check_replicas,
)
from rendergen.launcher.child import ChildProcess
from rendergen.launcher.commands import Ports, ProcessSpec, Role, plan, ports_needed
from rendergen.launcher.display import Display, NoDisplay, ProcessState
from rendergen.launcher.errors import LaunchError, StartTimeoutError
from rendergen.launcher.machine import (
    Machine,
    available_memory_bytes,
    free_ports,
    installed_device,
    listed_vllm_plugins,
    visible_gpus,
)
from rendergen.launcher.settings import LaunchSettings
from rendergen.launcher.stages import first_stage, stage_of
from rendergen.launcher.torch_companions import broken_torch_companions

__all__ = ["Stack", "prepare"]

_TICK_S = 0.25
_PROBE_TIMEOUT_S = 2.0

# The door closes first, then the pods' services finish what they have, and vLLM, which they need for it, goes last.
_STOP_ORDER = (
    {Role.ROUTER},
    {Role.RENDER_SERVICE, Role.GENERATE_SERVICE},
    {Role.VLLM_RENDER, Role.VLLM_ENGINE},
)


async def prepare(settings: LaunchSettings) -> tuple[ProcessSpec, ...]:
    """Check what can be checked, find out about the machine, and plan the processes."""
    check_replicas(settings)
    check_auth(settings)
    check_media_domains(settings)
    device = installed_device()
    check_model(settings)
    check_port(settings.host, settings.port)
    check_memory(settings, device, available_memory_bytes())
    machine = Machine(device, await broken_torch_companions(), visible_gpus(), listed_vllm_plugins())
    return plan(settings, machine, Ports.assign(settings, free_ports(ports_needed(settings))))


class Stack:
    """`async with Stack(settings) as stack:` runs every process of the stack, ready to serve, for as long as the block.

    Within the block a process that dies does not end the others: `wait` is for callers who want to hear of it, and
    tests that kill one on purpose use `process`.
    """

    def __init__(self, settings: LaunchSettings, display: Display | None = None) -> None:
        self.settings = settings
        self.log_dir = _log_dir(settings)
        self._display = display or NoDisplay()
        self._children: tuple[ChildProcess, ...] = ()
        self._progress: dict[str, _Progress] = {}
        self._stopped = False

    @property
    def router_url(self) -> str:
        return self._urls(Role.ROUTER)[0]

    @property
    def render_service_urls(self) -> tuple[str, ...]:
        return self._urls(Role.RENDER_SERVICE)

    @property
    def generate_service_urls(self) -> tuple[str, ...]:
        return self._urls(Role.GENERATE_SERVICE)

    @property
    def vllm_render_urls(self) -> tuple[str, ...]:
        return self._urls(Role.VLLM_RENDER)

    @property
    def vllm_engine_urls(self) -> tuple[str, ...]:
        return self._urls(Role.VLLM_ENGINE)

    @property
    def processes(self) -> tuple[ChildProcess, ...]:
        return self._children

    def process(self, name: str) -> ChildProcess:
        """The process of that name, `vllm-engine-0` for one."""
        return next(child for child in self._children if child.spec.name == name)

    async def __aenter__(self) -> Self:
        await self.start(await prepare(self.settings))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self, specs: Sequence[ProcessSpec]) -> None:
        """Start all processes at once and return when each is ready. On any failure everything is stopped again."""
        try:
            self.log_dir.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LaunchError(
                f"cannot write logs to {self.log_dir}: {error.strerror}; name another directory"
            ) from error
        self._children = tuple(ChildProcess(spec, self.log_dir, self.settings.stop_grace_s) for spec in specs)
        try:
            for child in self._children:
                await child.start()
                self._progress[child.spec.name] = _Progress(child)
            await self.until_ready()
        except BaseException:
            await self.stop()
            raise
        self._display.close()

    async def until_ready(self) -> None:
        """Wait until every process answers that it is ready, all anew: `start` does so, and callers after a restart."""
        for progress in self._progress.values():
            progress.begin()
        deadline = time.monotonic() + self.settings.start_timeout_s
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_PROBE_TIMEOUT_S)) as session:
            while True:
                self._raise_for_the_dead()
                await asyncio.gather(*(progress.look(session) for progress in self._progress.values()))
                self._show()
                late = [progress for progress in self._progress.values() if not progress.ready]
                if not late:
                    return
                if time.monotonic() > deadline:
                    raise late[0].timeout(self.settings.start_timeout_s)
                await asyncio.sleep(_TICK_S)

    async def wait(self) -> None:
        """Wait until a process ends by itself, and raise ChildDiedError for it."""
        waits = [asyncio.create_task(child.wait()) for child in self._children]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waits:
                task.cancel()
        self._raise_for_the_dead()

    async def stop(self) -> None:
        """Stop everything, the router first and vLLM last. Nothing of it is left when this returns."""
        if self._stopped:
            return
        self._stopped = True
        try:
            for roles in _STOP_ORDER:
                await self._stop_together([child for child in self._children if child.spec.role in roles])
        finally:
            self.kill()
            self._display.close()

    async def _stop_together(self, children: Sequence[ChildProcess]) -> None:
        async with asyncio.TaskGroup() as group:
            running = {group.create_task(child.stop()) for child in children}
            while running:
                _, running = await asyncio.wait(running, timeout=_TICK_S)
                self._show()

    def kill(self) -> None:
        """Kill everything at once. A `stop` that is under way then ends at once."""
        for child in self._children:
            child.kill()

    def _raise_for_the_dead(self) -> None:
        for child in self._children:
            if child.returncode is not None:
                raise child.death()

    def _show(self) -> None:
        self._display.show([progress.state() for progress in self._progress.values()])

    def _urls(self, role: Role) -> tuple[str, ...]:
        return tuple(child.spec.url for child in self._children if child.spec.role is role)


class _Progress:
    """How far one process is on its way to being ready."""

    def __init__(self, child: ChildProcess) -> None:
        self._child = child
        self.begin()

    def begin(self) -> None:
        """Forget what was known: the process has just been started."""
        self._started = time.monotonic()
        self._stage = first_stage(self._child.spec.role)
        self._ready_after: float | None = None

    @property
    def ready(self) -> bool:
        return self._ready_after is not None

    async def look(self, session: aiohttp.ClientSession) -> None:
        """Read what it logged, and ask it whether it is ready."""
        if self.ready:
            return
        self._stage = stage_of(self._child.spec.role, self._child.log.new_lines()) or self._stage
        if await _answers(session, self._child.spec.url + self._child.spec.ready_path):
            self._ready_after = time.monotonic() - self._started

    def state(self) -> ProcessState:
        child = self._child
        stage = self._stage
        if child.stopping:
            stage = "stopping" if child.is_running() else "stopped"
        elif self.ready:
            stage = "ready"
        elapsed = time.monotonic() - self._started if self._ready_after is None else self._ready_after
        return ProcessState(child.spec.name, child.pid, stage, elapsed, self.ready and not child.stopping)

    def timeout(self, limit_s: float) -> StartTimeoutError:
        log = self._child.log
        return StartTimeoutError(
            f"{self._child.spec.name} was not ready after {limit_s:.0f} s: {self._stage}", log.path, log.tail()
        )


async def _answers(session: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with session.get(url) as response:
            return response.status == 200
    except (aiohttp.ClientError, TimeoutError):
        return False


def _log_dir(settings: LaunchSettings) -> Path:
    if settings.log_dir is not None:
        return settings.log_dir
    return Path(".rendergen/logs").absolute() / time.strftime("%Y%m%d-%H%M%S")
