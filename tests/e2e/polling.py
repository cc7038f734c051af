"""Waiting for what a process does, no longer than is reasonable."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

LONGEST_S = 20.0
PAUSE_S = 0.02


async def eventually(condition: Callable[[], Awaitable[object]], what: str, within_s: float = LONGEST_S) -> None:
    """Return once ``await condition()`` is true; fail, naming ``what``, if it is not so within ``within_s``.

    Looks are counted rather than seconds: while a busy machine gives this process no CPU, no time goes by.
    """
    for _ in range(round(within_s / PAUSE_S)):
        if await condition():
            return
        await asyncio.sleep(PAUSE_S)
    raise AssertionError(f"not within {within_s:g} s: {what}")
