"""Tests that race against the engine, on machines that stand still now and then.

The engine keeps every core busy, and on a virtual machine of two cores a process that has to share one with it may get
no CPU for seconds: for as long, at worst, as the engine computes. A test that wants something stopped *before the
engine is done* can then fail though nothing is wrong.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from rendergen.launcher import Stack

# A process that should answer at once and takes this long was given no CPU.
STALL_S = 0.5
PAUSE_S = 0.05
ATTEMPTS = 5


def again_if_the_machine_stalls(test: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    """Give ``test`` another attempt if it fails *and* this process, or one of the stack's, stood still meanwhile.

    A failure while all of them ran counts at once, and so does that of the last attempt.
    """

    @functools.wraps(test)
    async def attempts(stack: Stack, client: aiohttp.ClientSession, **parameters: Any) -> None:
        for _ in range(ATTEMPTS - 1):
            async with _stalls(stack, client) as stalls:
                try:
                    return await test(stack=stack, client=client, **parameters)
                except AssertionError:
                    await asyncio.sleep(STALL_S)  # for what is standing still to be seen by its watcher
                    if not stalls:
                        raise
        await test(stack=stack, client=client, **parameters)

    return attempts


@asynccontextmanager
async def _stalls(stack: Stack, client: aiohttp.ClientSession) -> AsyncIterator[list[str]]:
    """A list to which each process is added, by name, that takes `STALL_S` or longer to answer us."""
    stalls: list[str] = []
    watchers = [
        asyncio.create_task(
            _watch(client, process.spec.url + "/health", functools.partial(stalls.append, process.spec.name))
        )
        for process in stack.processes
    ]
    try:
        yield stalls
    finally:
        for watcher in watchers:
            watcher.cancel()
        results = await asyncio.gather(*watchers, return_exceptions=True)
    assert all(isinstance(result, asyncio.CancelledError) for result in results), results


async def _watch(client: aiohttp.ClientSession, url: str, stalled: Callable[[], None]) -> None:
    """Ask again and again, and tell of each turn that takes too long: the process's fault, or this one's."""
    while True:
        started = time.monotonic()
        asking = asyncio.create_task(_answers(client, url))
        try:
            await asyncio.wait([asking], timeout=STALL_S)
            if not asking.done():
                stalled()
            await asking
        finally:
            asking.cancel()
        await asyncio.sleep(PAUSE_S)
        if time.monotonic() - started >= STALL_S:
            stalled()


async def _answers(client: aiohttp.ClientSession, url: str) -> None:
    async with client.get(url) as answer:
        await answer.read()
