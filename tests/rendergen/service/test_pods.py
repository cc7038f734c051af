import asyncio
import json
from collections.abc import AsyncIterator, Callable

import pytest

from rendergen.service.errors import BadRequest, DeadlineExceeded, PodFailed, PodRefusal, ServiceError, Unavailable
from rendergen.service.pods import Body
from tests.support.clients import MIB, asked, client_of, pieces
from tests.support.polling import eventually, soon
from tests.support.raw_pod import Connection, Script, closed_port, full_port, raw_pod
from tests.support.scripted_pod import Does, json_answer, scripted_pod, streamed

BODIES: dict[str, Callable[[], Body]] = {
    "bytes": lambda: b"{}",
    "pieces": lambda: (b"{", b"}"),
    "iterator": lambda: pieces(b"{", b"}"),
}
any_body = pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)


def after_request(data: bytes) -> Script:
    """Sends ``data`` once the request is in, and closes."""

    async def script(connection: Connection) -> None:
        await connection.request()
        await connection.send(data)

    return script


@any_body
async def test_a_body_arrives_as_it_is(body: Callable[[], Body]) -> None:
    """In one piece, in several that are not joined, or made while it is sent."""
    async with scripted_pod({"/x": json_answer(b"[1]")}) as pod, client_of(pod.url) as client:
        assert await asked(client, body()) == b"[1]"
        assert pod.bodies("/x") == [b"{}"]


async def test_pieces_have_a_length() -> None:
    """A body that is at hand is sent with its Content-Length; one that is being made is chunked."""
    async with scripted_pod({"/x": json_answer(b"[]")}) as pod, client_of(pod.url) as client:
        await asked(client, (b"a" * MIB, b"", b"b"))
        await asked(client, pieces(b"c"))
        assert pod.seen[0].headers["Content-Length"] == str(MIB + 1)
        assert pod.seen[0].body == b"a" * MIB + b"b"
        assert pod.seen[1].headers["Transfer-Encoding"] == "chunked"


@any_body
async def test_a_refused_connection_is_unavailable(body: Callable[[], Body]) -> None:
    """503 that names the pod's role and nothing of its address."""
    async with closed_port() as url, client_of(url) as client:
        with pytest.raises(Unavailable, match="render pod cannot be reached") as raised:
            await asked(client, body())
        assert "127.0.0.1" not in json.dumps(raised.value.body())


@any_body
async def test_a_port_that_never_accepts_is_unavailable(body: Callable[[], Body]) -> None:
    """Connecting has a limit of its own, far below the request's."""
    async with full_port() as url, client_of(url, connect_timeout_s=0.05) as client:
        with pytest.raises(Unavailable, match="render pod does not accept"):
            await asked(client, body())


BROKEN: dict[str, bytes] = {
    "nothing": b"",
    "half a head": b"HTTP/1.1 200 OK\r\nContent-Le",
    "half a body": b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{",
    "half a chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n{",
    "no last chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n",
    "no chunk size": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n",
    "garbage": b"\x00\x01SSH-2.0-OpenSSH_9.6\r\n\r\n",
    "html without a head": b"<html>" * 1000,
    "a head without end": b"HTTP/1.1 200 OK\r\nA: " + b"x" * 300_000,
    "a redirect": b"HTTP/1.1 307 Temporary Redirect\r\nLocation: http://127.0.0.1:9/\r\nContent-Length: 0\r\n\r\n",
    "not modified": b"HTTP/1.1 304 Not Modified\r\n\r\n",
}


@pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN)
@any_body
async def test_an_answer_that_is_none_is_the_pods_failure(data: bytes, body: Callable[[], Body]) -> None:
    """502 that names the role; neither what came nor an address is told. Its connection is closed."""
    async with raw_pod(after_request(data)) as pod, client_of(pod.url) as client:
        with pytest.raises(PodFailed, match="render pod") as raised:
            await asked(client, body())
        told = json.dumps(raised.value.body())
        assert "127.0.0.1" not in told
        assert "OpenSSH" not in told


@any_body
async def test_a_pod_that_closes_at_once_is_the_pods_failure(body: Callable[[], Body]) -> None:
    """Before it has read anything: closed in order, or reset."""

    async def closes(_: Connection) -> None: ...

    async def resets(connection: Connection) -> None:
        connection.reset()

    for script in (closes, resets):
        async with raw_pod(script) as pod, client_of(pod.url) as client:
            with pytest.raises(PodFailed, match="render pod"):
                await asked(client, body())


SILENCES = {
    "no head": b"",
    "half a head": b"HTTP/1.1 200 OK\r\nContent-Le",
    "half a body": b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{",
    "half an error": b"HTTP/1.1 400 Bad Request\r\nContent-Length: 9\r\n\r\n{",
}


@pytest.mark.parametrize("data", SILENCES.values(), ids=SILENCES)
@any_body
async def test_a_pod_that_falls_silent_is_left_at_the_deadline(data: bytes, body: Callable[[], Body]) -> None:
    """504 that names the role and the budget, and its connection is closed: that is what stops its work."""

    async def falls_silent(connection: Connection) -> None:
        await connection.request()
        await connection.send(data)
        await connection.until_closed()

    async with raw_pod(falls_silent) as pod, client_of(pod.url) as client:
        with pytest.raises(DeadlineExceeded, match=r"render pod did not finish within 0\.5 s"):
            await asked(client, body(), timeout_s=0.5)
        await eventually(lambda: pod.connections[0].ended)


async def test_a_pod_that_stops_reading_is_left_at_the_deadline() -> None:
    """The budget covers sending too."""
    ended = asyncio.Event()

    async def stops_reading(connection: Connection) -> None:
        await connection.head()
        await ended.wait()
        await connection.until_closed()

    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * MIB

    async with raw_pod(stops_reading) as pod, client_of(pod.url) as client:
        with pytest.raises(DeadlineExceeded):
            await asked(client, endless(), timeout_s=0.5)
        ended.set()
        await eventually(lambda: pod.connections[0].ended)


@pytest.mark.parametrize("status", [400, 413, 429])
@pytest.mark.parametrize("then_closes", [False, True])
async def test_a_pod_may_refuse_before_the_body_is_sent(status: int, then_closes: bool) -> None:
    """Its refusal is what the caller is told, and what is left of the body does not follow."""
    error = b'{"error":{"message":"no","type":"T","param":null,"code":0}}'

    async def refuses(connection: Connection) -> None:
        await connection.head()
        await connection.send(b"HTTP/1.1 %d No\r\nContent-Length: %d\r\n\r\n%b" % (status, len(error), error))
        if not then_closes:
            await connection.until_closed()

    stuck = asyncio.Event()

    async def never_ends() -> AsyncIterator[bytes]:
        yield b"begun"
        await stuck.wait()

    async with raw_pod(refuses) as pod, client_of(pod.url) as client:
        for body in (never_ends(), pieces(*[b"x" * MIB] * 16)):
            with pytest.raises(PodRefusal, match="no") as raised:
                await soon(asked(client, body))
            assert raised.value.status == status
        await eventually(lambda: then_closes or all(connection.ended for connection in pod.connections))


async def test_an_error_body_may_come_in_pieces() -> None:
    """It is put together, up to a limit; one that is longer is no message."""
    go_on = asyncio.Event()
    answer = streamed(b'{"error":{"mess', go_on, b'age":"in pieces"', b',"type":"T"}}', status=400)
    long = streamed(b'{"error":{"message":"', *[b"x" * 60_000] * 3, b'"}}', status=400)
    async with scripted_pod({"/x": answer}) as pod, client_of(pod.url) as client:
        asking = asyncio.create_task(asked(client))
        await eventually(lambda: pod.begun)
        go_on.set()
        with pytest.raises(PodRefusal, match=r"^in pieces$"):
            await asking
        pod.answers["/x"] = long
        with pytest.raises(ServiceError) as raised:
            await asked(client)
        assert len(raised.value.message) < 200


async def test_an_error_body_that_breaks_off_is_the_pods_failure() -> None:
    """Nothing of half an error is told."""
    answer = streamed(b'{"error":{"message":"half', Does.CUT, status=400)
    async with scripted_pod({"/x": answer}) as pod, client_of(pod.url) as client:
        with pytest.raises(PodFailed):
            await asked(client)


async def test_a_body_that_cannot_be_made_fails_as_itself() -> None:
    """Not as a failure of the pod it was meant for, whose connection is closed without a complete request."""

    async def fails() -> AsyncIterator[bytes]:
        yield b"x" * 10
        raise BadRequest("not to be had")

    async with scripted_pod({"/x": json_answer(b"{}")}) as pod, client_of(pod.url) as client:
        with pytest.raises(BadRequest, match="not to be had"):
            await asked(client, fails())
        await eventually(lambda: pod.left == ["/x"])
        assert pod.seen == []
        assert pod.connections == 0


async def test_a_body_that_fails_after_the_answer_began_fails_as_itself() -> None:
    """A pod may begin to answer before it has all; what ended the exchange is still the body."""
    begun = asyncio.Event()

    async def fails() -> AsyncIterator[bytes]:
        yield b"x" * 10
        await begun.wait()
        raise BadRequest("not to be had")

    async with scripted_pod({"/x": streamed(b"{", Does.HANG)}) as pod, client_of(pod.url) as client:
        pod.unread.add("/x")

        async def ask() -> None:
            async with client.request("POST", "/x", headers={}, body=fails(), timeout_s=15) as answer:
                begun.set()
                await answer.read(10)

        with pytest.raises(BadRequest, match="not to be had"):
            await soon(ask())


async def test_an_answer_over_the_limit_is_the_pods_failure() -> None:
    """It is not read to its end."""
    async with scripted_pod({"/x": streamed(b"x" * 6, b"y" * 6, Does.HANG)}) as pod, client_of(pod.url) as client:

        async def ask() -> None:
            async with client.request("POST", "/x", headers={}, timeout_s=15) as answer:
                await answer.read(10)

        with pytest.raises(PodFailed, match="over the limit of 10 bytes"):
            await ask()
        await eventually(lambda: pod.connections == 0)
