"""One process of the stack, with everything that it starts itself."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path

from rendergen.launcher.commands import ProcessSpec
from rendergen.launcher.errors import ChildDiedError
from rendergen.launcher.logs import LogFile

__all__ = ["ChildProcess"]

_GUARD = Path(__file__).resolve().with_name("guard.py")


class ChildProcess:
    """A command under its guard (`guard.py`), in a process group of its own, writing to a log file of its own."""

    def __init__(self, spec: ProcessSpec, log_dir: Path, stop_grace_s: float) -> None:
        self.spec = spec
        self.log = LogFile(log_dir / f"{spec.name}.log")
        self.stopping = False
        self._stop_grace_s = stop_grace_s
        self._process: asyncio.subprocess.Process | None = None
        self._lifeline: int | None = None
        self._group_ended = False

    @property
    def pid(self) -> int | None:
        """The guard's process id, which is the id of the group and session too; None before the start."""
        return None if self._process is None else self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit code, or minus the signal that ended it; None while it runs."""
        return None if self._process is None else self._process.returncode

    def is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        """Start the command. It may be called again once it has ended, and then adds to the same log."""
        self.stopping = self._group_ended = False
        read_end, self._lifeline = os.pipe()
        try:
            with self.log.path.open("ab") as log:
                self._process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-I", "-S", str(_GUARD), str(self._stop_grace_s), *self.spec.argv),
                    stdin=read_end,
                    stdout=log,
                    stderr=asyncio.subprocess.STDOUT,
                    env={**os.environ, **self.spec.environment},
                    start_new_session=True,
                )
        except BaseException:
            self._release()
            raise
        finally:
            os.close(read_end)

    async def wait(self) -> int:
        """Wait for the end of the command, and end whatever it left behind."""
        assert self._process is not None
        code = await self._process.wait()
        self.kill()
        self._group_ended = True
        self._release()
        return code

    async def stop(self) -> None:
        """SIGTERM, the grace period, SIGKILL to the whole group. Returns once nothing of it is left."""
        if self._process is None:
            return
        self.stopping = True
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(self._process.wait(), self._stop_grace_s)
        except TimeoutError:
            self.kill()
        await self.wait()

    def kill(self) -> None:
        """SIGKILL to the whole group, at once."""
        self.stopping = True
        self.signal_group(signal.SIGKILL)

    def signal_group(self, number: signal.Signals) -> None:
        """Send a signal to the command, its guard and all its children: SIGSTOP makes a pod that hangs."""
        # Once all of it has ended, its id may be another's.
        if self._process is not None and not self._group_ended:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def death(self) -> ChildDiedError:
        """What to tell about a command that ended by itself."""
        code = self.returncode
        assert code is not None
        name = self.spec.name
        if code == -signal.SIGKILL:
            how = "was killed (SIGKILL), as the kernel does when memory runs out: free some, or start fewer replicas"
        elif code < 0:
            how = f"was ended by {signal.Signals(-code).name}"
        else:
            how = f"ended with exit code {code}"
        error = self.log.error() if code != -signal.SIGKILL else ""
        return ChildDiedError(f"{name} {how}{': ' if error else ''}{error}", name, self.log.path, self.log.tail())

    def _release(self) -> None:
        if self._lifeline is not None:
            os.close(self._lifeline)
            self._lifeline = None
