"""Derender streams through render_service: both ways at once, and ended by either side."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest

from rendergen.launcher import Stack
from rendergen.tiny_model import TINY_MODEL_NAME
from tests.e2e.calls import CHAT, GENERATE, chat, ok, post
from tests.e2e.derendered import context_of, derender_path, rendered
from tests.e2e.joined import chat_joined
from tests.e2e.polling import eventually
from tests.support.raw_caller import RawCaller, raw_caller

pytestmark = pytest.mark.plugin

MESSAGES, RESPONSES = "/v1/messages", "/v1/responses"
COUNT = {"role": "user", "content": "Count to 50"}
OF_MODEL = {"model": TINY_MODEL_NAME, "stream": True}

# A streamed request of each API, and what its answer says at its end.
REQUESTS: dict[str, tuple[dict[str, Any], str]] = {
    CHAT: ({**OF_MODEL, "messages": [COUNT]}, '"finish_reason":"stop"'),
    "/v1/completions": ({**OF_MODEL, "prompt": "Count"}, '"finish_reason":"stop"'),
    MESSAGES: ({**OF_MODEL, "max_tokens": 40, "messages": [COUNT]}, "event: message_stop"),
    RESPONSES: ({**OF_MODEL, "input": "Count to 50"}, "event: response.completed"),
}

LONGEST_S = 20.0

# States of a TCP connection, in /proc/net/tcp: open, and closed by the other side alone.
ESTABLISHED, CLOSE_WAIT = "01", "08"

DONE = b"data: [DONE]\n\n"
ERROR = {"message": "The engine died.", "type": "InternalServerError", "param": None, "code": 500}


def context(path: str, **members: Any) -> bytes:
    """A first line that needs no render."""
    return json.dumps({"request": {**REQUESTS[path][0], **members}, "prompt_token_ids": [5, 6, 7]}).encode() + b"\n"


def event(*token_ids: int, finish_reason: str | None = None) -> bytes:
    """One event of generate's."""
    choice = {"index": 0, "token_ids": list(token_ids), "finish_reason": finish_reason}
    return b"data: " + json.dumps({"request_id": "x", "choices": [choice]}).encode() + b"\n\n"


def url(stack: Stack, path: str) -> str:
    """The API's derender stream at the service's door."""
    return stack.render_service_urls[0] + derender_path(path)


class OpenBody:
    """A body that goes on when told to, and has no end unless told so."""

    def __init__(self, *pieces: bytes) -> None:
        self._pieces: asyncio.Queue[bytes | None] = asyncio.Queue()
        for piece in pieces:
            self.send(piece)

    def send(self, piece: bytes | None) -> None:
        self._pieces.put_nowait(piece)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (piece := await self._pieces.get()) is not None:
            yield piece


@pytest.mark.parametrize("path", REQUESTS)
async def test_events_are_answered_while_the_body_is_open(
    stack: Stack, client: aiohttp.ClientSession, path: str
) -> None:
    """Each of generate's before the next of them is sent; the answer ends when the body does."""
    body = OpenBody(context(path), event(16, 17))
    async with client.post(url(stack, path), data=body) as answer:
        assert answer.status == 200, await answer.text()
        whole = b""
        for _ in range(5):
            async with asyncio.timeout(LONGEST_S):
                whole += await answer.content.readany()
            body.send(event(16, 17))
        body.send(event(18, finish_reason="stop") + DONE)
        body.send(None)
        whole += await answer.read()
    assert REQUESTS[path][1] in whole.decode()


async def test_generate_straight_into_derender(stack: Stack, client: aiohttp.ClientSession) -> None:
    """Both through the services' doors: the stream is one server's."""
    request = {**chat("Count to 50", max_tokens=40), "stream": True, "stream_options": {"include_usage": True}}
    payload = await rendered(client, stack, CHAT, request)

    async def body() -> AsyncIterator[bytes]:
        yield context_of(payload, request)
        async with client.post(stack.generate_service_urls[0] + GENERATE, json=payload | {"stream": True}) as answer:
            async for piece in answer.content.iter_any():
                yield piece

    ours = await post(client, url(stack, CHAT), body())
    theirs = await post(client, stack.vllm_engine_urls[0] + CHAT, request)
    assert chat_joined(ours.text()) == chat_joined(theirs.text())


async def test_a_caller_that_leaves_ends_it_on_vllm(stack: Stack, client: aiohttp.ClientSession) -> None:
    """Its connection there is closed, whatever of the answer has come; and the server has nothing to say about it."""
    log = stack.process("vllm-render-0").log.path
    before = log.read_text().count("Traceback")
    begun = (context(CHAT)[:20], context(CHAT), context(CHAT) + event(16, 17), context(CHAT, stream=False) + event(16))
    async with asyncio.TaskGroup() as tasks:
        calls = [
            tasks.create_task(post(client, url(stack, CHAT), OpenBody(each).__aiter__())) for each in (*begun, *begun)
        ]
        await eventually(lambda: at_least(stack, len(calls)), "each has its connection to vLLM")
        for call in calls:
            call.cancel()
    await eventually(lambda: at_most(stack, 1), "only the service's probes have one")
    assert (await post(client, url(stack, CHAT), context(CHAT) + event(16, finish_reason="stop"))).status == 200
    assert log.read_text().count("Traceback") == before


REFUSED = {
    "another model": (context(CHAT, model="other") + event(16), 404, "NotFoundError"),
    "no context": (b"data: x\n\n", 400, "BadRequestError"),
    "generate's error": (
        context(CHAT) + b"data: " + json.dumps({"error": ERROR}).encode() + b"\n\n",
        502,
        "BadGatewayError",
    ),
    "generate refuses": (
        context(CHAT) + b"data: " + json.dumps({"error": {**ERROR, "code": 429}}).encode() + b"\n\n",
        429,
        "InternalServerError",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_an_error_before_the_bodys_end_reaches_the_caller(stack: Stack, case: str) -> None:
    """With its status, though the body is open and stays so; no connection to vLLM is held for it."""
    body, status, error_type = REFUSED[case]
    async with raw_caller(url(stack, CHAT)) as caller:
        await begin(caller, body)
        async with asyncio.timeout(LONGEST_S):
            answered, _, text = await caller.answer()
        assert (answered, json.loads(text)["error"]["type"]) == (status, error_type), text
        await eventually(lambda: at_most(stack, 1), "only the service's probes have a connection")


async def test_an_error_within_the_answer_ends_it(stack: Stack) -> None:
    """As the last event, though the body is open and stays so."""
    async with raw_caller(url(stack, CHAT)) as caller:
        await begin(caller, context(CHAT) + event(16, 17))
        async with asyncio.timeout(LONGEST_S):
            whole = await caller.reader.readuntil(b"data: ")
            await caller.send(chunk(b"data: " + json.dumps({"error": ERROR}).encode() + b"\n\n"))
            whole += await caller.reader.readuntil(b"\r\n0\r\n\r\n")
        await eventually(lambda: at_most(stack, 1), "only the service's probes have a connection")
    assert [whole.count(each) for each in (b'"error":', b"The engine died.", DONE)] == [1, 1, 1]
    assert whole.index(b'"error":') < whole.index(DONE)


@pytest.mark.parametrize("path", [MESSAGES, RESPONSES])
async def test_messages_and_responses_are_rendered(stack: Stack, client: aiohttp.ClientSession, path: str) -> None:
    """To what vLLM's own port gives, its own request id aside."""
    payloads = [
        await ok(client, f"{door}{path}/render", REQUESTS[path][0])
        for door in (stack.render_service_urls[0], stack.vllm_render_urls[0])
    ]
    assert payloads[0]["token_ids"]
    assert [payload | {"request_id": None} for payload in payloads[:1]] == [payloads[1] | {"request_id": None}]


async def begin(caller: RawCaller, body: bytes) -> None:
    """Send a request's head, and the beginning of its body."""
    head = f"POST {derender_path(CHAT)} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    await caller.send(head.encode() + chunk(body))


def chunk(data: bytes) -> bytes:
    """A chunk of a body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


async def at_least(stack: Stack, count: int) -> bool:
    return connections(stack) >= count


async def at_most(stack: Stack, count: int) -> bool:
    return connections(stack) <= count


def connections(stack: Stack) -> int:
    """How many connections the render server has open, by the kernel's table of them."""
    port = f":{urlsplit(stack.vllm_render_urls[0]).port:04X}"
    rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(row[1].endswith(port) and row[3] in (ESTABLISHED, CLOSE_WAIT) for row in rows)
