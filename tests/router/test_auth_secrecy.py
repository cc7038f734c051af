"""That no key, and no place of a file with keys, gets out of the router."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import pytest

from rendergen.service import logs
from tests.support.api_keys import NOBODY, A, B, rewrite
from tests.support.polling import eventually, soon
from tests.support.raw_caller import raw_caller
from tests.support.router import CHAT, RENDER, REQUEST, routed
from tests.support.scripted_pod import Does, ScriptedPod, json_answer, streamed


def told_bad(caplog: pytest.LogCaptureFixture) -> set[str]:
    """The settings whose files the log calls bad."""
    return {record.__dict__.get("setting") for record in caplog.records if record.levelno == logging.ERROR} - {None}


async def test_no_answer_and_no_log_line_holds_a_key(
    render: ScriptedPod,
    generate: ScriptedPod,
    caller: aiohttp.ClientSession,
    keys_file: Path,
    pod_key_file: Path,
    everything_logged: pytest.LogCaptureFixture,
) -> None:
    """Whatever is answered, and whatever goes wrong, at the most talkative level; nor is the files' place told."""
    kept: list[str] = []
    settings = {"api_keys_file": keys_file, "pod_api_key_file": pod_key_file}

    async def call(url: str, method: str, path: str, body: bytes, **headers: str) -> None:
        async with caller.request(method, url + path, data=body, headers=headers) as answer:
            kept.append(str(dict(answer.headers)))
            try:
                kept.append((await answer.read()).decode())
            except aiohttp.ClientError as error:
                kept.append(str(error))

    async with routed([render], [generate], **settings) as url:
        for key in (A, B, NOBODY, A + "\u00e9"):
            for headers in ({"Authorization": f"Bearer {key}"}, {"x-api-key": key}, {"Authorization": key}):
                await call(url, "POST", CHAT, REQUEST, **headers)
                await call(url, "POST", CHAT, b"no JSON", **headers)
                await call(url, "GET", "/none", b"", **headers)
                await call(url, "GET", "/livez", b"", **headers)
        failures = (
            json_answer(b'{"error":{"message":"no","type":"x"}}', 400),
            json_answer(b'{"error":"Unauthorized"}', 401),
            json_answer(b"oh", 500),
            streamed(b"half", Does.CUT),
            streamed(Does.CUT),
        )
        for failure in failures:
            render.answers[RENDER] = failure
            await call(url, "POST", CHAT, REQUEST, Authorization=f"Bearer {A}")
            await call(url, "POST", RENDER, REQUEST, Authorization=f"Bearer {A}")
        rewrite(keys_file, f"alice {A}\n")  # the key itself, by mistake
        rewrite(pod_key_file, "of-the-pods and more\n")
        await eventually(lambda: told_bad(everything_logged) == {"--api-keys-file", "--pod-api-key-file"})
        await call(url, "POST", CHAT, REQUEST, Authorization=f"Bearer {A}")
        await call(url, "GET", "/metrics", b"")
    assert any("chat.completion" in text for text in kept), "some were served"
    kept += [str(record.__dict__) for record in everything_logged.records]
    secrets = (A, B, NOBODY, "of-the-pods", "secret-place", A[:24], B[:24], NOBODY[:24])
    assert [text for text in kept if any(secret in text for secret in secrets)] == []


TOO_LONG = [b"Authorization: Bearer %b", b"x-api-key: %b"]


@pytest.mark.parametrize("header", TOO_LONG)
@pytest.mark.parametrize("tail", [b"k" * 1024 * 1024, b"\x00"], ids=["a megabyte", "a zero byte"])
async def test_a_header_that_is_no_http(
    header: bytes,
    tail: bytes,
    render: ScriptedPod,
    generate: ScriptedPod,
    keys_file: Path,
    everything_logged: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Is refused by the HTTP server itself; the log does not quote it. (Its answer does, to him who sent it.)"""
    async with serving_logs(), routed([render], [generate], api_keys_file=keys_file) as url, raw_caller(url) as caller:
        await caller.send(b"POST %b HTTP/1.1\r\nHost: x\r\n" % CHAT.encode())
        with suppress(ConnectionError):
            await caller.send(header % (A.encode() + tail) + b"\r\n\r\n")
        assert (await soon(caller.rest()))[:12] in (b"HTTP/1.0 400", b"HTTP/1.1 400", b"")
    err = capsys.readouterr().err
    assert "request is no HTTP" in err
    assert A[:24] not in err


@asynccontextmanager
async def serving_logs() -> AsyncIterator[None]:
    """Logs as a service process writes them."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    logs.configure("router", "debug")
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
