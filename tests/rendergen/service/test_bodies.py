import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web

from rendergen.service.bodies import RequestBody
from tests.support.polling import eventually, soon
from tests.support.raw_caller import raw_caller
from tests.support.service import QUICK, PlainSettings, handler_served

LIMIT = 1000
HEAD = b"POST /path HTTP/1.1\r\nHost: x\r\n"


@asynccontextmanager
async def echo(idle_timeout_s: float = 30.0) -> AsyncIterator[str]:
    """A service that answers with the body it was sent, and with what it declared to be."""
    settings = PlainSettings(**QUICK, max_body_bytes=LIMIT, idle_timeout_s=idle_timeout_s)

    async def answer(request: web.Request) -> web.Response:
        body = RequestBody(request, settings)
        pieces = [chunk async for chunk in body.chunks()]
        return web.Response(body=b"".join(pieces), headers={"Declared": str(body.declared_bytes)})

    async with handler_served(answer, settings) as url:
        yield url


async def sent(url: str, *parts: bytes) -> tuple[int, str]:
    """Status and error message of the answer to literal bytes."""
    async with raw_caller(url) as caller:
        for part in parts:
            await caller.send(part)
        status, _, body = await soon(caller.answer())
        return status, json.loads(body)["error"]["message"]


async def shows(url: str, caller: aiohttp.ClientSession, sample: str) -> bool:
    """Whether the service's metrics have that sample."""
    async with caller.get(url + "/metrics") as answer:
        return sample in await answer.text()


async def pieces(*sizes: int) -> AsyncIterator[bytes]:
    for size in sizes:
        yield b"x" * size


@pytest.mark.timeout(10)  # where it goes wrong, nothing else in the process ever runs again
async def test_empty_bodies_end_each_time(caller: aiohttp.ClientSession) -> None:
    """Those after the first, too: aiohttp has one object for all of them in a process, and it says only once so."""
    async with echo() as url:
        for _ in range(3):
            async with caller.post(url + "/path", data=b"") as answer:  # the answer's body is such a one as well
                assert await answer.read() == b""
                assert answer.headers["Declared"] == "0"


@pytest.mark.parametrize("size", [0, 1, LIMIT - 1, LIMIT])
async def test_a_body_up_to_the_limit_is_read(size: int, caller: aiohttp.ClientSession) -> None:
    """The limit itself is allowed, with a declared length and without one."""
    async with echo() as url:
        async with caller.post(url + "/path", data=b"x" * size) as answer:
            assert await answer.read() == b"x" * size
        async with caller.post(url + "/path", data=pieces(size // 2, size - size // 2)) as answer:
            assert await answer.read() == b"x" * size
            assert answer.headers["Declared"] == "None"


async def test_a_declared_length_over_the_limit_is_refused_at_once() -> None:
    """Not a byte of the body has to come, and the message names the limit."""
    async with echo() as url:
        status, message = await sent(url, HEAD + b"Content-Length: %d\r\n\r\n" % (LIMIT + 1))
    assert status == 413
    assert str(LIMIT) in message


async def test_a_chunked_body_is_refused_with_the_byte_that_is_too_many() -> None:
    """Its end has not come, and need not."""
    async with echo() as url:
        chunk = b"%x\r\n%b\r\n" % (LIMIT, b"x" * LIMIT)
        status, message = await sent(url, HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunk, b"1\r\nx\r\n")
    assert status == 413
    assert str(LIMIT) in message


@pytest.mark.parametrize("framing", [b"Content-Length: 10\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n5\r\n"])
@pytest.mark.parametrize("begun", [b"", b"123"])
async def test_a_caller_that_pauses_too_long_is_told_so(framing: bytes, begun: bytes) -> None:
    """408, whether it sent nothing yet or some of it."""
    async with echo(idle_timeout_s=0.05) as url:
        status, message = await sent(url, HEAD + framing + begun)
    assert status == 408
    assert "0.05 s" in message


async def test_a_slow_body_is_read_as_long_as_it_goes_on(caller: aiohttp.ClientSession) -> None:
    """The limit is on the pause, not on the whole: many pauses that are together longer than it."""

    async def slowly() -> AsyncIterator[bytes]:
        for _ in range(12):
            await asyncio.sleep(0.1)
            yield b"x"

    async with echo(idle_timeout_s=1) as url, caller.post(url + "/path", data=slowly()) as answer:
        assert await answer.read() == b"x" * 12


@pytest.mark.parametrize("framing", [b"Content-Length: 10\r\n\r\n123", b"Transfer-Encoding: chunked\r\n\r\n5\r\n123"])
@pytest.mark.parametrize("half_closed", [False, True])
async def test_a_caller_that_leaves_ends_its_request(
    framing: bytes, half_closed: bool, caller: aiohttp.ClientSession
) -> None:
    """Nothing is answered; the request counts as 499, and none is in flight any more."""
    async with echo() as url, raw_caller(url) as leaver:
        await leaver.send(HEAD + framing)
        await eventually(lambda: shows(url, caller, "rendergen_requests_in_flight 2.0"))
        if half_closed:
            leaver.writer.write_eof()
            assert await soon(leaver.rest()) == b""
        else:
            leaver.leave()
        await eventually(lambda: shows(url, caller, 'route="/path",status="499"} 1.0'))
        assert await shows(url, caller, "rendergen_requests_in_flight 1.0")


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "GZIP", "gzip, identity", "nonsense"])
async def test_a_compressed_body_is_refused(encoding: str) -> None:
    """Before it is read: unpacking would hold up the event loop, and fill the memory with what came as a few bytes."""
    async with echo() as url:
        packed = gzip.compress(b"x" * LIMIT)
        head = HEAD + b"Content-Encoding: %b\r\nContent-Length: %d\r\n\r\n" % (encoding.encode(), len(packed))
        status, message = await sent(url, head + packed)
    assert status == 400
    assert "Content-Encoding" in message


async def test_identity_is_no_compression(caller: aiohttp.ClientSession) -> None:
    """Some clients say so."""
    headers = {"Content-Encoding": "identity"}
    async with echo() as url, caller.post(url + "/path", data=b"abc", headers=headers) as answer:
        assert await answer.read() == b"abc"


BROKEN = {
    "no gzip": b"Content-Encoding: gzip\r\nContent-Length: 10\r\n\r\n0123456789",
    "no chunk size": b"Transfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n",
    "chunk longer than its size": b"Transfer-Encoding: chunked\r\n\r\n3\r\nabcdefgh\r\n",
    "two lengths": b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
    "a length and chunks": b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    "a negative length": b"Content-Length: -1\r\n\r\n",
}


@pytest.mark.parametrize("framing", BROKEN.values(), ids=BROKEN)
async def test_a_body_that_is_not_as_its_head_says_is_a_bad_request(framing: bytes) -> None:
    """400 at once: not when the caller has been silent for too long, and not as our failure."""
    async with echo() as url, raw_caller(url) as caller:
        await caller.send(HEAD + framing)
        status, _, body = await soon(caller.answer())
    assert status == 400
    assert b"Traceback" not in body


async def test_a_body_that_breaks_after_its_beginning_is_a_bad_request(caller: aiohttp.ClientSession) -> None:
    """The service reads already when the fault comes. The HTTP parser tells the connection, not the reader, which is
    answered when the body has not gone on for too long: bounded, and still the caller's fault."""
    async with echo(idle_timeout_s=0.2) as url, raw_caller(url) as breaker:
        await breaker.send(HEAD + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
        await eventually(lambda: shows(url, caller, "rendergen_requests_in_flight 2.0"))
        await breaker.send(b"no size\r\n")
        status, _, body = await soon(breaker.answer())
    assert status in (400, 408)
    assert json.loads(body)["error"]["code"] == status


async def test_a_service_goes_on_after_refusals(caller: aiohttp.ClientSession) -> None:
    """Connections that ended badly leave nothing behind that the next request meets."""
    async with echo() as url:
        for _ in range(3):
            await sent(url, HEAD + b"Content-Length: 5000\r\n\r\n")
            async with caller.post(url + "/path", data=b"next") as answer:
                assert await answer.read() == b"next"
    await eventually(lambda: len(asyncio.all_tasks()) == 1)
