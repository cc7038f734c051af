"""How many requests are rendered at a time, and how many may wait."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from prometheus_client import Counter, Gauge, Histogram

from rendergen.vllm_plugin.errors import QueueFull, TooLate

_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)

QUEUE_SECONDS = Histogram(
    "rendergen_render_queue_seconds", "Time a render request waited for its turn.", buckets=_BUCKETS
)
RENDER_SECONDS = Histogram("rendergen_render_seconds", "Time a render took once it had begun.", buckets=_BUCKETS)
WAITING = Gauge("rendergen_renders_waiting", "Render requests that wait for their turn.", multiprocess_mode="livesum")
NOT_RENDERED = Counter("rendergen_renders_dropped", "Render requests that were not rendered, by reason.", ["reason"])


class RenderGate:
    """Lets ``at_once`` requests render and ``waiting`` more wait; the rest are refused.

    A request whose caller leaves, or whose deadline passes, while it waits is never rendered.
    """

    def __init__(self, at_once: int, waiting: int) -> None:
        self._free = asyncio.Semaphore(at_once)
        self._at_once = at_once
        self._most_waiting = waiting
        self._waiting = 0

    def require_room(self) -> None:
        """Raises QueueFull if as many wait as may: to be asked before a body is read for nothing."""
        if self._free.locked() and self._waiting >= self._most_waiting:
            NOT_RENDERED.labels("queue_full").inc()
            raise QueueFull(
                f"This server renders {self._at_once} requests and {self._waiting} wait. Try again shortly.",
                retry_after_s=1,
            )

    @asynccontextmanager
    async def turn(self, deadline: float | None) -> AsyncIterator[None]:
        """Wait for a turn, and keep it for the length of the block, which must be over before the deadline too.

        Args:
            deadline: by the event loop's clock, until when the caller waits; None: for ever.

        Raises:
            QueueFull: as many wait as may.
            TooLate: the deadline passed.
        """
        self.require_room()
        try:
            async with asyncio.timeout_at(deadline) as timer:
                await asyncio.sleep(0)  # a deadline that has passed is noticed here, though a turn be free
                async with self._turn():
                    yield
        except TimeoutError as error:
            if not timer.expired():  # it is the block's own
                raise
            NOT_RENDERED.labels("deadline").inc()
            raise TooLate("The request's deadline passed before it was rendered.") from error

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        started = time.monotonic()
        await self._wait()
        begun = time.monotonic()
        QUEUE_SECONDS.observe(begun - started)
        try:
            yield
        finally:
            self._free.release()
            RENDER_SECONDS.observe(time.monotonic() - begun)

    async def _wait(self) -> None:
        self._waiting += 1
        WAITING.inc()
        try:
            await self._free.acquire()
        finally:
            self._waiting -= 1
            WAITING.dec()
