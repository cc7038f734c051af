"""A service as its users run it: a process, with its log and its exit code."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from tests.support.polling import LONGEST_S, eventually

START_S = 45.0


@dataclass(slots=True)
class ChildProcess:
    """A running process.

    Attributes:
        lines: what it wrote to standard error so far.
    """

    process: asyncio.subprocess.Process
    lines: list[str] = field(default_factory=list)

    @property
    def log(self) -> list[dict[str, Any]]:
        """Its log; every line must be one JSON object."""
        return [json.loads(line) for line in self.lines]

    def said(self, message: str) -> list[dict[str, Any]]:
        """The log's lines with that message."""
        return [entry for entry in self.log if entry["message"] == message]

    def terminate(self) -> None:
        """Ask it to stop, as Kubernetes does."""
        self.process.send_signal(signal.SIGTERM)

    async def address(self) -> str:
        """Where it listens, once it does."""
        async with asyncio.timeout(START_S):
            while not (listening := self.said("listening")):
                assert self.process.returncode is None, self.lines
                await asyncio.sleep(0.01)
        url = listening[0]["url"]
        assert isinstance(url, str)
        return url

    async def says(self, message: str) -> dict[str, Any]:
        """The first line of its log with that message."""
        await eventually(lambda: self.said(message))
        return self.said(message)[0]

    async def exit_code(self) -> int:
        """Its exit code; fails if it does not end."""
        async with asyncio.timeout(START_S):
            return await self.process.wait()


@asynccontextmanager
async def child_process(*arguments: str, **environment: str) -> AsyncIterator[ChildProcess]:
    """``python -m`` with ``arguments``, in an environment without settings of ours; killed if it outlives this."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RENDERGEN_")}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        *arguments,
        env=kept | environment,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    child = ChildProcess(process)

    async def read() -> None:
        assert process.stderr is not None
        async for line in process.stderr:
            child.lines.append(line.decode().rstrip("\n"))

    reading = asyncio.create_task(read())
    try:
        yield child
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        await asyncio.wait_for(reading, LONGEST_S)
