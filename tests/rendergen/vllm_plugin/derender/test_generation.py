"""Generate's stream is read as an event stream, whatever its line ends and cuts, and within its limits."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from vllm.exceptions import GenerationError
from vllm.sampling_params import RequestOutputKind, SamplingParams

from rendergen.vllm_plugin.derender.body import RequestBody
from rendergen.vllm_plugin.derender.context import Context
from rendergen.vllm_plugin.derender.failures import BrokenGeneration
from rendergen.vllm_plugin.derender.generation import Generation
from rendergen.vllm_plugin.derender.limits import DerenderLimits
from rendergen.vllm_plugin.derender.patience import Patience
from rendergen.vllm_plugin.errors import TooLarge

FIRST = b'data: {"choices":[{"index":0,"token_ids":[5]}]}\n\n'
LAST = b'data: {"choices":[{"index":0,"token_ids":[6],"finish_reason":"stop"}]}\n\n'
DONE = b"data: [DONE]\n\n"
COMMENT = b": keep-alive\n\n"
UNFINISHED = "before choice 0 had finished"


async def token_ids(*pieces: bytes, limits: DerenderLimits | None = None) -> list[int]:
    """The tokens of one choice, read from a body in these pieces. Raises what ended it."""
    messages: list[dict[str, Any]] = [{"type": "http.request", "body": piece, "more_body": True} for piece in pieces]
    messages.append({"type": "http.request"})

    async def receive() -> dict[str, Any]:
        return messages.pop(0)

    async def nothing() -> None:
        pass

    params = SamplingParams(output_kind=RequestOutputKind.DELTA, detokenize=False)
    async with asyncio.timeout(10), Patience(10) as patience:
        body = RequestBody(receive, patience, nothing)
        generation = Generation(body, Context(request={}, prompt_token_ids=[1]), None, 100, limits or DerenderLimits())
        try:
            return [token async for each in generation.outputs(params) for token in each.outputs[0].token_ids]
        except GenerationError as error:
            assert generation.failure is not None
            raise generation.failure from error


STREAMS = {
    "as vLLM writes it": FIRST + LAST + DONE,
    "with comments and names": COMMENT + b"event: x\n" + FIRST + COMMENT + LAST + b": a\n" + DONE,
    "with CRLF": (FIRST + COMMENT + LAST + DONE).replace(b"\n", b"\r\n"),
    "with CR": (FIRST + LAST + DONE).replace(b"\n", b"\r"),
    "with what follows its end": FIRST + LAST + DONE + FIRST + b"data: {\n\n",
    "without its end": FIRST + LAST,
    "in several lines": FIRST + b'data: {"choices":[{"index":0,\ndata: "token_ids":[6],"finish_reason":"stop"}]}\n\n',
}


@pytest.mark.parametrize("name", STREAMS)
async def test_a_stream(name: str) -> None:
    """At once, and byte by byte."""
    stream = STREAMS[name]
    assert await token_ids(stream) == [5, 6]
    assert await token_ids(*(stream[i : i + 1] for i in range(len(stream)))) == [5, 6]


@pytest.mark.parametrize("pieces", [(FIRST,), (FIRST, DONE, LAST), (FIRST, LAST[:-1]), (COMMENT, DONE)])
async def test_a_stream_that_ends_before_its_end(pieces: tuple[bytes, ...]) -> None:
    """What has no empty line after it is no event."""
    with pytest.raises(BrokenGeneration, match=UNFINISHED):
        await token_ids(*pieces)


async def test_an_event_over_the_limit() -> None:
    """413, with what to do about it; one byte less is not too many."""
    limit = len(LAST)
    assert await token_ids(FIRST, LAST, limits=DerenderLimits(event_bytes=limit)) == [5, 6]
    with pytest.raises(TooLarge, match=f"limit of {limit - 1} bytes; ask for fewer log probabilities"):
        await token_ids(FIRST, LAST, limits=DerenderLimits(event_bytes=limit - 1))


async def test_events_over_the_limit() -> None:
    """Comments do not count."""
    stream = (COMMENT, FIRST, COMMENT, LAST, COMMENT)
    assert await token_ids(*stream, limits=DerenderLimits(events=2)) == [5, 6]
    with pytest.raises(BrokenGeneration, match="more than 1 events"):
        await token_ids(*stream, limits=DerenderLimits(events=1))
