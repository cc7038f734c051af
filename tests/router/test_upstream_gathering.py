"""Generate's events while derender is busy."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from rendergen.service.errors import PodFailed
from router.upstream_gathering import MAX_HELD_BYTES, MAX_TOGETHER_BYTES, Delta, gathering
from tests.support.polling import soon


def event(index: int, *tokens: int, **members: Any) -> bytes:
    return json.dumps({"choices": [{"index": index, "token_ids": list(tokens), **members}]}).encode()


async def all_of(*events: bytes) -> AsyncIterator[bytes]:
    for each in events:
        yield each


async def taken(events: AsyncIterator[bytes]) -> list[Delta]:
    """The deltas, the first taken when all events have come that are read ahead."""
    deltas = []
    async with gathering(events) as gathered:
        for _ in range(1000):
            await asyncio.sleep(0)
        while (delta := await soon(gathered.take())) is not None:
            deltas.append(delta)
    return deltas


async def test_what_waits_of_a_choice_is_taken_together() -> None:
    """Tokens and log probabilities joined, the reasons of the last; the choice that has waited longest first."""
    deltas = await taken(
        all_of(
            event(0, 1, logprobs={"content": [{"token_id": 1}]}),
            event(1, 9),
            event(0, 2, 3, logprobs={"content": [{"token_id": 2}, {"token_id": 3}]}),
            event(0, 4, finish_reason="stop", stop_reason="E", logprobs={"content": [{"token_id": 4}]}),
        )
    )
    logprobs = [{"token_id": token} for token in (1, 2, 3, 4)]
    assert deltas == [Delta(0, [1, 2, 3, 4], logprobs, "stop", "E"), Delta(1, [9], None, None, None)]


async def test_each_is_taken_alone_where_none_waits() -> None:
    """As it comes."""
    come: asyncio.Queue[bytes] = asyncio.Queue()

    async def events() -> AsyncIterator[bytes]:
        while data := await come.get():
            yield data

    async with gathering(events()) as gathered:
        for token in (1, 2, 3):
            come.put_nowait(event(0, token))
            delta = await soon(gathered.take())
            assert delta is not None
            assert delta.token_ids == [token]
        come.put_nowait(b"")
        assert await soon(gathered.take()) is None


async def test_no_more_goes_together_than_the_limit() -> None:
    """What is over it comes next, after other choices' turn."""
    size = len(event(0, 1, pad="x" * 30_000))
    deltas = await taken(all_of(*(event(0, token, pad="x" * 30_000) for token in range(5)), event(1, 9)))
    assert 2 * size <= MAX_TOGETHER_BYTES < 3 * size
    assert [(delta.index, delta.token_ids) for delta in deltas] == [(0, [0, 1]), (1, [9]), (0, [2, 3]), (0, [4])]


async def test_no_more_is_read_ahead_than_the_limit() -> None:
    """Generate has to wait for derender then."""
    read = 0

    async def events() -> AsyncIterator[bytes]:
        nonlocal read
        for token in range(100):
            read += 1
            yield event(0, token, pad="x" * 60_000)

    async with gathering(events()) as gathered:
        for _ in range(1000):
            await asyncio.sleep(0)
        ahead = read
        assert MAX_HELD_BYTES < ahead * 60_100 < MAX_HELD_BYTES + 120_000
        for _ in range(100):
            assert await soon(gathered.take()) is not None
        assert await soon(gathered.take()) is None
    assert read == 100


async def test_the_last_usage_is_kept() -> None:
    """It comes with no choice."""
    last = b'{"choices":[],"usage":{"prompt_tokens":3},"metrics":{"x":1}}'
    async with gathering(all_of(event(0, 1), last, b'{"choices":[]}')) as gathered:
        await soon(gathered.take())
        assert await soon(gathered.take()) is None
        assert (gathered.usage, gathered.metrics) == ({"prompt_tokens": 3}, {"x": 1})


@pytest.mark.parametrize(
    "data", [b"x", b"[]", b"{}", b'{"choices":[{}]}', b'{"choices":[{"index":0,"token_ids":5}]}', b'{"choices":[5]}']
)
async def test_what_is_no_event_is_the_pods_failure(data: bytes) -> None:
    """Told when what came before it has been taken."""
    async with gathering(all_of(event(0, 1), data)) as gathered:
        assert await soon(gathered.take()) is not None
        with pytest.raises(PodFailed):
            await soon(gathered.take())


async def test_what_reading_raises_is_raised_after_what_was_read() -> None:
    """Whatever it is."""

    async def events() -> AsyncIterator[bytes]:
        yield event(0, 1)
        raise PodFailed("gone")

    async with gathering(events()) as gathered:
        for _ in range(10):
            await asyncio.sleep(0)
        assert await soon(gathered.take()) is not None
        with pytest.raises(PodFailed, match="gone"):
            await soon(gathered.take())


async def test_reading_ends_with_the_caller() -> None:
    """Whoever leaves is not waited for by generate's stream."""
    closed = asyncio.Event()

    async def events() -> AsyncIterator[bytes]:
        try:
            yield event(0, 1)
            await asyncio.Event().wait()
        finally:
            closed.set()

    async with gathering(events()) as gathered:
        await soon(gathered.take())
    assert closed.is_set()
