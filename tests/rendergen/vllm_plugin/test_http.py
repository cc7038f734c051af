"""Bodies, answers and leaving callers, by literal ASGI messages."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from fastapi import Request
from starlette.requests import ClientDisconnect

from rendergen.vllm_plugin.errors import BadPayload, QueueFull, TooLarge
from rendergen.vllm_plugin.http import PiecesResponse, media_type, prefers, read_body, refusal, unless_gone


def request(*chunks: bytes, length: int | None = None, leaves: asyncio.Event | None = None) -> Request:
    """A POST whose body comes in ``chunks``; its caller leaves when told."""
    messages = [{"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks]
    messages.append({"type": "http.request", "body": b"", "more_body": False})

    async def receive() -> dict[str, Any]:
        if messages:
            return messages.pop(0)
        await (leaves or asyncio.Event()).wait()
        return {"type": "http.disconnect"}

    headers = [] if length is None else [(b"content-length", str(length).encode())]
    return Request({"type": "http", "method": "POST", "path": "/", "headers": headers}, receive)


@pytest.mark.parametrize("length", [None, 6], ids=["of unknown length", "of known length"])
async def test_a_body_in_chunks(length: int | None) -> None:
    """Put together in one buffer that can be written to, as torch wants it."""
    body = await read_body(request(b"ab", b"", b"cdef", length=length), limit=6)
    assert body == b"abcdef"
    assert not body.readonly


async def test_no_body() -> None:
    """Is an empty one."""
    assert await read_body(request(), limit=6) == b""


@pytest.mark.parametrize("length", [None, 7], ids=["which does not say so", "which says so"])
async def test_a_body_over_the_limit(length: int | None) -> None:
    """One byte is enough; the message names the limit."""
    with pytest.raises(TooLarge, match=r"\b6\b"):
        await read_body(request(b"abcd", b"efg", length=length), limit=6)


async def test_a_body_that_says_it_is_longer_than_memory() -> None:
    """Is refused by what it says, before any buffer is made for it."""
    with pytest.raises(TooLarge):
        await read_body(request(b"a", length=10**18), limit=6)


async def test_a_body_shorter_than_it_said() -> None:
    """Is not filled up with zeros."""
    with pytest.raises(BadPayload, match="2 of 5"):
        await read_body(request(b"ab", length=5), limit=6)


async def sent(response: PiecesResponse) -> list[Any]:
    messages: list[Any] = []

    async def send(message: Any) -> None:
        messages.append(message)

    async def receive() -> Any:
        raise AssertionError("nothing is to be received")

    await response({"type": "http"}, receive, send)
    return messages


async def test_an_answer_in_pieces() -> None:
    """Each is sent as the very object that was given, under the length of them all."""
    pieces: Sequence[bytes | memoryview] = [b"head", memoryview(b"tensor"), b"tail"]
    start, *bodies = await sent(PiecesResponse(pieces, "application/x-test"))
    assert dict(start["headers"])[b"content-length"] == b"14"
    assert dict(start["headers"])[b"content-type"] == b"application/x-test"
    assert all(message["body"] is piece for message, piece in zip(bodies, pieces, strict=False))
    assert [message["more_body"] for message in bodies] == [True, True, True, False]


def test_a_media_type() -> None:
    """Small letters, no parameters."""
    assert media_type("Application/JSON; charset=utf-8") == "application/json"
    assert media_type(None) == ""


ACCEPTS = {
    "nothing": (None, False),
    "anything": ("*/*", False),
    "it alone": ("a/x", True),
    "it, with parameters": ("A/X;version=1", True),
    "both": ("application/json, a/x", True),
    "it less": ("application/json;q=1, a/x;q=0.1", False),
    "it more": ("application/json;q=0.5,a/x ; q=0.6", True),
    "not it": ("a/x;q=0", False),
    "a weight that is none": ("a/x;q=high", False),
    "another version": ("a/x2", False),
}


@pytest.mark.parametrize(("header", "wanted"), ACCEPTS.values(), ids=ACCEPTS)
def test_what_a_caller_accepts(header: str | None, wanted: bool) -> None:
    """Frames are for those alone who name them."""
    assert prefers(header, "a/x", "application/json") is wanted


async def test_a_compressed_body() -> None:
    """Is refused by name, whatever it holds."""
    asked = request(b"x")
    asked.scope["headers"].append((b"content-encoding", b"gzip"))
    with pytest.raises(BadPayload, match="gzip"):
        await read_body(asked, limit=6)


def test_a_refusal_is_openais_error() -> None:
    """With the status as its code, and Retry-After where it is known."""
    answer = refusal(QueueFull("Later.", retry_after_s=3))
    assert answer.status_code == 429
    assert answer.headers["retry-after"] == "3"
    assert bytes(answer.body) == b'{"error":{"message":"Later.","type":"RateLimitError","param":null,"code":429}}'
    assert "retry-after" not in refusal(BadPayload("No.")).headers


async def test_work_that_ends_while_the_caller_waits() -> None:
    """Its result, or its error, is given on."""

    async def works(fails: bool) -> int:
        if fails:
            raise ValueError("no")
        return 7

    asked = request()
    await read_body(asked, limit=6)
    assert await unless_gone(asked, works(False)) == 7
    with pytest.raises(ValueError, match="no"):
        await unless_gone(asked, works(True))


async def test_a_caller_that_leaves_ends_the_work() -> None:
    """The work is cancelled where it is."""
    leaves = asyncio.Event()
    ended: list[str] = []

    async def works() -> None:
        leaves.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    asked = request(leaves=leaves)
    await read_body(asked, limit=6)
    with pytest.raises(ClientDisconnect):
        await unless_gone(asked, works())
    await asyncio.sleep(0)
    assert ended == ["cancelled"]


async def test_cancelling_the_handler_ends_the_work_too() -> None:
    """As when the server stops."""
    begun, ended = asyncio.Event(), asyncio.Event()

    async def works() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    asked = request()
    await read_body(asked, limit=6)
    handler = asyncio.create_task(unless_gone(asked, works()))
    await begun.wait()
    handler.cancel()
    with pytest.raises(asyncio.CancelledError):
        await handler
    await asyncio.wait_for(ended.wait(), 5)
