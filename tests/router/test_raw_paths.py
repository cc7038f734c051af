import asyncio
import hashlib
import io
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import aiohttp
import pytest

from tests.support.polling import eventually, soon
from tests.support.router import DERENDER, GENERATE, RENDER, generate_pod, routed
from tests.support.scripted_pod import Does, ScriptedPod, json_answer, scripted_pod, streamed

ABORT = "/inference/v1/abort_requests"
RAW = {
    "/v1/chat/completions/render": "render",
    "/v1/completions/render": "render",
    "/v1/chat/completions/derender": "render",
    "/v1/completions/derender": "render",
    "/inference/v1/generate": "generate",
}


@pytest.mark.parametrize("path", RAW)
async def test_a_raw_path_is_carried_to_its_pods_as_it_is(
    path: str, render: ScriptedPod, generate: ScriptedPod, caller: aiohttp.ClientSession
) -> None:
    """Nothing is added or left out: any bytes go both ways, but what is rendered has to be JSON."""
    body, back = os.urandom(3_000_000), os.urandom(100_000)
    if path == RENDER:
        body = b'{ "messages":[] ,"x" : "' + body.translate(None, b'"\\') + b'"}\n'
    serving, other = (render, generate) if RAW[path] == "render" else (generate, render)
    serving.answers[path] = json_answer(back)
    async with (
        routed([render], [generate]) as url,
        caller.post(url + path, data=in_pieces(body), headers={"X-Request-Id": "mine"}) as answer,
    ):
        assert await answer.read() == back
    [seen] = serving.seen
    assert (seen.method, seen.path, seen.headers["X-Request-Id"]) == ("POST", path, "mine")
    assert hashlib.sha256(seen.body).digest() == hashlib.sha256(body).digest()
    assert other.begun == []


async def in_pieces(body: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(body), 100_000):
        yield body[start : start + 100_000]


async def test_a_generation_is_streamed(
    render: ScriptedPod, generate: ScriptedPod, caller: aiohttp.ClientSession
) -> None:
    """Each event reaches the caller while the next is not made."""
    go_on = asyncio.Event()
    generate.answers[GENERATE] = streamed(b"data: 1\n\n", go_on, b"data: [DONE]\n\n", content_type="text/event-stream")
    async with routed([render], [generate]) as url, caller.post(url + GENERATE, data=b'{"stream":true}') as answer:
        assert await soon(answer.content.readuntil(b"\n\n")) == b"data: 1\n\n"
        go_on.set()
        assert await soon(answer.read()) == b"data: [DONE]\n\n"


@pytest.mark.parametrize("path", [RENDER, DERENDER, GENERATE])
async def test_raw_paths_have_the_budgets_of_their_stage(
    path: str, render: ScriptedPod, generate: ScriptedPod, caller: aiohttp.ClientSession
) -> None:
    """504 that names the role."""
    pod = generate if path == GENERATE else render
    pod.answers[path] = streamed(Does.HANG)
    budget = {RENDER: "render_timeout_s", DERENDER: "derender_timeout_s", GENERATE: "generate_timeout_s"}[path]
    async with routed([render], [generate], **{budget: 0.5}) as url, caller.post(url + path, data=b"{}") as answer:
        assert answer.status == 504
        assert ("generate pod" if pod is generate else "render pod") in (await answer.json())["error"]["message"]
    await eventually(lambda: pod.left == [path])


async def test_a_pod_that_refuses_connections_is_left_out(
    render: ScriptedPod, generate: ScriptedPod, caller: aiohttp.ClientSession
) -> None:
    """From the first request on that finds it out, whatever was last known of the pod."""
    generate.answers[GENERATE] = json_answer(b"{}")
    async with AsyncExitStack() as running:
        gone = await running.enter_async_context(scripted_pod())
        async with routed([render], [gone, generate], probe_interval_s=60) as url:
            await running.aclose()
            statuses = []
            for _ in range(4):
                async with caller.post(url + GENERATE, data=b"{}") as answer:
                    statuses.append(answer.status)
    assert sorted(statuses) == [200, 200, 200, 503]


async def test_an_abort_is_told_to_every_generate_pod(render: ScriptedPod, caller: aiohttp.ClientSession) -> None:
    """Which of them serves an id is not known here, and one that has stopped being ready may well."""
    body = b'{"request_ids": ["a" ,"b"]}'
    async with generate_pod() as g1, generate_pod() as g2, generate_pod() as unready:
        unready.healthy = False
        for pod in (g1, g2, unready):
            pod.answers[ABORT] = json_answer(b"")
        async with routed([render], [g1, g2, unready], until_ready=False) as url:
            await eventually(lambda: g1.probes > 2 and g2.probes > 2 and unready.probes > 2)
            async with caller.post(url + ABORT, data=body, headers={"Authorization": "Bearer k"}) as answer:
                assert (answer.status, await answer.read()) == (200, b"")
        assert g1.bodies(ABORT) == g2.bodies(ABORT) == unready.bodies(ABORT) == [body]
        assert g1.seen[0].headers["Authorization"] == "Bearer k"
        assert render.begun == []


async def test_an_abort_does_not_fail_for_a_pod_that_is_gone(
    render: ScriptedPod, caller: aiohttp.ClientSession
) -> None:
    """It serves nobody. With all of them gone there is nobody to tell: 503."""
    async with generate_pod() as good:
        async with generate_pod() as gone:
            pass
        good.answers[ABORT] = json_answer(b"")
        async with (
            routed([render], [good, gone], until_ready=False) as url,
            caller.post(url + ABORT, data=b"{}") as told,
        ):
            assert told.status == 200
        async with routed([render], [gone], until_ready=False) as url, caller.post(url + ABORT, data=b"{}") as told:
            assert told.status == 503


async def test_an_abort_is_short(render: ScriptedPod, generate: ScriptedPod, caller: aiohttp.ClientSession) -> None:
    """It is held, and sent to every pod: 413 above a megabyte."""
    body = io.BytesIO(bytes(1024 * 1024 + 1))
    async with routed([render], [generate]) as url, caller.post(url + ABORT, data=body) as answer:
        assert answer.status == 413


async def test_a_pod_that_refuses_an_abort_does_not_keep_it_from_the_others(
    render: ScriptedPod, caller: aiohttp.ClientSession
) -> None:
    """They are told, also when they are slower than the refusal; the caller is told of the failure."""
    failed = asyncio.Event()
    async with generate_pod() as good, generate_pod() as bad:
        good.answers[ABORT] = streamed(failed, b"")
        bad.answers[ABORT] = json_answer(b"", 500)
        async with routed([render], [good, bad]) as url:
            asking = asyncio.create_task(caller.post(url + ABORT, data=b"{}"))
            await eventually(lambda: bad.bodies(ABORT) and good.bodies(ABORT))
            assert not asking.done()
            failed.set()
            async with await asking as answer:
                assert answer.status == 502
            assert good.bodies(ABORT) == [b"{}"]
            assert good.left == []


async def test_models_are_those_of_the_pods(
    render: ScriptedPod, generate: ScriptedPod, caller: aiohttp.ClientSession
) -> None:
    """As they last said."""
    generate.models = b'{"data":[{"id":"m"}]}'
    async with routed([render], [generate]) as url:
        async with caller.get(url + "/v1/models") as answer:
            assert await answer.json() == {"object": "list", "data": [{"id": "m"}]}
        async with caller.post(url + "/v1/models") as answer:
            assert answer.status == 405
    assert render.begun == []


@pytest.mark.parametrize("path", ["/v1/audio/speech", "/v1/embeddings", "/tokenize", "/inference/v1"])
async def test_other_paths_are_not_there(
    path: str, render: ScriptedPod, generate: ScriptedPod, caller: aiohttp.ClientSession
) -> None:
    """404, and no pod is asked."""
    async with routed([render], [generate]) as url, caller.post(url + path, data=b"{}") as answer:
        assert answer.status == 404
    assert render.begun == generate.begun == []


async def test_a_header_names_the_model(
    render: ScriptedPod, generate: ScriptedPod, caller: aiohttp.ClientSession
) -> None:
    """Where pods of several are behind the router; without it, which is meant is the caller's to say."""
    render.models, generate.models = b'{"data":[{"id":"a"}]}', b'{"data":[{"id":"b"}]}'
    render.answers[RENDER] = generate.answers[RENDER] = json_answer(b"{}")
    async with routed([render, generate], [generate]) as url:
        for name in ("a", "b", "a"):
            async with caller.post(url + RENDER, data=b"{}", headers={"X-Rendergen-Model": name}) as answer:
                assert answer.status == 200
        assert [len(pod.bodies(RENDER)) for pod in (render, generate)] == [2, 1]
        async with caller.post(url + RENDER, data=b"{}") as answer:
            assert answer.status == 400
        async with caller.post(url + RENDER, data=b"{}", headers={"X-Rendergen-Model": "c"}) as answer:
            assert answer.status == 404


REMOTE = b'{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"http://10.0.0.1/"}}]}]}'
INLINE = REMOTE.replace(b"http://10.0.0.1/", b"data:image/png;base64,AAAA")


@pytest.mark.parametrize("cut", [1, 40, 10_000])
async def test_render_is_not_sent_what_would_be_fetched(
    cut: int, render: ScriptedPod, generate: ScriptedPod, caller: aiohttp.ClientSession
) -> None:
    """The pod never gets the end of such a request; another goes on as it is."""

    async def pieces(body: bytes) -> AsyncIterator[bytes]:
        for start in range(0, len(body), cut):
            yield body[start : start + cut]

    async with routed([render], [generate]) as url:
        async with caller.post(url + RENDER, data=pieces(REMOTE)) as answer:
            assert answer.status == 400
            assert "data: URL" in (await answer.json())["error"]["message"]
        assert render.bodies(RENDER) == []
        async with caller.post(url + RENDER, data=pieces(INLINE)) as answer:
            assert answer.status == 200
        assert render.bodies(RENDER) == [INLINE]
