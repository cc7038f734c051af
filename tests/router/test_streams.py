"""Streamed answers: when the caller gets its status, what of a failure it is told, and who is told to stop."""

from __future__ import annotations

import asyncio
import json

import aiohttp
import pytest

from tests.support.derenderer import Derenderer, token, with_plugin
from tests.support.polling import eventually, soon
from tests.support.router import GENERATE, PAYLOAD, RENDER, generate_pod, render_pod, routed
from tests.support.scripted_pod import Answer, Does, ScriptedPod, json_answer, streamed

EVENTS = "text/event-stream"
DONE = b"data: [DONE]\n\n"
CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
MESSAGES = "/v1/messages"
RESPONSES = "/v1/responses"
PATHS = [CHAT, COMPLETIONS, MESSAGES, RESPONSES]

REQUEST = b'{"model":"m", "stream":true,\n "messages":[], "prompt":"p", "input":"i"}'


def generates(*steps: bytes | asyncio.Event | Does) -> Answer:
    """A generate pod's stream."""
    return streamed(*steps, content_type=EVENTS)


@pytest.fixture
def derenderer(render: ScriptedPod) -> Derenderer:
    """The render pod's plugin."""
    for path in PATHS:
        render.answers[f"{path}/render"] = json_answer(PAYLOAD)
    return with_plugin(render)


async def texts(answer: aiohttp.ClientResponse) -> list[str]:
    """What the events say, one after the other."""
    found = []
    for event in (await soon(answer.read())).split(b"\n\n"):
        if event.startswith(b"data: {"):
            found += [choice["text"] for choice in json.loads(event.removeprefix(b"data: ")).get("choices", ())]
    return found


@pytest.mark.parametrize("path", PATHS)
async def test_each_token_comes_as_it_is_generated(
    path: str, render: ScriptedPod, generate: ScriptedPod, derenderer: Derenderer, caller: aiohttp.ClientSession
) -> None:
    """The first is with the caller before the second is generated; derender gets generate's bytes as they were."""
    more = asyncio.Event()
    generate.answers[GENERATE] = generates(token(7), more, token(8) + b": comment\r\n\r\n", DONE)
    async with routed([render], [generate]) as url, caller.post(url + path, data=REQUEST) as answer:
        assert (answer.status, answer.content_type) == (200, EVENTS)
        first = await soon(answer.content.readuntil(b"\n\n"))
        assert b"[7]" in first
        more.set()
        assert await texts(answer) == ["[8]"]
    [context] = derenderer.contexts
    assert context["request"] == json.loads(REQUEST)
    assert context["prompt_token_ids"] == [1, 2, 3]
    assert context["sampling_params"] == {"temperature": 0.7, "stop_token_ids": [5], "seed": None, "max_tokens": 16}
    assert derenderer.generated == [token(7) + token(8) + b": comment\r\n\r\n" + DONE[:-1]]


async def test_an_answer_says_how_long_its_stages_took(
    render: ScriptedPod, generate: ScriptedPod, derenderer: Derenderer, caller: aiohttp.ClientSession
) -> None:
    """And has the caller's id, in the header and in its own."""
    generate.answers[GENERATE] = generates(token(7), DONE)
    headers = {"X-Request-Id": "mine"}
    async with routed([render], [generate]) as url, caller.post(url + CHAT, data=REQUEST, headers=headers) as answer:
        names = [part.split(";dur=")[0] for part in answer.headers["Server-Timing"].split(", ")]
        assert names == ["render", "generate", "derender"]
        assert answer.headers["X-Request-Id"] == "mine"
        assert b'"id": "chatcmpl-mine"' in await answer.read()
    ids = [seen.headers["X-Request-Id"] for seen in [*render.seen, *generate.seen]]
    assert len(set(ids)) == len(ids) == 2
    assert all(each.startswith("mine-") for each in ids)


ERROR = b'data: {"error":{"message":"too long","type":"BadRequestError","param":"messages","code":400}}\n\n'


async def test_an_error_that_comes_as_the_first_event_has_its_status(
    render: ScriptedPod, generate: ScriptedPod, derenderer: Derenderer, caller: aiohttp.ClientSession
) -> None:
    """Bare vLLM answers 200 and says it then."""
    generate.answers[GENERATE] = generates(ERROR, DONE)
    async with routed([render], [generate]) as url, caller.post(url + CHAT, data=REQUEST) as answer:
        assert answer.status == 400
        assert (await answer.json())["error"]["message"] == "too long"
    assert derenderer.contexts == []


async def test_what_derender_refuses_has_its_status(
    render: ScriptedPod, generate: ScriptedPod, derenderer: Derenderer, caller: aiohttp.ClientSession
) -> None:
    """And what is being generated for it is stopped."""
    render.answers[CHAT + "/derender/stream"] = json_answer(b'{"error":{"message":"no beams","code":400}}', 400)
    generate.answers[GENERATE] = generates(token(7), Does.HANG)
    async with routed([render], [generate]) as url, caller.post(url + CHAT, data=REQUEST) as answer:
        assert answer.status == 400
        assert (await answer.json())["error"]["message"] == "no beams"
        await eventually(lambda: generate.left == [GENERATE])


async def test_a_pod_that_dies_before_the_first_token_costs_nothing(
    render: ScriptedPod, generate: ScriptedPod, derenderer: Derenderer, caller: aiohttp.ClientSession
) -> None:
    """It is rendered anew and tried on the other pod, under an id of its own; the one that died is not asked again."""

    async with generate_pod() as other:
        for pod in (generate, other):
            pod.answers[GENERATE] = generates(Does.CUT)
        async with routed([render], [generate, other]) as url:
            async with caller.post(url + CHAT, data=REQUEST) as answer:
                assert answer.status == 502
            assert [len(pod.bodies(GENERATE)) for pod in (generate, other)] == [1, 1]
            assert len(render.bodies(RENDER)) == 2
            ids = [pod.seen[0].headers["X-Request-Id"] for pod in (generate, other)]
            assert len(set(ids)) == 2
            other.answers[GENERATE] = generate.answers[GENERATE] = generates(token(7), DONE)
            generate.answers[GENERATE] = generates(Does.CUT)
            for _ in range(2):  # whichever comes first, each time
                async with caller.post(url + CHAT, data=REQUEST) as answer:
                    assert await texts(answer) == ["[7]"]


@pytest.mark.parametrize("status", [400, 404, 409, 413, 429])
async def test_a_refusal_is_not_tried_again(
    status: int, render: ScriptedPod, generate: ScriptedPod, derenderer: Derenderer, caller: aiohttp.ClientSession
) -> None:
    """It is the caller's, and would be the same."""

    refuses = json_answer(b'{"error":{"message":"no","code":%d}}' % status, status)
    async with generate_pod() as other:
        generate.answers[GENERATE] = other.answers[GENERATE] = refuses
        async with (
            routed([render], [generate, other]) as url,
            caller.post(url + CHAT, data=REQUEST) as answer,
        ):
            assert answer.status == status
        assert len(generate.bodies(GENERATE)) + len(other.bodies(GENERATE)) == 1


@pytest.mark.parametrize("path", PATHS)
async def test_an_error_event_of_the_service_before_a_pod_is_told_in_the_apis_form(
    path: str, render: ScriptedPod, generate: ScriptedPod, derenderer: Derenderer, caller: aiohttp.ClientSession
) -> None:
    """The service knows OpenAI's form alone, and no end of a stream."""
    now = asyncio.Event()
    generate.answers[GENERATE] = generates(token(7), Does.HANG)
    error = b'data: {"error": {"message": "it died", "type": "BadGatewayError", "param": null, "code": 502}}\n\n'
    event = b'data: {"choices":[{"text":"[7]"}]}\n\n'
    render.answers[path + "/derender/stream"] = streamed(event, now, event + error, content_type=EVENTS)
    async with routed([render], [generate]) as url, caller.post(url + path, data=REQUEST) as answer:
        assert await soon(answer.content.readuntil(b"\n\n")) == event
        now.set()
        assert await soon(answer.content.readuntil(b"\n\n")) == event
        rest = await soon(answer.read())
    begins, ends = ENDS[path]
    assert rest.startswith(begins)
    assert rest.endswith(ends.replace(b" 1}", b" 2}"))
    assert rest.count(b"it died") == 1


async def test_such_an_error_as_the_first_event_has_its_status(
    render: ScriptedPod, generate: ScriptedPod, derenderer: Derenderer, caller: aiohttp.ClientSession
) -> None:
    """Nothing has been sent yet."""
    error = b'data: {"error": {"message": "it died", "type": "BadGatewayError", "param": null, "code": 502}}\n\n'
    generate.answers[GENERATE] = generates(token(7), Does.HANG)
    render.answers[CHAT + "/derender/stream"] = streamed(error, content_type=EVENTS)
    async with routed([render], [generate]) as url, caller.post(url + CHAT, data=REQUEST) as answer:
        assert answer.status == 502


ENDS = {
    CHAT: (b'data: {"error": {', DONE),
    COMPLETIONS: (b'data: {"error": {', DONE),
    MESSAGES: (b'event: error\ndata: {"type": "error", "error": {"type": "api_error", ', b"\n\n"),
    RESPONSES: (b'event: error\ndata: {"type": "error", "code": "502", ', b'"sequence_number": 1}\n\n'),
}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("dies", ["generate", "derender"])
async def test_a_pod_that_dies_later_ends_the_stream_with_one_error_in_the_apis_form(
    path: str,
    dies: str,
    render: ScriptedPod,
    generate: ScriptedPod,
    derenderer: Derenderer,
    caller: aiohttp.ClientSession,
) -> None:
    """It is not tried again: part of the answer is with the caller."""
    now = asyncio.Event()
    generate.answers[GENERATE] = generates(token(7), now, Does.CUT if dies == "generate" else Does.HANG)
    if dies == "derender":
        render.answers[path + "/derender/stream"] = streamed(
            b'data: {"choices":[{"text":"[7]"}]}\n\n', now, b"data: {half", Does.CUT, content_type=EVENTS
        )
    async with routed([render], [generate]) as url, caller.post(url + path, data=REQUEST) as answer:
        await soon(answer.content.readuntil(b"\n\n"))
        now.set()
        rest = await soon(answer.read())
    begins, ends = ENDS[path]
    assert rest.startswith(begins)
    assert rest.endswith(ends)
    assert b"half" not in rest
    assert b"127.0.0.1" not in rest
    assert len(generate.bodies(GENERATE)) == 1


async def test_a_caller_that_leaves_stops_the_work(
    render: ScriptedPod, generate: ScriptedPod, derenderer: Derenderer, caller: aiohttp.ClientSession
) -> None:
    """On both pods."""
    generate.answers[GENERATE] = generates(token(7), Does.HANG)
    async with routed([render], [generate]) as url:
        async with caller.post(url + CHAT, data=REQUEST) as answer:
            await soon(answer.content.readuntil(b"\n\n"))
        await eventually(lambda: generate.left == [GENERATE])
        await eventually(lambda: render.left == [CHAT + "/derender/stream"])


async def test_a_caller_that_leaves_after_the_end_has_not_left_early(
    render: ScriptedPod, generate: ScriptedPod, derenderer: Derenderer, caller: aiohttp.ClientSession
) -> None:
    """Clients close the connection at ``[DONE]``; log and metrics call that request answered."""
    generate.answers[GENERATE] = generates(token(7), DONE, Does.HANG)
    async with routed([render], [generate]) as url:
        async with caller.post(url + CHAT, data=REQUEST) as answer:
            await soon(answer.content.readuntil(b"[DONE]\n\n"))
        counted = 'rendergen_requests_total{method="POST",route="/v1/chat/completions",status="%d"} 1.0'

        async def shown(line: str) -> bool:
            async with caller.get(url + "/metrics") as metrics:
                return line in await metrics.text()

        await eventually(lambda: shown(counted % 200))


async def test_comments_keep_a_silent_stream_alive(
    render: ScriptedPod, generate: ScriptedPod, derenderer: Derenderer, caller: aiohttp.ClientSession
) -> None:
    """Between events, never within one."""
    more = asyncio.Event()
    generate.answers[GENERATE] = generates(token(7), more, token(8), DONE)
    async with (
        routed([render], [generate], keepalive_interval_s=0.02) as url,
        caller.post(url + CHAT, data=REQUEST) as answer,
    ):
        await soon(answer.content.readuntil(b"\n\n"))
        for _ in range(3):
            assert await soon(answer.content.readuntil(b"\n\n")) == b": keep-alive\n\n"
        more.set()
        assert "[8]" in await texts(answer)


@pytest.mark.parametrize("path", PATHS)
async def test_a_whole_answer_is_derendered_by_the_plugin_as_well(
    path: str, render: ScriptedPod, generate: ScriptedPod, derenderer: Derenderer, caller: aiohttp.ClientSession
) -> None:
    """It gets generate's whole answer, and its own is the caller's."""
    async with (
        routed([render], [generate]) as url,
        caller.post(url + path, data=REQUEST.replace(b"true", b"false"), headers={"X-Request-Id": "mine"}) as answer,
    ):
        assert (answer.status, answer.content_type) == (200, "application/json")
        assert (await answer.json())["id"].endswith("mine")
    assert json.loads(derenderer.generated[0])["choices"][0]["token_ids"] == [7, 8]


async def test_what_was_generated_is_not_lost_with_the_pod_that_derenders(
    render: ScriptedPod, generate: ScriptedPod, derenderer: Derenderer, caller: aiohttp.ClientSession
) -> None:
    """It is derendered on the other one, and not generated again."""

    async with render_pod() as other:
        with_plugin(other)
        for pod in (render, other):
            pod.answers[RENDER] = json_answer(PAYLOAD)
        other.answers[CHAT + "/derender/stream"] = streamed(Does.CUT)
        async with routed([render, other], [generate]) as url:
            for _ in range(2):
                async with caller.post(url + CHAT, data=REQUEST.replace(b"true", b"false")) as answer:
                    assert answer.status == 200
        assert len(generate.bodies(GENERATE)) == 2


@pytest.mark.parametrize("path", [MESSAGES, RESPONSES])
async def test_bare_pods_cannot_answer_these(
    path: str, render: ScriptedPod, generate: ScriptedPod, caller: aiohttp.ClientSession
) -> None:
    """501 that says why, before anything is rendered."""
    async with routed([render], [generate]) as url, caller.post(url + path, data=REQUEST) as answer:
        assert answer.status == 501
        assert "plugin" in (await answer.json())["error"]["message"]
    assert render.begun == []


@pytest.mark.parametrize(
    ("param", "told"),
    [("sampling_params.logit_bias", "logit_bias"), ("token_ids", None), ("logprobs", "logprobs"), (None, None)],
)
async def test_what_generate_says_of_the_payload_is_said_of_the_request(
    param: str | None,
    told: str | None,
    render: ScriptedPod,
    generate: ScriptedPod,
    derenderer: Derenderer,
    caller: aiohttp.ClientSession,
) -> None:
    """The caller has written a request, and no payload."""
    error = {"error": {"message": "no", "type": "BadRequestError", "param": param, "code": 400}}
    generate.answers[GENERATE] = json_answer(json.dumps(error).encode(), 400)
    async with routed([render], [generate]) as url, caller.post(url + CHAT, data=REQUEST) as answer:
        assert (await answer.json())["error"]["param"] == told
