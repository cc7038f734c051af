"""Completions of several prompts: each is forwarded on its own, and the caller gets one answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web

from rendergen.payload import Document
from rendergen.service.deadline import Deadline
from rendergen.service.errors import TooLarge
from router import apis
from router.answer import StreamedAnswer
from router.api_request import ApiRequest
from router.media import Media
from router.metrics import RouterMetrics
from router.prompts import MAX_BEGINNING, MAX_COPIED_BYTES, answer_all, requests_of
from tests.support.derenderer import Derenderer, token, with_plugin
from tests.support.polling import eventually, soon
from tests.support.router import GENERATE, routed
from tests.support.scripted_pod import Answer, Does, ScriptedPod, json_answer, streamed

COMPLETIONS = "/v1/completions"
RENDER = "/v1/completions/render"
EVENTS = "text/event-stream"


@pytest.fixture
def derenderer(render: ScriptedPod) -> Derenderer:
    """The plugin of a render pod whose payloads say which prompt they are of."""
    render.answers[RENDER] = renders
    return with_plugin(render)


async def renders(request: web.Request) -> web.StreamResponse:
    """A list of one payload, as vLLM has it."""
    asked = json.loads(await request.read())
    return web.json_response(
        [{"token_ids": [len(asked["prompt"])], "features": asked["prompt"], "sampling_params": {}}]
    )


def body(prompt: object, **members: object) -> bytes:
    """A request."""
    return json.dumps({"model": "m", "prompt": prompt, **members}).encode()


def generates(by_prompt: dict[str, Answer]) -> Answer:
    """Generate's answer to each prompt."""

    async def answer(request: web.Request) -> web.StreamResponse:
        return await by_prompt[json.loads(await request.read())["features"]](request)

    return answer


@pytest.mark.parametrize(
    ("prompt", "rendered"),
    [
        ("one", ["one"]),
        (["one"], [["one"]]),
        ([1, 2, 3], [[1, 2, 3]]),
        ([[1, 2, 3]], [[[1, 2, 3]]]),
        (["a", 'b"]', ""], ["a", 'b"]', ""]),
        ([[1], [2, 3]], [[1], [2, 3]]),
        (["a", [1]], [["a", [1]]]),  # for vLLM to refuse
    ],
)
async def test_each_prompt_is_a_request_of_its_own(
    prompt: object,
    rendered: list[object],
    render: ScriptedPod,
    generate: ScriptedPod,
    derenderer: Derenderer,
    caller: aiohttp.ClientSession,
) -> None:
    """With every other member as it was; one prompt goes on as it came."""
    async with (
        routed([render], [generate]) as url,
        caller.post(url + COMPLETIONS, data=body(prompt, seed=7)) as answer,
    ):
        assert answer.status == 200, await answer.text()
        choices = (await answer.json())["choices"]
    sent = [json.loads(each) for each in render.bodies(RENDER)]
    assert sorted(json.dumps(each["prompt"]) for each in sent) == sorted(map(json.dumps, rendered))
    assert all({**each, "prompt": None} == {"model": "m", "prompt": None, "seed": 7} for each in sent)
    assert [choice["index"] for choice in choices] == [*range(len(rendered))]
    assert len(generate.bodies(GENERATE)) == len(rendered)


async def test_answers_are_in_the_order_of_the_prompts_whichever_is_done_first(
    render: ScriptedPod, generate: ScriptedPod, derenderer: Derenderer, caller: aiohttp.ClientSession
) -> None:
    """And tokens are counted together."""
    second_done = asyncio.Event()
    whole = b'{"choices":[{"index":0,"token_ids":[%d]}]}'
    generate.answers[GENERATE] = generates({"a": streamed(second_done, whole % 1), "b": json_answer(whole % 2)})

    async def derender(request: web.Request) -> web.StreamResponse:
        context = json.loads(await request.content.readline())
        text = context["request"]["prompt"]
        second_done.set()
        choices = [{"index": index, "text": f"{text}{index}"} for index in range(2)]
        usage = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3, "prompt_tokens_details": None}
        return web.json_response({"id": context["request_id"], "choices": choices, "usage": usage})

    render.answers[f"{COMPLETIONS}/derender/stream"] = derender
    async with (
        routed([render], [generate]) as url,
        caller.post(url + COMPLETIONS, data=body(["a", "b"], n=2), headers={"X-Request-Id": "mine"}) as answer,
    ):
        read = await soon(answer.json())
    assert [(choice["index"], choice["text"]) for choice in read["choices"]] == [
        (0, "a0"),
        (1, "a1"),
        (2, "b0"),
        (3, "b1"),
    ]
    assert read["id"] == "cmpl-mine"
    assert read["usage"] == {
        "prompt_tokens": 2,
        "completion_tokens": 4,
        "total_tokens": 6,
        "prompt_tokens_details": None,
    }


async def test_streams_are_one_stream(
    render: ScriptedPod, generate: ScriptedPod, derenderer: Derenderer, caller: aiohttp.ClientSession
) -> None:
    """Each event as it comes, its choice numbered among all; usage and ``[DONE]`` once, last."""
    first, second = asyncio.Event(), asyncio.Event()
    done = b"data: [DONE]\n\n"
    generate.answers[GENERATE] = generates(
        {
            "a": streamed(token(7), first, token(8, index=1), done, content_type=EVENTS),
            "b": streamed(token(9), second, token(10, index=1), done, content_type=EVENTS),
        }
    )
    found = []
    async with (
        routed([render], [generate]) as url,
        caller.post(url + COMPLETIONS, data=body(["a", "b"], n=2, stream=True)) as answer,
    ):
        while len(found) < 6:
            event = (await soon(answer.content.readuntil(b"\n\n"))).removeprefix(b"data: ").strip()
            found.append(json.loads(event) if event != b"[DONE]" else "done")
            if len(found) == 2:
                second.set()
            elif len(found) == 3:
                first.set()
        assert await answer.content.read() == b""
    *events, usage, last = found
    told = [(choice["index"], choice["text"]) for event in events for choice in event["choices"]]
    assert sorted(told[:2]) == [(0, "[7]"), (2, "[9]")]
    assert told[2:] == [(3, "[10]"), (1, "[8]")]
    assert (usage["choices"], usage["usage"]["total_tokens"], last) == ([], 10, "done")


@pytest.mark.parametrize("stream", [False, True])
async def test_many_prompts_do_not_fill_a_pods_queue(
    stream: bool, render: ScriptedPod, generate: ScriptedPod, derenderer: Derenderer, caller: aiohttp.ClientSession
) -> None:
    """Some begin at a time; those that have begun make room, though no stream is told before all have."""
    here, most, go_on = 0, 0, asyncio.Event()

    async def renders_when_told(request: web.Request) -> web.StreamResponse:
        nonlocal here, most
        here += 1
        most = max(most, here)
        await go_on.wait()
        here -= 1
        return await renders(request)

    render.answers[RENDER] = renders_when_told
    whole = json_answer(b'{"choices":[{"index":0,"token_ids":[1]}]}')
    generate.answers[GENERATE] = streamed(token(7), b"data: [DONE]\n\n", content_type=EVENTS) if stream else whole
    count = 3 * MAX_BEGINNING
    async with routed([render], [generate]) as url:
        asked = asyncio.create_task(caller.post(url + COMPLETIONS, data=body(["a"] * count, stream=stream)))
        await eventually(lambda: here >= MAX_BEGINNING)
        for _ in range(count):  # time enough for others to come, if they did
            async with caller.get(url + "/livez") as alive:
                assert alive.status == 200
        go_on.set()
        async with await soon(asked) as answer:
            read = await soon(answer.read())
    assert (answer.status, most) == (200, MAX_BEGINNING)
    assert read.count(b'"index"') == count


@pytest.mark.parametrize("n", [2, "2", 2.0])
async def test_choices_are_numbered_by_how_many_each_prompt_has(
    n: object,
    render: ScriptedPod,
    generate: ScriptedPod,
    derenderer: Derenderer,
    caller: aiohttp.ClientSession,
) -> None:
    """In each form that vLLM takes."""
    events = (token(7), token(8, index=1), b"data: [DONE]\n\n")
    generate.answers[GENERATE] = streamed(*events, content_type=EVENTS)
    async with (
        routed([render], [generate]) as url,
        caller.post(url + COMPLETIONS, data=body(["a", "b"], stream=True, n=n)) as answer,
    ):
        told = [json.loads(line[6:]) async for line in answer.content if line.startswith(b"data: {")]
    assert sorted(choice["index"] for event in told for choice in event["choices"]) == [0, 1, 2, 3]


async def test_what_all_prompts_have_in_common_is_bounded() -> None:
    """It is sent with each: a body of megabytes with many prompts would be gigabytes here."""

    def asked(junk_bytes: int) -> ApiRequest:
        common = len(body("", junk="")) - len('""')
        junk = "x" * (junk_bytes - common)
        return ApiRequest(apis.COMPLETIONS, {}, Document.of(body(["a", "b"], junk=junk)), Media(), "m", {})

    assert len(await requests_of(asked(MAX_COPIED_BYTES // 2), 2)) == 2
    with pytest.raises(TooLarge, match="With 2 prompts"):
        await requests_of(asked(MAX_COPIED_BYTES // 2 + 1), 2)


async def test_members_on_either_side_of_the_prompts_are_found(
    render: ScriptedPod, generate: ScriptedPod, derenderer: Derenderer, caller: aiohttp.ClientSession
) -> None:
    """In each prompt's request, equal but for the prompt, they are elsewhere than in the caller's."""
    sent = b'{"model":"m", "sampling_params" : {"min_p":0.1},"prompt" : ["a long one", "b"] , "logprobs":2 }'
    async with routed([render], [generate]) as url, caller.post(url + COMPLETIONS, data=sent) as answer:
        assert answer.status == 200, await answer.text()
    assert sorted(render.bodies(RENDER)) == sorted(
        sent.replace(b'["a long one", "b"]', prompt) for prompt in (b'"a long one"', b'"b"')
    )
    generated = [json.loads(each)["sampling_params"] for each in generate.bodies(GENERATE)]
    assert generated == [{"max_tokens": 16, "min_p": 0.1, "logprobs": 3}] * 2


async def test_an_unexpected_failure_of_one_ends_the_stream() -> None:
    """It is raised where the stream is read: nobody waits for what will not come."""

    class Fails:
        """A pipeline whose second answer has a fault."""

        @asynccontextmanager
        async def answer(self, request: ApiRequest, deadline: Deadline) -> AsyncIterator[StreamedAnswer]:
            async def events() -> AsyncIterator[bytes]:
                yield b'data: {"choices":[{"index":0,"text":"x"}]}\n\n'
                if request.raw("prompt") == b'"b"':
                    raise ZeroDivisionError
                await asyncio.Event().wait()

            yield StreamedAnswer(events(), RouterMetrics().stages())

    request = ApiRequest(apis.COMPLETIONS, {}, Document.of(body(["a", "b"], stream=True)), Media(), "m", {})
    async with answer_all(Fails(), await requests_of(request, 2), Deadline()) as answer:
        assert isinstance(answer, StreamedAnswer)
        with pytest.raises(ZeroDivisionError):
            await soon(_all(answer.events))


async def _all(events: AsyncIterator[bytes]) -> list[bytes]:
    return [each async for each in events]


async def test_one_that_fails_fails_all_and_stops_the_others(
    render: ScriptedPod, generate: ScriptedPod, derenderer: Derenderer, caller: aiohttp.ClientSession
) -> None:
    """Before the first byte, with its own status."""
    refused = json_answer(b'{"error":{"message":"no","code":400}}', 400)
    generate.answers[GENERATE] = generates({"a": streamed(Does.HANG), "b": refused})
    async with (
        routed([render], [generate]) as url,
        caller.post(url + COMPLETIONS, data=body(["a", "b"], stream=True)) as answer,
    ):
        assert (await soon(answer.json()))["error"]["message"] == "no"
        assert answer.status == 400
        await eventually(lambda: GENERATE in generate.left)


async def test_one_that_breaks_off_later_ends_the_stream(
    render: ScriptedPod, generate: ScriptedPod, derenderer: Derenderer, caller: aiohttp.ClientSession
) -> None:
    """With one error event."""
    now = asyncio.Event()
    generate.answers[GENERATE] = generates(
        {
            "a": streamed(token(7), now, Does.CUT, content_type=EVENTS),
            "b": streamed(token(9), Does.HANG, content_type=EVENTS),
        }
    )
    async with (
        routed([render], [generate]) as url,
        caller.post(url + COMPLETIONS, data=body(["a", "b"], stream=True)) as answer,
    ):
        for _ in range(2):
            await soon(answer.content.readuntil(b"\n\n"))
        now.set()
        rest = await soon(answer.read())
    assert rest.startswith(b'data: {"error": {"message": "The generate pod')
    assert rest.endswith(b"data: [DONE]\n\n")
    assert rest.count(b"data:") == 2
    await eventually(lambda: generate.left == [GENERATE] * 2)  # the one that was cut, and the other


@pytest.mark.parametrize(
    ("prompt", "says"),
    [(["a"] * 4, "3"), ('["a", ', "JSON"), ('["a" "b"]', "prompt")],
    ids=["too many", "not JSON", "no list"],
)
async def test_prompts_that_cannot_be_taken_apart(
    prompt: object,
    says: str,
    render: ScriptedPod,
    generate: ScriptedPod,
    derenderer: Derenderer,
    caller: aiohttp.ClientSession,
) -> None:
    """400 that says why."""
    sent = b'{"model":"m","prompt":%b}' % (prompt.encode() if isinstance(prompt, str) else json.dumps(prompt).encode())
    async with routed([render], [generate], max_prompts=3) as url, caller.post(url + COMPLETIONS, data=sent) as answer:
        assert answer.status == 400
        assert says in (await answer.json())["error"]["message"]
