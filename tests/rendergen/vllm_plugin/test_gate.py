"""Who renders, who waits, and who is refused."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from rendergen.vllm_plugin.errors import QueueFull, TooLate
from rendergen.vllm_plugin.gate import NOT_RENDERED, WAITING, RenderGate


def dropped(reason: str) -> float:
    return NOT_RENDERED.labels(reason)._value.get()


def soon(seconds: float = 0.01) -> float:
    """A moment of the event loop's clock."""
    return asyncio.get_running_loop().time() + seconds


async def settle() -> None:
    """Let every task that can go on do so."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_so_many_render_at_once_and_the_next_waits() -> None:
    """It goes on when one of them is done."""
    gate = RenderGate(2, 8)
    begun = asyncio.Event()

    async def third() -> None:
        async with gate.turn(None):
            begun.set()

    async with gate.turn(None):
        async with gate.turn(None):
            waiting = asyncio.create_task(third())
            await settle()
            assert not begun.is_set()
            assert WAITING._value.get() == 1
        await asyncio.wait_for(begun.wait(), 5)
        await waiting
    assert WAITING._value.get() == 0


async def test_beyond_those_that_may_wait_it_is_429() -> None:
    """With a Retry-After; whoever waits already keeps its place."""
    gate = RenderGate(1, 1)
    before = dropped("queue_full")
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(gate.turn(None))
        waiting = asyncio.create_task(stack.enter_async_context(gate.turn(None)))
        await settle()
        with pytest.raises(QueueFull) as caught:
            async with gate.turn(None):
                pytest.fail("it was let in")
        assert caught.value.retry_after_s == 1
        assert dropped("queue_full") == before + 1
        waiting.cancel()


async def test_a_queue_of_none() -> None:
    """`max_queued_renders` 0: no one waits, and one may still render."""
    gate = RenderGate(1, 0)
    async with gate.turn(None):
        with pytest.raises(QueueFull):
            async with gate.turn(None):
                pytest.fail("it was let in")
    async with gate.turn(None):
        pass


async def test_a_deadline_that_passes_in_the_queue() -> None:
    """504, and the place is free again."""
    gate = RenderGate(1, 1)
    before = dropped("deadline")
    async with gate.turn(None):
        with pytest.raises(TooLate):
            async with gate.turn(soon()):
                pytest.fail("it was let in")
        assert dropped("deadline") == before + 1
        assert WAITING._value.get() == 0
    async with gate.turn(soon(5)):
        pass


async def test_a_deadline_of_nothing_is_not_rendered() -> None:
    """Not even where a turn is free: nobody waits for it any more."""
    gate = RenderGate(1, 1)
    with pytest.raises(TooLate):
        async with gate.turn(soon(0)):
            pytest.fail("it was let in")


async def test_a_caller_who_leaves_the_queue() -> None:
    """Is never rendered, and takes no one's turn."""
    gate = RenderGate(1, 1)
    rendered = False

    async def leaves() -> None:
        nonlocal rendered
        async with gate.turn(None):
            rendered = True

    async with gate.turn(None):
        leaving = asyncio.create_task(leaves())
        await settle()
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
    assert not rendered
    assert WAITING._value.get() == 0
    async with asyncio.timeout(5), gate.turn(None):
        pass


async def test_a_deadline_that_passes_while_it_renders() -> None:
    """The work is cancelled where it can be, and the place is free again."""
    gate = RenderGate(1, 0)
    with pytest.raises(TooLate):
        async with gate.turn(soon()):
            await asyncio.Event().wait()
    async with asyncio.timeout(5), gate.turn(None):
        pass


async def test_a_render_that_fails_gives_its_turn_back() -> None:
    """Whatever it failed with."""
    gate = RenderGate(1, 0)
    with pytest.raises(RuntimeError, match="no"):
        async with gate.turn(None):
            raise RuntimeError("no")
    async with asyncio.timeout(5), gate.turn(None):
        pass


async def test_a_timeout_of_the_work_itself_is_no_deadline() -> None:
    """It stays what it is, whether there is a deadline or not."""
    gate = RenderGate(1, 0)
    for deadline in (None, soon(60)):
        with pytest.raises(TimeoutError, match="of its own"):
            async with gate.turn(deadline):
                raise TimeoutError("of its own")
