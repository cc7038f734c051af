"""How long a vLLM server's event loop stands still: an ASGI middleware that bare vLLM can be started with as well.

    --middleware benchmarks.loop_probe.LoopProbe        then: GET /benchmarks/stalls

A tick is due every few milliseconds. What it is late by was a stall of the process's own, by work on the loop or by a
thread that held the interpreter, as far as the process was computing meanwhile and the loop's thread was not in line
for a core: the rest is the machine's.
"""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

PATH = "/benchmarks/stalls"
TICK_S = 0.005
STALL_S = 0.020


class LoopProbe:
    """The middleware. It begins to watch when it is first asked: its ticks cost CPU time too."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._watching: asyncio.Task[None] | None = None
        self._stalls: list[float] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["path"] != PATH:
            await self._app(scope, receive, send)
            return
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch())
        stalls, self._stalls = self._stalls, []
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": json.dumps(stalls).encode()})

    async def _watch(self) -> None:
        while True:
            due, in_line, computed = time.monotonic() + TICK_S, _in_line_s(), time.process_time()
            await asyncio.sleep(TICK_S)
            late = time.monotonic() - due - (_in_line_s() - in_line)
            stall = min(late, time.process_time() - computed)
            if stall >= STALL_S:
                self._stalls.append(1000 * stall)


def _in_line_s() -> float:
    """Time that this thread was ready to run and had no core, since its start: the second number of its schedstat."""
    return int(Path("/proc/thread-self/schedstat").read_bytes().split()[1]) / 1e9
