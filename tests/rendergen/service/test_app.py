import asyncio
import json
import logging

import aiohttp
import pytest
from aiohttp import web

from rendergen.service.app import make_app
from rendergen.service.errors import PodFailed, ServiceError
from rendergen.service.metrics import ServiceMetrics
from tests.support.polling import eventually, soon
from tests.support.raw_caller import raw_caller
from tests.support.service import QUICK, PlainSettings, app_served, handler_served


async def ok(_: web.Request) -> web.Response:
    return web.json_response({})


async def fails(_: web.Request) -> web.Response:
    raise KeyError("secret at 10.1.2.3 in /etc/key")


async def fails_within(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    await response.write(b"half")
    raise KeyError("secret")


async def refuses(_: web.Request) -> web.Response:
    raise PodFailed("The pod failed: \ud800.")


async def failed(url: str, caller: aiohttp.ClientSession, method: str = "GET") -> tuple[int, dict[str, object]]:
    async with caller.request(method, url) as answer:
        error = json.loads(await answer.read())["error"]
        assert answer.content_type == "application/json"
        assert error.keys() == {"message", "type", "param", "code"}
        assert error["code"] == answer.status
        return answer.status, error


async def test_a_failure_within_an_answer_cuts_it_off() -> None:
    """No second head is written into it, and it does not end as if it were whole."""
    async with handler_served(fails_within) as url, raw_caller(url) as caller:
        await caller.send(b"GET /path HTTP/1.1\r\nHost: x\r\n\r\n")
        received = await soon(caller.rest())
    assert b"HTTP/1.1 500" not in received
    assert not received.endswith(b"0\r\n\r\n")


@pytest.mark.parametrize("path", ["/", "/none", "/path/", "/v1", "/%ff", "/%00", "/a%0d%0ab", "/é", "/path%2f"])
async def test_an_unknown_path_is_a_404(path: str, caller: aiohttp.ClientSession) -> None:
    """In OpenAI's form, whatever the path holds."""
    async with handler_served(ok) as url:
        assert (await failed(url + path, caller))[0] == 404


async def test_a_path_that_is_no_utf_8_is_a_404() -> None:
    """The message repeats the path, which has no UTF-8 form here."""
    async with handler_served(ok) as url, raw_caller(url) as caller:
        await caller.send(b"GET /\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n")
        status, _, body = await soon(caller.answer())
    assert status in (400, 404)
    assert status == 400 or json.loads(body)["error"]["code"] == 404


async def test_a_known_path_with_another_method_is_a_405(caller: aiohttp.ClientSession) -> None:
    """It says which methods there are."""
    async with handler_served(ok) as url:
        status, error = await failed(url + "/livez", caller, "DELETE")
        async with caller.delete(url + "/livez") as answer:
            assert answer.headers["Allow"] == "GET,HEAD"
    assert status == 405
    assert "GET" in str(error["message"])


async def test_an_unexpected_failure_tells_nothing(
    caller: aiohttp.ClientSession, caplog: pytest.LogCaptureFixture
) -> None:
    """500 without a detail; the log has the traceback."""
    async with handler_served(fails) as url:
        status, error = await failed(url + "/path", caller)
    assert status == 500
    assert not any(secret in json.dumps(error) for secret in ("secret", "10.1.2.3", "KeyError", "/etc"))
    [record] = [record for record in caplog.records if record.exc_info]
    assert "secret at 10.1.2.3" in (record.exc_text or str(record.exc_info))


async def test_a_service_error_is_told(caller: aiohttp.ClientSession) -> None:
    """With its status and its message, also one that has no UTF-8 form."""
    async with handler_served(refuses) as url:
        status, error = await failed(url + "/path", caller)
    assert (status, error["message"], error["type"]) == (502, "The pod failed: \ud800.", "BadGatewayError")


@pytest.mark.parametrize("path", ["/path", "/livez", "/readyz", "/metrics", "/none", "/fails", "/refuses"])
@pytest.mark.parametrize("given", ["mine", "not taken", None])
async def test_every_answer_has_the_request_id_and_no_server(
    path: str, given: str | None, caller: aiohttp.ClientSession
) -> None:
    """The caller's id where it is harmless, else one of ours, new for each request; errors included."""
    app = make_app(ServiceMetrics(), lambda: True)
    for name, handler in (("/path", ok), ("/fails", fails), ("/refuses", refuses)):
        app.router.add_get(name, handler)
    seen = set()
    async with app_served(app, PlainSettings(**QUICK)) as url:
        for _ in range(2):
            async with caller.get(url + path, headers={"X-Request-Id": given} if given else None) as answer:
                assert "Server" not in answer.headers
                seen.add(*answer.headers.getall("X-Request-Id"))
    assert seen == {"mine"} if given == "mine" else len(seen) == 2 and "not taken" not in seen


async def test_a_repeated_request_id_is_not_taken() -> None:
    """Which of them was meant is anyone's guess."""
    async with handler_served(ok) as url, raw_caller(url) as caller:
        await caller.send(b"GET /path HTTP/1.1\r\nHost: x\r\nX-Request-Id: a\r\nX-Request-Id: b\r\n\r\n")
        status, head, _ = await soon(caller.answer())
    assert status == 200
    [line] = [line for line in head.split(b"\r\n") if line.lower().startswith(b"x-request-id:")]
    assert len(line) == len("X-Request-Id: ") + 32


@pytest.mark.parametrize("value", [b"x" * 1_000_000, b"a\x00b", b"a\nb"])
async def test_a_request_id_that_is_no_header_is_a_400(value: bytes) -> None:
    """A megabyte, or control characters: the head is refused, nothing of ours is told, and the service goes on."""
    async with handler_served(ok) as url:
        async with raw_caller(url) as caller:
            await caller.send(b"GET /path HTTP/1.1\r\nHost: x\r\nX-Request-Id: " + value + b"\r\n\r\n")
            status, _, body = await soon(caller.answer())
        assert status == 400
        assert b"Traceback" not in body
        async with raw_caller(url) as caller:
            await caller.send(b"GET /path HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await soon(caller.answer()))[0] == 200


async def test_metrics_have_a_bounded_number_of_series(caller: aiohttp.ClientSession) -> None:
    """Unknown paths and methods share one route: a label must not have as many values as callers have ideas."""
    async with handler_served(ok) as url:

        async def series() -> int:
            async with caller.get(url + "/metrics") as answer:
                assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
                text = await answer.text()
                assert "/random" not in text
                return text.count("\nrendergen_request")

        await failed(url + "/random", caller)
        await series()
        before = await series()
        for number in range(30):
            await failed(f"{url}/random{number}?a={number}", caller)
        assert await series() == before


async def test_metrics_count_requests(caller: aiohttp.ClientSession) -> None:
    """By method, route and status, with the bytes both ways."""

    async def echo(request: web.Request) -> web.Response:
        return web.Response(body=await request.read())

    async with handler_served(echo) as url:
        for _ in range(3):
            async with caller.post(url + "/path", data=b"x" * 1000) as answer:
                await answer.read()
        async with caller.get(url + "/metrics") as answer:
            text = await answer.text()
    assert 'rendergen_requests_total{method="POST",route="/path",status="200"} 3.0' in text
    assert 'rendergen_request_seconds_count{method="POST",route="/path"} 3.0' in text
    assert 'rendergen_body_bytes_total{direction="in"} 3000.0' in text
    assert 'rendergen_body_bytes_total{direction="out"} 3000.0' in text


async def test_each_request_is_a_line_in_the_log(
    caller: aiohttp.ClientSession, caplog: pytest.LogCaptureFixture
) -> None:
    """With status and route; those that are asked every second only in the debug log."""
    caplog.set_level(logging.INFO)
    async with handler_served(refuses) as url:
        for path in ("/path?key=secret", "/none", "/livez", "/metrics", "/readyz"):
            async with caller.get(url + path):
                pass
        await eventually(lambda: sum(record.message == "request" for record in caplog.records) == 2)
    lines = [vars(record) for record in caplog.records if record.message == "request"]
    assert [(line["method"], line["route"], line["status"]) for line in lines] == [
        ("GET", "/path", 502),
        ("GET", "unknown", 404),
    ]
    assert "secret" not in str(lines)


async def test_readiness_asks_what_is_behind(caller: aiohttp.ClientSession) -> None:
    """503 while it cannot serve; liveness is another matter."""
    ready = False
    app = make_app(ServiceMetrics(), lambda: ready)
    async with app_served(app, PlainSettings(**QUICK)) as url:
        for expected in (503, 200):
            for path in ("/readyz", "/health"):
                async with caller.get(url + path) as answer:
                    assert answer.status == expected
            async with caller.get(url + "/livez") as answer:
                assert answer.status == 200
            ready = True


async def test_a_caller_that_leaves_cancels_its_request(caller: aiohttp.ClientSession) -> None:
    """The handler is told at once, by cancellation."""
    begun, told = asyncio.Event(), asyncio.Event()

    async def waits(_: web.Request) -> web.Response:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            told.set()
        raise ServiceError("not reached")

    async with handler_served(waits) as url, raw_caller(url) as leaver:
        await leaver.send(b"GET /path HTTP/1.1\r\nHost: x\r\n\r\n")
        await soon(begun.wait())
        leaver.leave()
        await soon(told.wait())
