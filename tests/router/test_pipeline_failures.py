"""What the caller is told when a pod fails, at each stage, and what becomes of the others' work."""

import asyncio
import json

import aiohttp
import pytest
from aiohttp import web

from tests.support.polling import eventually, soon
from tests.support.router import CHAT, DERENDER, GENERATE, GENERATED, PAYLOAD, RENDER, REQUEST, render_pod, routed
from tests.support.scripted_pod import Answer, Does, ScriptedPod, json_answer, raw, streamed

NO = b'{"error":{"message":"as the pod says","type":"T","param":"p","code":0}}'
HALF = len(PAYLOAD) // 2


async def told(
    render: ScriptedPod, generate: ScriptedPod, caller: aiohttp.ClientSession, **settings: float
) -> tuple[int, str]:
    """Status and message that the caller gets."""
    async with routed([render], [generate], **settings) as url, caller.post(url + CHAT, data=REQUEST) as answer:
        error = (await soon(answer.json()))["error"]
        assert error["code"] == answer.status
        assert "127.0.0.1" not in json.dumps(error)
        return answer.status, error["message"]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 429])
async def test_a_refusal_of_render_is_passed_on(
    status: int, render: ScriptedPod, generate: ScriptedPod, caller: aiohttp.ClientSession
) -> None:
    """And generate is never asked."""
    render.answers[RENDER] = json_answer(NO, status)
    assert await told(render, generate, caller) == (status, "as the pod says")
    assert generate.begun == []


@pytest.mark.parametrize("status", [400, 413, 429])
async def test_generate_may_refuse_while_the_payload_is_still_sent(
    status: int, render: ScriptedPod, generate: ScriptedPod, caller: aiohttp.ClientSession
) -> None:
    """Its refusal is passed on at once, and render's work is ended; derender is not asked."""
    render.answers[RENDER] = streamed(PAYLOAD[:HALF], Does.HANG)
    generate.answers[GENERATE] = json_answer(NO, status)
    generate.unread.add(GENERATE)
    assert await told(render, generate, caller) == (status, "as the pod says")
    await eventually(lambda: render.left == [RENDER])
    assert render.bodies(DERENDER) == []


@pytest.mark.parametrize("status", [400, 413])
async def test_generate_may_refuse_a_large_payload_unread(
    status: int, render: ScriptedPod, generate: ScriptedPod, caller: aiohttp.ClientSession
) -> None:
    """It answers, reads nothing more and closes, with megabytes still on their way."""
    large = b'{"token_ids":[1],"features":"' + b"x" * 16_000_000 + b'"}'
    head = b"HTTP/1.1 %d No\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (status, len(NO))
    render.answers[RENDER] = json_answer(large)
    generate.answers[GENERATE] = raw(head + NO)
    generate.unread.add(GENERATE)
    assert await told(render, generate, caller) == (status, "as the pod says")


NO_PAYLOAD = {
    "no token ids": b'{"sampling_params":{}}',
    "token ids are no list": b'{"token_ids":"[1]","sampling_params":{}}',
    "token ids are null": b'{"token_ids":null}',
    "no json": b"<html></html>",
    "a list": b'[{"token_ids":[1]},{"token_ids":[2]}]',
    "nothing": b"",
    "half": PAYLOAD[:HALF],
    "two": PAYLOAD + PAYLOAD,
    "sampling params are a list": b'{"token_ids":[1],"sampling_params":[]}',
    "a member twice": b'{"token_ids":[1],"token_ids":[2]}',
}


@pytest.mark.parametrize("payload", NO_PAYLOAD.values(), ids=NO_PAYLOAD)
async def test_what_is_no_payload_is_render_s_failure(
    payload: bytes, render: ScriptedPod, generate: ScriptedPod, caller: aiohttp.ClientSession
) -> None:
    """502 that names the render pod, and derender is not asked."""
    render.answers[RENDER] = json_answer(payload)
    status, message = await told(render, generate, caller)
    assert status == 502
    assert "render pod" in message
    assert render.bodies(DERENDER) == []


@pytest.mark.parametrize("name", ["no json", "a list", "nothing", "half", "sampling params are a list"])
async def test_generate_never_gets_a_whole_request_of_what_is_no_payload(
    name: str, render: ScriptedPod, generate: ScriptedPod, caller: aiohttp.ClientSession
) -> None:
    """Its connection is closed before the request's end, so it has nothing to run."""
    render.answers[RENDER] = json_answer(NO_PAYLOAD[name])
    await told(render, generate, caller)
    await eventually(lambda: len(generate.left) == len(generate.begun))
    assert generate.seen == []


@pytest.mark.parametrize("last", [b"", b"\r\nno chunk"], ids=["closes", "breaks http"])
async def test_render_may_die_within_the_payload(
    last: bytes, render: ScriptedPod, generate: ScriptedPod, caller: aiohttp.ClientSession
) -> None:
    """502 that names the render pod; generate's request stays incomplete, and its connection is closed.

    If the pod breaks HTTP itself, the client library closes the connection without telling the body's reader, so that
    it ends with render's budget.
    """

    async def dies(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(PAYLOAD[:HALF])
        await eventually(lambda: generate.begun)
        assert request.transport is not None
        request.transport.write(last)
        request.transport.close()
        raise ConnectionResetError("as scripted")

    render.answers[RENDER] = dies
    status, message = await told(render, generate, caller, render_timeout_s=1 if last else 15)
    assert status in ((502, 504) if last else (502,))
    assert "render pod" in message
    await eventually(lambda: generate.left == [GENERATE])
    assert generate.seen == []


async def test_render_may_die_when_generate_answers_already(
    render: ScriptedPod, generate: ScriptedPod, caller: aiohttp.ClientSession
) -> None:
    """The failure is still render's, and is not waited for until generate's budget is spent."""
    answering = asyncio.Event()

    async def dies(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(PAYLOAD[:HALF])
        await answering.wait()
        assert request.transport is not None
        request.transport.close()
        raise ConnectionResetError("as scripted")

    async def early(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"{")
        answering.set()
        await asyncio.Event().wait()
        return response

    render.answers[RENDER], generate.answers[GENERATE] = dies, early
    generate.unread.add(GENERATE)
    status, message = await told(render, generate, caller)
    assert status == 502
    assert "render pod" in message


FAILURES: dict[str, Answer] = {
    "500": json_answer(b'{"error":{"message":"Traceback at 127.0.0.1"}}', 500),
    "html": json_answer(b"<html>", 500),
    "closes": streamed(Does.CUT),
    "half a body": streamed(b'{"id"', Does.CUT),
    "half a json": json_answer(b'{"id":'),
    "a list": json_answer(b"[]"),
    "no json": json_answer(b"hello"),
    "nothing": json_answer(b""),
    "no http": raw(b"\x00\x01garbage"),
    "a redirect": json_answer(b"", 302, {"Location": "http://127.0.0.1:9/"}),
    "too much": streamed(b'{"id":"', *[b"x" * 500_000] * 3, b'"}'),
}


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
@pytest.mark.parametrize(("path", "role"), [(GENERATE, "generate pod"), (DERENDER, "render pod")])
async def test_nonsense_is_the_failure_of_who_said_it(
    failure: Answer,
    path: str,
    role: str,
    render: ScriptedPod,
    generate: ScriptedPod,
    caller: aiohttp.ClientSession,
) -> None:
    """502 that names the pod, and nothing of what it said."""
    (generate if path == GENERATE else render).answers[path] = failure
    status, message = await told(render, generate, caller, max_body_bytes=1_000_000)
    assert status == 502
    assert role in message
    assert "Traceback" not in message
    if path == GENERATE:
        assert render.bodies(DERENDER) == []


async def test_what_cannot_be_derendered_is_the_failure_of_the_generate_pod(
    render: ScriptedPod, generate: ScriptedPod, caller: aiohttp.ClientSession
) -> None:
    """The caller's request has been rendered, so a derender's 400 is not about it: 502, with none of its words."""
    render.answers[DERENDER] = json_answer(b'{"error":{"message":"body.generate_response","type":"x"}}', 400)
    status, message = await told(render, generate, caller)
    assert status == 502
    assert message == "The generate pod's answer is none that can be derendered."


async def test_a_render_pod_that_is_not_ready_any_more_still_derenders(
    render: ScriptedPod, generate: ScriptedPod, caller: aiohttp.ClientSession
) -> None:
    """With none ready the one that rendered is asked: what was generated is not lost to a probe."""
    go_on = asyncio.Event()
    generate.answers[GENERATE] = streamed(go_on, GENERATED)
    async with routed([render], [generate]) as url:
        asking = asyncio.create_task(caller.post(url + CHAT, data=REQUEST))
        await eventually(lambda: generate.seen)
        render.healthy = False
        await eventually(lambda: _is_refused(caller, url))
        go_on.set()
        async with await soon(asking) as answer:
            assert answer.status == 200


async def _is_refused(caller: aiohttp.ClientSession, url: str) -> bool:
    async with caller.get(url + "/readyz") as answer:
        return answer.status == 503


STALLS = {
    "render": (RENDER, "render_timeout_s", "render pod", streamed(Does.HANG)),
    "render, within the payload": (RENDER, "render_timeout_s", "render pod", streamed(PAYLOAD[:HALF], Does.HANG)),
    "generate": (GENERATE, "generate_timeout_s", "generate pod", streamed(Does.HANG)),
    "generate, within its answer": (GENERATE, "generate_timeout_s", "generate pod", streamed(b"{", Does.HANG)),
    "derender": (DERENDER, "derender_timeout_s", "render pod", streamed(Does.HANG)),
    "derender, within its answer": (DERENDER, "derender_timeout_s", "render pod", streamed(b"{", Does.HANG)),
}


@pytest.mark.parametrize("case", STALLS.values(), ids=STALLS)
async def test_a_stage_over_its_budget_is_a_504_that_names_it(
    case: tuple[str, str, str, Answer], render: ScriptedPod, generate: ScriptedPod, caller: aiohttp.ClientSession
) -> None:
    """And the connection to that pod is closed, which ends its work."""
    path, budget, role, stall = case
    pod = generate if path == GENERATE else render
    pod.answers[path] = stall
    status, message = await told(render, generate, caller, **{budget: 0.5})
    assert status == 504
    assert role in message
    assert "0.5 s" in message
    await eventually(lambda: pod.left == [path])
    assert generate.seen == [] or path != RENDER


async def test_what_was_generated_is_derendered_on_another_pod(
    render: ScriptedPod, generate: ScriptedPod, caller: aiohttp.ClientSession
) -> None:
    """It is not generated again."""
    async with render_pod() as other, routed([render, other], [generate]) as url:
        other.answers[DERENDER] = streamed(Does.CUT)
        for _ in range(2):
            async with caller.post(url + CHAT, data=REQUEST) as answer:
                assert answer.status == 200
        assert len(generate.bodies(GENERATE)) == 2
