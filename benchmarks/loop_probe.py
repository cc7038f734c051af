"""How long a vLLM server's event loop stands still: an ASGI middleware that bare vLLM can be started with as well.

    --middleware benchmarks.loop_probe.LoopProbe        then: GET /benchmarks/stalls

A tick is due every few milliseconds. One that comes late is a stall if this process was computing meanwhile: on its
loop, or in a thread that held the interpreter. If it was not, the machine had given its cores to others.
"""

from __future__ import annotations

import asyncio
import json
import time
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
            wall, cpu = time.monotonic(), time.process_time()
            await asyncio.sleep(TICK_S)
            late = time.monotonic() - wall - TICK_S
            if late >= STALL_S and time.process_time() - cpu >= STALL_S:
                self._stalls.append(1000 * late)
