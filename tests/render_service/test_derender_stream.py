"""A derender stream is carried both ways at once, for as long as its budget lasts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web

from render_service.app import make_app
from render_service.settings import RenderServiceSettings
from tests.support.polling import eventually, soon
from tests.support.raw_caller import RawCaller, raw_caller
from tests.support.scripted_pod import Answer, ScriptedPod, json_answer, scripted_pod
from tests.support.service import QUICK, app_served

WHOLE = "/v1/chat/completions/derender"
PATH = WHOLE + "/stream"
SSE = "text/event-stream"
EVENT = b"data: %b\n\n"
REFUSAL = b'{"error":{"message":"no such model","type":"NotFoundError","param":"model","code":404}}'


async def echoing(request: web.Request) -> web.StreamResponse:
    """Answers each line of the body with an event, as soon as it has come."""
    response = web.StreamResponse(headers={"Content-Type": SSE})
    while line := await request.content.readline():
        if not response.prepared:
            await response.prepare(request)
        await response.write(EVENT % line.strip())
    return response


def ends_after_first_line(error: Answer | None = None) -> Answer:
    """Answers, with ``error`` or one event, and waits for no more of the body."""

    async def answer(request: web.Request) -> web.StreamResponse:
        line = await request.content.readline()
        if error is not None:
            return await error(request)
        return web.Response(body=EVENT % line.strip(), headers={"Content-Type": SSE})

    return answer


def dies_after_first_line(after: asyncio.Event) -> Answer:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": SSE})
        await response.prepare(request)
        await response.write(EVENT % (await request.content.readline()).strip())
        await after.wait()
        assert request.transport is not None
        request.transport.abort()
        return response

    return answer


@asynccontextmanager
async def service(answer: Answer | None, **limits: float) -> AsyncIterator[tuple[ScriptedPod, str]]:
    """A render service before a pod that answers so on :data:`PATH`, from before the body has come."""
    async with scripted_pod({} if answer is None else {PATH: answer}) as pod:
        pod.unread.add(PATH)
        settings = RenderServiceSettings(vllm_url=pod.url, **QUICK | limits)
        async with app_served(await make_app(settings), settings) as url:
            yield pod, url


class OpenBody:
    """A request's body that goes on when told to, and does not end before."""

    def __init__(self, *pieces: bytes) -> None:
        self._pieces: asyncio.Queue[bytes | None] = asyncio.Queue()
        for piece in pieces:
            self.send(piece)

    def send(self, piece: bytes) -> None:
        self._pieces.put_nowait(piece)

    def end(self) -> None:
        self._pieces.put_nowait(None)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (piece := await self._pieces.get()) is not None:
            yield piece


async def begins(caller: RawCaller, path: str, body: bytes) -> None:
    """Send a request's head, and the beginning of its body."""
    await caller.send(b"POST %b HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" % path.encode())
    await caller.send(chunk(body))


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


async def test_an_event_comes_while_the_body_is_open(caller: aiohttp.ClientSession) -> None:
    """Each before the line after it is sent; and the answer ends when the body does."""
    body = OpenBody(b"context\n")
    async with service(echoing) as (_, url), caller.post(url + PATH, data=body) as answer:
        assert (answer.status, answer.content_type) == (200, SSE)
        assert await soon(answer.content.readuntil(b"\n\n")) == EVENT % b"context"
        for number in range(5):
            body.send(b"%d\n" % number)
            assert await soon(answer.content.readuntil(b"\n\n")) == EVENT % b"%d" % number
        body.end()
        assert await soon(answer.read()) == b""


async def test_a_stream_may_pause_for_longer_than_other_bodies() -> None:
    """It was silent for longer than another request, which was ended for that, and goes on."""
    async with (
        service(echoing, idle_timeout_s=0.1) as (_, url),
        raw_caller(url) as streaming,
        raw_caller(url) as other,
    ):
        await begins(streaming, PATH, b"context\n")
        assert await soon(streaming.reader.readuntil(b"context\n\n"))
        await begins(other, WHOLE, b"{")
        assert (await soon(other.answer()))[0] == 408
        await streaming.send(chunk(b"more\n") + b"0\r\n\r\n")
        assert b"data: more\n\n" in await soon(streaming.reader.readuntil(b"0\r\n\r\n"))


async def test_the_budget_ends_a_body_that_does_not_go_on() -> None:
    """Before the answer has begun, by its status; after that, by an event. The pod is let go of."""
    async with (
        service(echoing, derender_stream_timeout_s=1) as (pod, url),
        raw_caller(url) as early,
        raw_caller(url) as late,
    ):
        await begins(early, PATH, b"cont")
        await begins(late, PATH, b"context\n")
        status, _, body = await soon(early.answer())
        assert (status, "within 1 s" in json.loads(body)["error"]["message"]) == (504, True)
        events = (await soon(late.reader.readuntil(b"0\r\n\r\n"))).split(b"data: ")[1:]
        assert events[0].startswith(b"context\n\n")
        assert json.loads(events[1].partition(b"\n\n")[0])["error"]["code"] == 504
        await eventually(lambda: pod.left == [PATH, PATH])


async def test_an_error_before_the_bodys_end_reaches_the_caller() -> None:
    """With its status; what the caller would still send is not waited for, and the pod's connection is closed."""
    async with service(ends_after_first_line(json_answer(REFUSAL, 404))) as (pod, url), raw_caller(url) as caller:
        await begins(caller, PATH, b"context\n")
        status, _, body = await soon(caller.answer())
        assert (status, json.loads(body)) == (404, json.loads(REFUSAL))
        await eventually(lambda: pod.connections <= 1)  # the probe's


async def test_an_answer_that_ends_before_the_body_is_whole() -> None:
    """It has its end, and no connection is held for what the caller does not send."""
    async with service(ends_after_first_line()) as (pod, url), raw_caller(url) as caller:
        await begins(caller, PATH, b"context\n")
        status, _, body = await soon(caller.answer())
        assert (status, body) == (200, EVENT % b"context")
        await eventually(lambda: pod.connections <= 1)
        await caller.send(chunk(b"more\n") + b"0\r\n\r\n")  # read and forgotten, and the next request is served
        await caller.send(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await soon(caller.answer()))[0] == 200


@pytest.mark.parametrize("sent", [b"cont", b"context\n"], ids=["before the answer", "within it"])
async def test_a_caller_that_leaves_ends_it(sent: bytes) -> None:
    """The pod's request is broken off, not ended: what it has is no whole body."""
    async with service(echoing) as (pod, url), raw_caller(url) as leaver:
        await begins(leaver, PATH, sent)
        await eventually(lambda: pod.begun == [PATH])
        if sent.endswith(b"\n"):
            assert await soon(leaver.reader.readuntil(b"context\n\n"))
        leaver.leave()
        await eventually(lambda: pod.left == [PATH] and pod.connections <= 1)


async def test_a_pod_that_dies_ends_the_answer_while_the_body_is_open(caller: aiohttp.ClientSession) -> None:
    """With an error event, and without waiting for the caller."""
    body, die = OpenBody(b"context\n"), asyncio.Event()
    async with service(dies_after_first_line(die)) as (_, url), caller.post(url + PATH, data=body) as answer:
        assert await soon(answer.content.readuntil(b"\n\n")) == EVENT % b"context"
        die.set()
        rest = await soon(answer.read())
        assert json.loads(rest.removeprefix(b"data: "))["error"]["code"] == 502


async def test_bare_vllm_has_no_such_path(caller: aiohttp.ClientSession) -> None:
    """Its own 404, though it is said before the body has been read."""
    async with service(None) as (_, url), caller.post(url + PATH, data=OpenBody(b"context\n")) as answer:
        assert (answer.status, (await answer.json())["error"]["type"]) == (404, "NotFoundError")
