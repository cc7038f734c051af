"""How a request that is carried ends when the pod, the budget or the caller ends it."""

import json

import aiohttp
import pytest

from tests.support.carrier import carried_to
from tests.support.polling import eventually, soon
from tests.support.raw_caller import raw_caller
from tests.support.raw_pod import Connection, raw_pod
from tests.support.scripted_pod import Answer, Does, json_answer, scripted_pod, streamed

SSE = "text/event-stream"

CUTS = {
    "between events": [b"data: 1\n\n"],
    "within an event": [b"data: 1\n\n", b'data: {"choi'],
    "within a line end": [b"data: 1\n\n", b"data: 2\n"],
    "after crlf": [b"data: 1\r\n\r\n", b"data: 2\r"],
}


def events_of(stream: bytes) -> list[bytes]:
    """What a client sees: complete events only."""
    blocks = stream.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n\n")
    return [block for block in blocks[:-1] if block.strip(b"\n")]


@pytest.mark.parametrize("steps", CUTS.values(), ids=CUTS)
async def test_a_stream_that_breaks_ends_with_one_error_event(
    steps: list[bytes], caller: aiohttp.ClientSession
) -> None:
    """Well formed wherever it broke: the last event is the error, and the stream ends in order."""
    async with (
        scripted_pod({"/there": streamed(*steps, Does.CUT, content_type=SSE)}) as pod,
        carried_to(pod.url) as url,
        caller.post(url, data=b"{}") as answer,
    ):
        events = events_of(await soon(answer.read()))
    assert events[0] == b"data: 1"
    error = json.loads(events[-1].strip(b"\n").removeprefix(b"data: "))["error"]
    assert error == {"message": error["message"], "type": "BadGatewayError", "param": None, "code": 502}
    assert "127.0.0.1" not in error["message"]


async def test_a_stream_over_its_budget_ends_with_one_error_event(caller: aiohttp.ClientSession) -> None:
    """The pod is silent: 504 in the event, and its connection is closed."""
    async with (
        scripted_pod({"/there": streamed(b"data: 1\n\n", Does.HANG, content_type=SSE)}) as pod,
        carried_to(pod.url, timeout_s=0.5) as url,
        caller.post(url, data=b"{}") as answer,
    ):
        events = events_of(await soon(answer.read()))
        assert json.loads(events[-1].strip(b"\n")[6:])["error"]["code"] == 504
        await eventually(lambda: pod.left == ["/there"])


@pytest.mark.parametrize("length", [None, 100])
async def test_json_that_breaks_is_cut_off(length: int | None, caller: aiohttp.ClientSession) -> None:
    """The caller must not take half an answer for a whole one: its connection breaks too."""
    async with (
        scripted_pod({"/there": streamed(b'{"a":', Does.CUT, content_length=length)}) as pod,
        carried_to(pod.url) as url,
        caller.post(url, data=b"{}") as answer,
    ):
        assert answer.status == 200
        with pytest.raises(aiohttp.ClientError):
            await soon(answer.read())


LEAVINGS = {
    "before the answer": streamed(Does.HANG),
    "within it": streamed(b"data: 1\n\n", Does.HANG, content_type=SSE),
}


@pytest.mark.parametrize("answer", LEAVINGS.values(), ids=LEAVINGS)
async def test_a_caller_that_leaves_ends_the_pods_work(answer: Answer) -> None:
    """The pod's connection is closed, which is how vLLM is told to stop."""
    async with scripted_pod({"/there": answer}) as pod, carried_to(pod.url) as url, raw_caller(url) as leaver:
        await leaver.send(b"POST /path HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
        await eventually(lambda: pod.begun == ["/there"])
        if answer is LEAVINGS["within it"]:
            assert await soon(leaver.reader.readuntil(b"data: 1\n\n"))
        leaver.leave()
        await eventually(lambda: pod.left == ["/there"] and pod.connections == 0)


@pytest.mark.parametrize("content_type", [SSE, "application/json"])
async def test_a_caller_that_takes_nothing_ends_the_pods_work(content_type: str) -> None:
    """It keeps its connection and reads none of its answer: after the idle timeout both connections are closed."""
    endless = streamed(*[b"data: %b\n\n" % bytes(100_000)] * 1000, Does.HANG, content_type=content_type)
    async with (
        scripted_pod({"/there": endless}) as pod,
        carried_to(pod.url, idle_timeout_s=0.2) as url,
        raw_caller(url) as caller,
    ):
        await caller.send(b"POST /path HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
        await eventually(lambda: pod.left == ["/there"] and pod.connections == 0)


async def test_a_caller_that_leaves_within_its_body_leaves_no_request_on_the_pod() -> None:
    """What the pod has of it is never completed."""
    async with scripted_pod({"/there": json_answer(b"{}")}) as pod, carried_to(pod.url) as url:
        async with raw_caller(url) as leaver:
            await leaver.send(b"POST /path HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{")
            await eventually(lambda: pod.begun == ["/there"])
            leaver.leave()
            await eventually(lambda: pod.left == ["/there"] and pod.connections == 0)
        assert pod.seen == []


@pytest.mark.parametrize(("limits", "status"), [({"max_body_bytes": 5}, 413), ({"idle_timeout_s": 0.1}, 408)])
async def test_a_limit_of_the_body_is_not_the_pods_failure(limits: dict[str, float], status: int) -> None:
    """The caller is told of its own fault, and the pod's connection is closed without a complete request."""

    async def reads_on(connection: Connection) -> None:
        await connection.until_closed()

    async with raw_pod(reads_on) as pod, carried_to(pod.url, **limits) as url, raw_caller(url) as caller:
        await caller.send(b"POST /path HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
        if status == 413:
            await caller.send(b"3\r\ndef\r\n")
        assert (await soon(caller.answer()))[0] == status
        await eventually(lambda: all(connection.ended for connection in pod.connections))
        assert all(b"0\r\n\r\n" not in connection.received for connection in pod.connections)
