"""How a derender stream goes on and ends: live, with an error, cut short, or left by its caller."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest

from rendergen.launcher import Stack
from rendergen.tiny_model import TINY_MODEL_NAME
from tests.e2e.calls import CHAT, GENERATE, Reply, chat, ok, post
from tests.e2e.derendered import blanked, context_of, derender, derender_path, generated, rendered
from tests.e2e.joined import chat_joined, events_of, without_own

pytestmark = pytest.mark.plugin

COUNT = chat("Count to 50", max_tokens=40)
STREAMED = {**COUNT, "stream": True, "stream_options": {"include_usage": True}}
ERROR = {"message": "The engine died.", "type": "InternalServerError", "param": None, "code": 500}

PROMPT = [5, 6, 7]


def context(request: dict[str, Any] = STREAMED, **members: Any) -> bytes:
    """A first line that needs no render server."""
    return json.dumps({"request": blanked(request), "prompt_token_ids": PROMPT, **members}).encode() + b"\n"


def event(*token_ids: int, index: int = 0, finish_reason: str | None = None, **members: Any) -> bytes:
    """One event of generate's."""
    choice = {"index": index, "token_ids": list(token_ids), "finish_reason": finish_reason, **members}
    return b"data: " + json.dumps({"request_id": "x", "choices": [choice]}).encode() + b"\n\n"


def error_event(**members: Any) -> bytes:
    """Generate's word for a failure, after which it ends its stream as always."""
    return b"data: " + json.dumps({"error": {**ERROR, **members}}).encode() + b"\n\n" + DONE


DONE = b"data: [DONE]\n\n"
SOME = event(16, 17) + event(18)
ALL = SOME + event(19, finish_reason="length") + DONE


async def test_events_are_answered_as_they_come(stack: Stack, client: aiohttp.ClientSession) -> None:
    """Each before the next is sent: nothing waits for the body's end."""
    answered: asyncio.Queue[bytes] = asyncio.Queue()

    async def body() -> AsyncIterator[bytes]:
        yield context()
        for _ in range(5):
            yield event(16, 17)
            async with asyncio.timeout(10):
                await answered.get()
        yield event(18, finish_reason="length") + DONE

    async with client.post(stack.vllm_render_urls[0] + derender_path(CHAT), data=body()) as answer:
        whole = b""
        async for piece in answer.content.iter_any():
            whole += piece
            answered.put_nowait(piece)
    assert chat_joined(whole.decode())["choices"][0]["finish_reason"] == "length"


async def test_generate_straight_into_derender(stack: Stack, client: aiohttp.ClientSession) -> None:
    """Its stream as it comes, with no end of its own to wait for."""
    payload = await rendered(client, stack, CHAT, STREAMED)

    async def body() -> AsyncIterator[bytes]:
        yield context_of(payload, STREAMED)
        async with client.post(stack.vllm_engine_urls[0] + GENERATE, json=payload) as answer:
            async for piece in answer.content.iter_any():
                yield piece

    ours = await post(client, stack.vllm_render_urls[0] + derender_path(CHAT), body())
    theirs = await post(client, stack.vllm_engine_urls[0] + CHAT, STREAMED)
    assert chat_joined(ours.text()) == chat_joined(theirs.text())


async def test_the_engines_server_derenders_too(stack: Stack, client: aiohttp.ClientSession) -> None:
    payload = await rendered(client, stack, CHAT, COUNT)
    body = context_of(payload, COUNT) + await generated(client, stack, payload, stream=True)
    ours = await ok(client, stack.vllm_engine_urls[0] + derender_path(CHAT), body)
    assert without_own(ours) == without_own(await ok(client, stack.vllm_engine_urls[0] + CHAT, COUNT))


@pytest.mark.parametrize("request_id", ["chatcmpl-17", "of another form", 'with "created":1 in it'])
async def test_the_answer_has_the_contexts_names(stack: Stack, client: aiohttp.ClientSession, request_id: str) -> None:
    names = {"request_id": request_id, "created": 1234, "model": "another-name"}
    expected = (request_id, 1234, "another-name")
    reply = await derender(client, stack, CHAT, context(**names) + ALL)
    chunks = events_of(reply.text())[:-1]
    assert {(chunk["id"], chunk["created"], chunk["model"]) for chunk in chunks} == {expected}
    answer = (await derender(client, stack, CHAT, context(COUNT, **names) + ALL)).json()
    assert (answer["id"], answer["created"], answer["model"]) == expected


async def test_the_number_of_prompt_tokens_is_enough(stack: Stack, client: aiohttp.ClientSession) -> None:
    first = json.dumps({"chat_request": COUNT, "prompt_tokens": 77}).encode() + b"\n"
    answer = (await derender(client, stack, CHAT, first + ALL)).json()
    assert answer["usage"]["prompt_tokens"] == 77


FAILURES = {
    "generate refuses": (error_event(code=404, type="NotFoundError"), 404, "NotFoundError"),
    "generate fails at once": (error_event(), 500, "InternalServerError"),
    "generate's answer is an error": (json.dumps({"error": ERROR}).encode(), 500, "InternalServerError"),
    "nothing comes": (b"", 502, "BadGatewayError"),
    "blanks come": (b"\r\n \r\n", 502, "BadGatewayError"),
    "comments come": (b": keep-alive\n\n", 502, "BadGatewayError"),
    "only the end comes": (DONE, 502, "BadGatewayError"),
    "no answer comes": (b"data: hello\n\n", 502, "BadGatewayError"),
    "a web page comes": (b"<html>\n\n", 502, "BadGatewayError"),
    "an answer is cut": (b'{"choices": [', 502, "BadGatewayError"),
    "an answer has no choice": (b'{"choices": []}', 502, "BadGatewayError"),
    "a choice there is not": (event(16, index=1), 502, "BadGatewayError"),
    "a choice below zero": (event(16, index=-1), 502, "BadGatewayError"),
    "more tokens than fit": (event(*[16] * 5000), 502, "BadGatewayError"),
}

LATE_FAILURES = {
    "generate fails": (error_event(), "InternalServerError"),
    "the body ends": (b"", "BadGatewayError"),
    "the body ends within an event": (b'data: {"choi', "BadGatewayError"),
    "the stream ends": (DONE, "BadGatewayError"),
    "nonsense comes": (b"data: {}}\n\n", "BadGatewayError"),
    "a choice goes on": (event(16, finish_reason="stop") + event(17), "BadGatewayError"),
}


@pytest.mark.parametrize("request_", [COUNT, STREAMED], ids=["whole", "streamed"])
@pytest.mark.parametrize("case", FAILURES)
async def test_an_error_before_the_first_token_has_its_status(
    stack: Stack, client: aiohttp.ClientSession, case: str, request_: dict[str, Any]
) -> None:
    body, status, error_type = FAILURES[case]
    reply = await derender(client, stack, CHAT, context(request_) + body)
    assert (reply.status, reply.json()["error"]["type"]) == (status, error_type), reply.text()


@pytest.mark.parametrize("case", LATE_FAILURES)
async def test_an_error_after_that_is_the_last_event(stack: Stack, client: aiohttp.ClientSession, case: str) -> None:
    """One, and well-formed; what came before it is there."""
    body, error_type = LATE_FAILURES[case]
    events = events_of((await live(client, stack, context(), SOME, body)).text())
    assert [event["error"]["type"] for event in events[:-1] if "error" in event] == [error_type]
    assert ("error" in events[-2], events[-1]) == (True, "[DONE]")
    assert "".join(event["choices"][0]["delta"].get("content") or "" for event in events[:-2]) != ""


async def test_an_error_of_a_message_is_anthropics(stack: Stack, client: aiohttp.ClientSession) -> None:
    request = {
        "model": TINY_MODEL_NAME,
        "max_tokens": 5,
        "messages": [{"role": "user", "content": "Hi"}],
        "stream": True,
    }
    path = "/v1/messages"
    refused = await derender(client, stack, path, context(request) + error_event())
    expected = {"type": "error", "error": {"type": "InternalServerError", "message": "The engine died."}}
    assert (refused.status, refused.json()) == (500, expected)
    broken = await live(client, stack, context(request), SOME, error_event(), path=path)
    assert broken.text().endswith(f"event: error\ndata: {json.dumps(expected)}\n\n")


async def test_an_error_of_a_response_is_its_last_event(stack: Stack, client: aiohttp.ClientSession) -> None:
    request = {"model": TINY_MODEL_NAME, "input": "Hi", "stream": True}
    path = "/v1/responses"
    assert (await derender(client, stack, path, context(request) + error_event())).status == 500
    events = events_of((await live(client, stack, context(request), SOME, error_event(), path=path)).text())
    assert (events[-1]["type"], events[-1]["message"]) == ("error", "The engine died.")
    assert [event["sequence_number"] for event in events] == list(range(len(events)))


REFUSED = {
    "no context": (b"data: x\n\n", 400, "first line"),
    "no line": (b"{", 400, "first line"),
    "another model": (context({**COUNT, "model": "other"}) + ALL, 404, "does not exist"),
    "no messages": (context({"model": TINY_MODEL_NAME}) + ALL, 400, "messages"),
    "beams": (context({**COUNT, "use_beam_search": True, "n": 2}) + ALL, 400, "beam"),
    "too many choices": (context({**COUNT, "n": 1000, "temperature": 1}) + ALL, 400, "n is 1000"),
    "no sampling params": (context(sampling_params={"min_tokens": "x"}) + ALL, 400, "sampling_params"),
    "no logprobs": (context({**COUNT, "logprobs": True}) + ALL, 502, "log probabilities"),
    "a prompt's text": (context({**COUNT, "return_prompt_text": True}) + ALL, 400, "prompt_text"),
    "a prompt too long": (
        json.dumps({"request": COUNT, "prompt_tokens": 10**9}).encode() + b"\n" + ALL,
        400,
        "the model's context",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_what_is_refused(stack: Stack, client: aiohttp.ClientSession, case: str) -> None:
    """By status and name."""
    body, status, word = REFUSED[case]
    reply = await derender(client, stack, CHAT, body)
    assert reply.status == status, reply.text()
    assert word in reply.json()["error"]["message"]


async def test_media_are_not_looked_at(stack: Stack, client: aiohttp.ClientSession) -> None:
    """They may be left in the request: no address is asked for, nothing decoded."""
    urls = ("http://127.0.0.1:9/x.png", "data:image/png;base64,AAAA", "file:///etc/passwd", "")
    parts = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    request = {**COUNT, "messages": [{"role": "user", "content": [*parts, {"type": "text", "text": "What is it?"}]}]}
    reply = await derender(
        client, stack, CHAT, json.dumps({"request": request, "prompt_token_ids": PROMPT}).encode() + b"\n" + ALL
    )
    assert reply.status == 200, reply.text()


async def test_a_caller_that_leaves_ends_it(stack: Stack, client: aiohttp.ClientSession) -> None:
    """In the middle of the body; the server goes on, and has nothing to say about it."""
    log = stack.process("vllm-render-0").log.path
    before = log.read_text().count("Traceback")
    for sent in (b"", context()[:20], context(), context() + SOME, context(COUNT) + SOME):
        writer = await connected(stack)
        writer.write(head() + chunk(sent) if sent else head())
        await writer.drain()
        await asyncio.sleep(0.1)
        writer.transport.abort()
    assert (await derender(client, stack, CHAT, context() + ALL)).status == 200
    assert log.read_text().count("Traceback") == before


async def test_a_caller_that_does_not_read_is_not_read_from(stack: Stack) -> None:
    """What it sends is left in the sockets' buffers, once what it is answered has filled the others."""
    writer = await connected(stack)
    request = {**STREAMED, "n": 2, "temperature": 1}
    writer.write(head() + chunk(context(request, request_id="x" * 1000, model="y" * 1000)))
    tokens = chunk((event(16) + event(16, index=1)) * 50) * 80  # some 16 MB of answer
    comments = chunk(b": " + b"x" * 1_000_000 + b"\n\n")

    async def flood() -> None:
        writer.write(tokens)
        for _ in range(200):
            writer.write(comments)
            await writer.drain()

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(flood(), timeout=10)
    writer.transport.abort()


async def live(
    client: aiohttp.ClientSession, stack: Stack, first: bytes, begin: bytes, end: bytes, path: str = CHAT
) -> Reply:
    """Derender with ``end`` sent when ``begin`` has been answered."""
    begun = asyncio.Event()

    async def body() -> AsyncIterator[bytes]:
        yield first
        yield begin
        await begun.wait()
        yield end

    async with client.post(stack.vllm_render_urls[0] + derender_path(path), data=body()) as answer:
        whole = b""
        async for piece in answer.content.iter_any():
            whole += piece
            begun.set()
        return Reply(answer.status, answer.headers, whole)


async def connected(stack: Stack) -> asyncio.StreamWriter:
    """A connection to the render server whose answers nobody reads."""
    address = urlsplit(stack.vllm_render_urls[0])
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect((address.hostname, address.port))
    _, writer = await asyncio.open_connection(sock=connection, limit=1024)
    return writer


def head() -> bytes:
    """A request's head, before a body in chunks."""
    return f"POST {derender_path(CHAT)} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".encode()


def chunk(data: bytes) -> bytes:
    """A chunk of a body."""
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"
