"""Waiting for what another task or process does, no longer than is reasonable."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import TypeVar

T = TypeVar("T")

LONGEST_S = 20.0
_PAUSE_S = 0.005


async def eventually(condition: Callable[[], object]) -> None:
    """Return once ``condition()`` is true, or what it awaits is; fail if it does not become so."""
    async with asyncio.timeout(LONGEST_S):
        while not await _value_of(condition()):  # noqa: ASYNC110 - it may be in another process, which sets no event
            await asyncio.sleep(_PAUSE_S)


async def _value_of(found: object) -> object:
    return await found if isawaitable(found) else found


async def stays(value: Callable[[], int], polls: int = 40) -> int:
    """The value once it has not changed for ``polls`` looks: when something is as full, or as far, as it gets."""
    async with asyncio.timeout(LONGEST_S):
        last, same = value(), 0
        while same < polls:
            await asyncio.sleep(_PAUSE_S)
            now = value()
            last, same = now, (same + 1 if now == last else 0)
        return last


async def soon(awaitable: Awaitable[T]) -> T:
    """What ``awaitable`` gives; fail if it does not come."""
    return await asyncio.wait_for(awaitable, LONGEST_S)
