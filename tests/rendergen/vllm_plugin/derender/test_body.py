"""The body as it arrives: piece by piece, no more than is asked for, and never for ever."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rendergen.vllm_plugin.derender.body import RequestBody
from rendergen.vllm_plugin.derender.failures import CallerLeft, TooSilent
from rendergen.vllm_plugin.derender.patience import Patience
from rendergen.vllm_plugin.errors import BadPayload, TooLarge

SHORT_S = 0.02
LEFT = {"type": "http.disconnect"}


class Caller:
    """Sends a body, and counts how often it was asked to go on."""

    def __init__(self, *pieces: bytes, left: bool = False, silent: bool = False) -> None:
        self._messages: list[dict[str, Any]] = [
            {"type": "http.request", "body": piece, "more_body": True} for piece in pieces
        ]
        if left:
            self._messages.append(LEFT)
        elif not silent:
            self._messages.append({"type": "http.request", "body": b"", "more_body": False})
        self.asked = 0
        self.waits = 0

    async def receive(self) -> dict[str, Any]:
        self.asked += 1
        if not self._messages:
            await asyncio.Event().wait()
        return self._messages.pop(0)

    async def before_wait(self) -> None:
        self.waits += 1


async def test_pieces_come_as_they_are_asked_for() -> None:
    caller = Caller(b"ab", b"", b"c")
    async with Patience(10) as patience:
        body = RequestBody(caller.receive, patience, caller.before_wait)
        assert await body.chunk() == b"ab"
        assert (caller.asked, caller.waits) == (1, 1)
        assert [await body.chunk(), await body.chunk(), await body.chunk()] == [b"c", b"", b""]
        assert caller.asked == 4


@pytest.mark.parametrize(
    "pieces", [(b"one\ntwo\n",), (b"o", b"ne", b"\n", b"two\n"), (b"one\n", b"two\n"), (b"on", b"e\ntwo\n")]
)
async def test_a_line_and_what_follows(pieces: tuple[bytes, ...]) -> None:
    caller = Caller(*pieces)
    async with Patience(10) as patience:
        body = RequestBody(caller.receive, patience, caller.before_wait)
        assert await body.line(3) == b"one"
        assert await body.rest(8, await body.chunk()) == b"two\n"


async def test_limits() -> None:
    async with Patience(10) as patience:
        for pieces in ((b"four\n",), (b"f", b"our\n"), (b"x" * 9,)):
            caller = Caller(*pieces)
            with pytest.raises(TooLarge, match="limit of 3 bytes"):
                await RequestBody(caller.receive, patience, caller.before_wait).line(3)
        caller = Caller(b"abc", b"def")
        with pytest.raises(TooLarge, match="limit of 6 bytes"):
            await RequestBody(caller.receive, patience, caller.before_wait).rest(6, b"x")


async def test_a_body_that_ends_within_its_first_line() -> None:
    caller = Caller(b"half a li")
    async with Patience(10) as patience:
        with pytest.raises(BadPayload, match="first line"):
            await RequestBody(caller.receive, patience, caller.before_wait).line(100)


async def test_a_caller_that_leaves() -> None:
    caller = Caller(b"a", left=True)
    async with Patience(10) as patience:
        body = RequestBody(caller.receive, patience, caller.before_wait)
        await body.chunk()
        with pytest.raises(CallerLeft):
            await body.chunk()


async def test_a_caller_that_is_silent() -> None:
    caller = Caller(b"a", silent=True)
    async with Patience(SHORT_S) as patience:
        body = RequestBody(caller.receive, patience, caller.before_wait)
        await body.chunk()
        for _ in range(2):  # the task is well after the first
            with pytest.raises(TooSilent, match=r"0\.02 s"):
                await body.chunk()


@pytest.mark.parametrize("caller", [Caller(b"a", silent=True), Caller(b"a", left=True), Caller(b"a", b"b")])
async def test_draining_ends(caller: Caller) -> None:
    """With the body, the caller or the time."""
    async with Patience(10) as patience:
        await RequestBody(caller.receive, patience, caller.before_wait).drain(SHORT_S)


async def test_patience_is_for_single_waits() -> None:
    """Many short ones may take longer together."""
    async with Patience(5 * SHORT_S) as patience:
        for _ in range(8):
            await patience.wait(asyncio.sleep(SHORT_S))
        with pytest.raises(TimeoutError):
            await patience.wait(asyncio.sleep(60))


async def test_patience_is_no_reason_for_other_cancellations() -> None:
    async def waits() -> None:
        async with Patience(10) as patience:
            await patience.wait(asyncio.sleep(60))

    task = asyncio.create_task(waits())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
