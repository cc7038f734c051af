import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterable, Mapping

import aiohttp
import pytest
from aiohttp import web

from tests.support.carrier import carried_to
from tests.support.clients import MIB
from tests.support.polling import soon
from tests.support.scripted_pod import ScriptedPod, json_answer, scripted_pod, streamed

SSE = "text/event-stream"


async def echoing(request: web.Request) -> web.StreamResponse:
    """Answers with the request's body, framed as it came."""
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    response.content_length = request.content_length
    await response.prepare(request)
    async for chunk in request.content.iter_any():
        await response.write(chunk)
    return response


def echo_pod(pod: ScriptedPod) -> None:
    pod.answers["/there"] = echoing
    pod.unread.add("/there")


def lowered(headers: Mapping[str, str]) -> list[tuple[str, str]]:
    return sorted((name.lower(), value) for name, value in headers.items())


async def parts(data: bytes, sizes: Iterable[int]) -> AsyncIterator[bytes]:
    start = 0
    for size in sizes:
        yield data[start : start + size]
        start += size
    yield data[start:]


@pytest.mark.parametrize("size", [0, 1, 1000, 20 * MIB])
@pytest.mark.parametrize("chunked", [False, True])
async def test_bytes_are_the_same_both_ways(size: int, chunked: bool, caller: aiohttp.ClientSession) -> None:
    """Whatever their number, and however they are framed; a length that was declared stays declared."""
    data = os.urandom(size)
    async with scripted_pod() as pod, carried_to(pod.url) as url:
        echo_pod(pod)
        length = {} if chunked else {"Content-Length": str(size)}
        async with caller.post(url, data=parts(data, [1, 0, 2, 70_000]), headers=length) as answer:
            assert answer.status == 200
            assert await answer.read() == data
            assert answer.headers.get("Content-Length") == (None if chunked else str(size))


DEADLINES = {None: "15000", "200": "200", "15001": "15000", "0": "0", "-1": "15000", "1.5": "15000", "x": "15000"}


@pytest.mark.parametrize(("said", "told"), DEADLINES.items())
async def test_a_pod_is_told_how_much_time_is_left(said: str | None, told: str, caller: aiohttp.ClientSession) -> None:
    """Its budget here, or what the caller said if that is less; what is no number of milliseconds is not passed on."""
    async with scripted_pod({"/there": json_answer(b"{}")}) as pod, carried_to(pod.url) as url:
        headers = {} if said is None else {"X-Rendergen-Deadline-Ms": said}
        async with caller.post(url, data=b"{}", headers=headers) as answer:
            assert answer.status == 200
        assert pod.seen[0].headers.getall("X-Rendergen-Deadline-Ms") == [told]


async def test_headers_that_mean_something_to_a_pod_go_on(caller: aiohttp.ClientSession) -> None:
    """Those and no others: nothing of the connection, no cookie, no address of the caller."""
    passed = {
        "Content-Type": "application/json; a=b",
        "Accept": "text/event-stream",
        "Authorization": "Bearer key",
        "traceparent": "00-1-2-01",
        "tracestate": "a=b",
        "X-Request-Id": "mine",
    }
    kept = {
        "Cookie": "a=b",
        "X-Forwarded-For": "1.2.3.4",
        "User-Agent": "me",
        "Expect": "",
        "X-Other": "1",
        "Origin": "x",
    }
    async with scripted_pod({"/there": json_answer(b"{}", headers={"X-Pod": "1"})}) as pod, carried_to(pod.url) as url:
        async with caller.post(url, data=b"{}", headers=passed | kept) as answer:
            assert "X-Pod" not in answer.headers
            assert answer.headers["X-Request-Id"] == "mine"
        expected = passed | {"Host": pod.url[7:], "Content-Length": "2", "X-Rendergen-Deadline-Ms": "15000"}
        assert lowered(pod.seen[0].headers) == lowered(expected)


@pytest.mark.parametrize(
    ("given", "goes_on"),
    [
        ({"x-api-key": "k"}, "Bearer k"),
        ({"X-Api-Key": "k", "Authorization": "Bearer other"}, "Bearer other"),
        ({"Authorization": "Basic b"}, "Basic b"),
    ],
)
async def test_the_key_goes_on_in_the_header_that_vllm_knows(
    given: dict[str, str], goes_on: str, caller: aiohttp.ClientSession
) -> None:
    """Anthropic's clients send another; where both are sent, vLLM's own counts."""
    async with scripted_pod({"/there": json_answer(b"{}")}) as pod, carried_to(pod.url) as url:
        async with caller.post(url, data=b"{}", headers=given):
            pass
        assert pod.seen[0].headers.getall("Authorization") == [goes_on]
        assert "x-api-key" not in pod.seen[0].headers


@pytest.mark.parametrize("given", [{}, {"X-Request-Id": "not taken"}])
async def test_a_request_id_of_ours_does_not_go_on(given: dict[str, str], caller: aiohttp.ClientSession) -> None:
    """To vLLM the header takes the place of the payload's own request id."""
    async with scripted_pod({"/there": json_answer(b"{}")}) as pod, carried_to(pod.url) as url:
        async with caller.post(url, data=b"{}", headers=given):
            pass
        assert "X-Request-Id" not in pod.seen[0].headers


async def test_status_and_type_of_the_answer_come_back(caller: aiohttp.ClientSession) -> None:
    """As the pod said them."""
    async with (
        scripted_pod({"/there": streamed(b"a", status=202, content_type="text/x; a=b")}) as pod,
        carried_to(pod.url) as url,
        caller.post(url, data=b"{}") as answer,
    ):
        assert (answer.status, answer.headers["Content-Type"]) == (202, "text/x; a=b")


async def test_an_error_of_the_pod_is_the_callers_answer(caller: aiohttp.ClientSession) -> None:
    """Classed, in OpenAI's form, with the time to try again."""
    error = b'{"error":{"message":"busy","type":"RateLimitError","param":null,"code":429}}'
    async with (
        scripted_pod({"/there": json_answer(error, 429, {"Retry-After": "5"})}) as pod,
        carried_to(pod.url) as url,
        caller.post(url, data=b"{}") as answer,
    ):
        assert (answer.status, answer.headers["Retry-After"]) == (429, "5")
        assert await answer.read() == json.dumps(json.loads(error)).encode()


async def test_events_pass_while_the_pod_still_generates(caller: aiohttp.ClientSession) -> None:
    """Each reaches the caller before the pod makes the next."""
    gates = [asyncio.Event() for _ in range(5)]
    steps = [step for number, gate in enumerate(gates) for step in (b"data: %d\n\n" % number, gate)]
    async with (
        scripted_pod({"/there": streamed(*steps, content_type=SSE)}) as pod,
        carried_to(pod.url) as url,
        caller.post(url, data=b"{}") as answer,
    ):
        for number, gate in enumerate(gates):
            assert await soon(answer.content.readuntil(b"\n\n")) == b"data: %d\n\n" % number
            gate.set()
        assert await soon(answer.read()) == b""


async def test_the_body_passes_while_the_caller_still_sends(caller: aiohttp.ClientSession) -> None:
    """The pod has the first bytes before the caller has sent the last."""
    arrived, release = asyncio.Event(), asyncio.Event()

    async def body() -> AsyncIterator[bytes]:
        yield b"first"
        await arrived.wait()
        yield b"last"

    async def waits_for_first(request: web.Request) -> web.StreamResponse:
        assert await request.content.readexactly(5) == b"first"
        arrived.set()
        return web.Response(body=await request.read())

    async with scripted_pod({"/there": waits_for_first}) as pod, carried_to(pod.url) as url:
        pod.unread.add("/there")
        async with caller.post(url, data=body()) as answer:
            assert await soon(answer.read()) == b"last"
        release.set()
