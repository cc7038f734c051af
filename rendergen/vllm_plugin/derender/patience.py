"""How long a stream waits for its caller."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from types import TracebackType
from typing import Self, TypeVar

_T = TypeVar("_T")


class Patience:
    """Limits each of many short waits of one task, by one timer for all of them.

    (`asyncio.timeout` makes one for each, which costs as much as the rest of what is done for a token in here.)
    To be entered by the task that waits.
    """

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self._since: float | None = None  # when the wait that is under way began
        self._expired = False

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._timer = self._loop.call_later(self.limit_s, self._look)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()

    async def wait(self, awaited: Awaitable[_T]) -> _T:
        """Wait for it. Raises TimeoutError when it takes too long; it has then been cancelled."""
        self._since = self._loop.time()
        try:
            return await awaited
        except asyncio.CancelledError:
            if not self._expired:
                raise
            self._expired = False
            self._task.uncancel()
            raise TimeoutError from None
        finally:
            self._since = None

    def _look(self) -> None:
        left_s = self.limit_s
        if self._since is not None:
            left_s = self._since + self.limit_s - self._loop.time()
            if left_s <= 0:
                self._expired = True
                self._task.cancel()
                left_s = self.limit_s
        self._timer = self._loop.call_later(left_s, self._look)
