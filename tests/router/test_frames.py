"""A chat request by frames: when, what each pod is sent, and what the caller is told when it fails."""

import asyncio
import hashlib
import io
import json
import struct
from contextlib import AsyncExitStack

import aiohttp
import pytest
from aiohttp import web

from tests.rendergen.payload.frames import MEDIA_TYPE, frames, head_of, outside_and_params, padded, preamble, tail_of
from tests.support.polling import eventually, soon
from tests.support.router import CHAT, COMPLETION, DERENDER, GENERATE, GENERATED, PAYLOAD, RENDER, REQUEST, routed
from tests.support.scripted_pod import Answer, Does, ScriptedPod, json_answer, scripted_pod, streamed

SPEAKS = b'{"payload_versions":[1]}'
PARAMS = b'{"temperature":0.70, "max_tokens":5}'
FRAMES = frames([1, 2, 3], [bytes(range(256)) * 20], PARAMS)


def framed(payload: bytes, content_type: str = MEDIA_TYPE) -> Answer:
    """The answer of a render pod that was asked for frames."""
    return streamed(payload, content_type=content_type, content_length=len(payload))


@pytest.fixture(autouse=True)
def _speak_frames(render: ScriptedPod, generate: ScriptedPod) -> None:
    """Both pods load the plugin."""
    render.speaks = generate.speaks = SPEAKS
    render.answers[RENDER] = framed(FRAMES)


async def answer_to(
    body: bytes, url: str, caller: aiohttp.ClientSession, headers: dict[str, str] | None = None
) -> bytes:
    """The completion that the caller gets."""
    async with caller.post(url + CHAT, data=body, headers=headers) as answer:
        assert answer.status == 200, await answer.text()
        return await answer.read()


async def test_each_pod_is_sent_its_part(
    render: ScriptedPod, generate: ScriptedPod, caller: aiohttp.ClientSession
) -> None:
    """Render is asked for frames; generate gets them, with type and length; derender gets JSON as ever."""
    async with routed([render], [generate]) as url:
        headers = {"Content-Type": "application/json", "Accept": "application/json", "X-Request-Id": "mine"}
        completion = await answer_to(REQUEST, url, caller, headers)
    assert completion == COMPLETION.replace(b"chatcmpl-vllm", b"chatcmpl-mine")
    rendered, derendered = render.seen
    [generated] = generate.seen
    assert (rendered.path, rendered.headers["Accept"]) == (RENDER, MEDIA_TYPE)
    assert rendered.headers["Content-Type"] == "application/json"
    assert (generated.path, generated.headers.getall("Content-Type")) == (GENERATE, [MEDIA_TYPE])
    assert int(generated.headers["Content-Length"]) == len(generated.body)
    assert "Transfer-Encoding" not in generated.headers
    assert (derendered.path, derendered.headers["Content-Type"]) == (DERENDER, "application/json")
    assert json.loads(derendered.body) == {
        "stream": False,
        "prompt_tokens": 3,
        "prompt_token_ids": [1, 2, 3],
        "generate_response": {**json.loads(GENERATED), "prompt_token_ids": [1, 2, 3]},
        "chat_request": json.loads(REQUEST),
    }


@pytest.mark.parametrize("overrides", [b"", b',"sampling_params":{"seed":7,"temperature":0.10}'])
@pytest.mark.parametrize("step", [1, 7, 1000, 10_000])
async def test_the_payload_is_the_rendered_one_outside_the_tail(
    overrides: bytes, step: int, render: ScriptedPod, generate: ScriptedPod, caller: aiohttp.ClientSession
) -> None:
    """By digest, for every way in which it may be cut into reads, its length declared or not."""
    pieces = [FRAMES[at : at + step] for at in range(0, len(FRAMES), step)]
    render.answers[RENDER] = streamed(*pieces, content_type=MEDIA_TYPE)
    async with routed([render], [generate]) as url:
        await answer_to(REQUEST[:-1] + overrides + b"}", url, caller)
    before, _, params = outside_and_params(generate.bodies(GENERATE)[0])
    assert hashlib.sha256(before).digest() == hashlib.sha256(outside_and_params(FRAMES)[0]).digest()
    said = json.loads(b"{%b}" % overrides[1:]).get("sampling_params", {})
    assert params == json.loads(PARAMS) | said


async def test_a_large_payload_is_the_same(
    render: ScriptedPod, generate: ScriptedPod, caller: aiohttp.ClientSession
) -> None:
    """20 MB of tensors."""
    payload = frames(tensors=[bytes(range(250)) * 80_000])
    render.answers[RENDER] = framed(payload)
    async with routed([render], [generate]) as url:
        await answer_to(REQUEST, url, caller)
    before, _, params = outside_and_params(generate.bodies(GENERATE)[0])
    assert hashlib.sha256(before).digest() == hashlib.sha256(outside_and_params(payload)[0]).digest()
    assert params == {"max_tokens": 16}


async def test_generate_has_the_first_bytes_before_render_has_sent_the_last(
    render: ScriptedPod, generate: ScriptedPod, caller: aiohttp.ClientSession
) -> None:
    """Render waits for generate to have them: without cut-through neither would go on."""
    arrived = asyncio.Event()

    async def receives(request: web.Request) -> web.Response:
        assert await request.content.readexactly(1000) == FRAMES[:1000]
        arrived.set()
        await request.content.read()
        return web.Response(body=GENERATED, content_type="application/json")

    render.answers[RENDER] = streamed(FRAMES[:1000], arrived, FRAMES[1000:], content_type=MEDIA_TYPE)
    generate.answers[GENERATE] = receives
    generate.unread.add(GENERATE)
    async with routed([render], [generate]) as url:
        await soon(answer_to(REQUEST, url, caller))


@pytest.mark.parametrize("tokens", [0, 1, 32, 5000])
async def test_derender_is_told_the_prompt_s_length_and_end(
    tokens: int, render: ScriptedPod, generate: ScriptedPod, caller: aiohttp.ClientSession
) -> None:
    """How many tokens it has, and the last few of them."""
    render.answers[RENDER] = framed(frames(range(tokens)))
    async with routed([render], [generate]) as url:
        await answer_to(REQUEST, url, caller)
    context = json.loads(render.bodies(DERENDER)[0])
    assert (context["prompt_tokens"], context["prompt_token_ids"]) == (tokens, [*range(tokens)][-32:])


NOT_BOTH = {"neither": (None, None), "only render": (SPEAKS, None), "only generate": (None, SPEAKS)}


@pytest.mark.parametrize("speak", NOT_BOTH.values(), ids=NOT_BOTH)
async def test_json_is_spoken_unless_both_speak_frames(
    speak: tuple[bytes | None, bytes | None],
    render: ScriptedPod,
    generate: ScriptedPod,
    caller: aiohttp.ClientSession,
) -> None:
    """The caller's own Accept is for its answer, not for render's."""
    render.speaks, generate.speaks = speak
    render.answers[RENDER] = json_answer(PAYLOAD)
    async with routed([render], [generate]) as url:
        await answer_to(REQUEST, url, caller, {"Accept": MEDIA_TYPE})
    assert render.seen[0].headers.getall("Accept") == ["application/json"]
    assert generate.seen[0].headers.getall("Content-Type") == ["application/json"]
    assert generate.bodies(GENERATE)[0].startswith(b'{"request_id" : "r"')


@pytest.mark.parametrize("speak", [(SPEAKS, None), (SPEAKS, b'{"payload_versions":[2]}')])
async def test_one_generate_pod_without_frames_makes_all_json(
    speak: tuple[bytes | None, ...], render: ScriptedPod, caller: aiohttp.ClientSession
) -> None:
    """So that each of them gets its share."""
    render.answers[RENDER] = json_answer(PAYLOAD)
    async with AsyncExitStack() as stack:
        pods = [await stack.enter_async_context(scripted_pod({GENERATE: json_answer(GENERATED)})) for _ in speak]
        for pod, said in zip(pods, speak, strict=True):
            pod.speaks = said
        url = await stack.enter_async_context(routed([render], pods))
        for _ in range(4):
            await answer_to(REQUEST, url, caller)
        assert [len(pod.bodies(GENERATE)) for pod in pods] == [2, 2]
        assert {seen.headers["Accept"] for seen in render.seen if seen.path == RENDER} == {"application/json"}
        # Without that one, the other is spoken to in frames.
        pods[1].healthy = False
        render.answers[RENDER] = framed(FRAMES)
        await eventually(lambda: is_not_ready(url, pods[1], caller))
        await answer_to(REQUEST, url, caller)
        assert pods[0].seen[-1].headers["Content-Type"] == MEDIA_TYPE


async def is_not_ready(url: str, pod: ScriptedPod, caller: aiohttp.ClientSession) -> bool:
    async with caller.get(url + "/metrics") as answer:
        return f'rendergen_pod_ready{{pod="{pod.url}"}} 0.0' in await answer.text()


@pytest.mark.parametrize("content_type", ["application/json", "application/json; charset=utf-8"])
async def test_render_may_answer_json_though_asked_for_frames(
    content_type: str, render: ScriptedPod, generate: ScriptedPod, caller: aiohttp.ClientSession
) -> None:
    """What counts is what the answer says it is."""
    render.answers[RENDER] = streamed(PAYLOAD, content_type=content_type)
    async with routed([render], [generate]) as url:
        await answer_to(REQUEST, url, caller)
    assert render.seen[0].headers["Accept"] == MEDIA_TYPE
    assert generate.seen[0].headers["Content-Type"] == "application/json"
    assert b'"sampling_params": {"temperature":0.70' in generate.bodies(GENERATE)[0]


async def test_the_answer_s_type_may_be_written_in_any_way(
    render: ScriptedPod, generate: ScriptedPod, caller: aiohttp.ClientSession
) -> None:
    """Capitals and parameters are HTTP's freedom."""
    render.answers[RENDER] = framed(FRAMES, "Application/Vnd.Rendergen.Payload.V1 ; a=b")
    async with routed([render], [generate]) as url:
        await answer_to(REQUEST, url, caller)
    assert generate.seen[0].headers["Content-Type"] == MEDIA_TYPE


async def test_frames_never_go_to_a_pod_that_does_not_take_them(
    render: ScriptedPod, generate: ScriptedPod, caller: aiohttp.ClientSession
) -> None:
    """Not asked for and sent all the same, they are taken to no pod: 503."""
    generate.speaks = None
    async with routed([render], [generate]) as url, caller.post(url + CHAT, data=REQUEST) as answer:
        assert answer.status == 503
        assert "generate pod" in (await answer.json())["error"]["message"]
    assert generate.begun == []


async def test_a_pod_that_becomes_ready_meanwhile_gets_none(
    render: ScriptedPod, generate: ScriptedPod, caller: aiohttp.ClientSession
) -> None:
    """The encoding was chosen before; whoever does not speak it is passed over."""
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def waits(request: web.Request) -> web.StreamResponse:
        asked.set()
        await go_on.wait()
        return await framed(FRAMES)(request)

    render.answers[RENDER] = waits
    async with scripted_pod({GENERATE: json_answer(GENERATED)}, healthy=False) as late:
        async with routed([render], [generate, late], until_ready=False) as url:
            await eventually(lambda: is_ready(url, caller))
            answers = [asyncio.create_task(answer_to(REQUEST, url, caller)) for _ in range(3)]
            await soon(asked.wait())
            late.healthy = True
            await eventually(lambda: not_waiting(url, late, caller))
            go_on.set()
            await soon(asyncio.gather(*answers))
        assert len(generate.bodies(GENERATE)) == 3
        assert late.begun == []


async def is_ready(url: str, caller: aiohttp.ClientSession) -> bool:
    async with caller.get(url + "/readyz") as answer:
        return answer.status == 200


async def not_waiting(url: str, pod: ScriptedPod, caller: aiohttp.ClientSession) -> bool:
    async with caller.get(url + "/metrics") as answer:
        return f'rendergen_pod_ready{{pod="{pod.url}"}} 1.0' in await answer.text()


async def test_render_and_generate_are_told_how_much_time_they_have(
    render: ScriptedPod, generate: ScriptedPod, caller: aiohttp.ClientSession
) -> None:
    """Each its stage's budget, in milliseconds, or what is left of the caller's own time if that is less."""
    budgets = {"render_timeout_s": 25.0, "generate_timeout_s": 110.0, "derender_timeout_s": 70.0}
    async with routed([render], [generate], **budgets) as url:
        await answer_to(REQUEST, url, caller, {"X-Rendergen-Deadline-Ms": "soon"})
        told = {seen.path: seen.headers.getall("X-Rendergen-Deadline-Ms") for seen in [*render.seen, *generate.seen]}
        assert told == {RENDER: ["25000"], GENERATE: ["110000"], DERENDER: ["70000"]}
        await answer_to(REQUEST, url, caller, {"X-Rendergen-Deadline-Ms": "60000"})
        told = {seen.path: seen.headers["X-Rendergen-Deadline-Ms"] for seen in [*render.seen, *generate.seen]}
        assert told[RENDER] == "25000"
        assert 50_000 < int(told[DERENDER]) <= int(told[GENERATE]) < 60_000


async def test_a_request_whose_time_is_over_is_not_begun(
    render: ScriptedPod, generate: ScriptedPod, caller: aiohttp.ClientSession
) -> None:
    """504, and no pod hears of it."""
    late = {"X-Rendergen-Deadline-Ms": "0"}
    async with routed([render], [generate]) as url, caller.post(url + CHAT, data=REQUEST, headers=late) as answer:
        assert answer.status == 504
    assert render.begun == generate.begun == []


async def test_payloads_are_counted_by_encoding(
    render: ScriptedPod, generate: ScriptedPod, caller: aiohttp.ClientSession
) -> None:
    """How many there were, and how large."""
    async with routed([render], [generate]) as url:
        await answer_to(REQUEST, url, caller)
        await answer_to(REQUEST, url, caller)
        render.answers[RENDER] = json_answer(PAYLOAD)
        await answer_to(REQUEST, url, caller)
        async with caller.get(url + "/metrics") as answer:
            text = await answer.text()
    for encoding, count, size in (("frames", 2, 2 * len(FRAMES)), ("json", 1, len(PAYLOAD))):
        assert f'rendergen_router_payloads_total{{encoding="{encoding}"}} {count}.0' in text
        assert f'rendergen_router_payload_bytes_total{{encoding="{encoding}"}} {float(size)}' in text


HEAD = head_of([1])
NO_PAYLOAD = {
    "json": PAYLOAD,
    "nothing": b"",
    "half": FRAMES[: len(FRAMES) // 2],
    "all but a byte": FRAMES[:-1],
    "two": FRAMES + FRAMES,
    "of two prompts": preamble(len(HEAD), 0, count=2) + padded(HEAD) + tail_of(b"{}"),
    "another version": preamble(len(HEAD), 0, version=2) + padded(HEAD) + tail_of(b"{}"),
    "sizes do not add up": preamble(len(HEAD), 16) + padded(HEAD) + tail_of(b"{}"),
    "no sampling params": frames(params=b""),
}


@pytest.mark.parametrize("payload", NO_PAYLOAD.values(), ids=NO_PAYLOAD)
async def test_what_is_no_payload_is_render_s_failure(
    payload: bytes, render: ScriptedPod, generate: ScriptedPod, caller: aiohttp.ClientSession
) -> None:
    """502 that names the render pod, and generate never gets a whole request of it."""
    render.answers[RENDER] = framed(payload)
    async with routed([render], [generate]) as url, caller.post(url + CHAT, data=REQUEST) as answer:
        assert answer.status == 502
        assert "render pod" in (await soon(answer.json()))["error"]["message"]
    await eventually(lambda: len(generate.left) == len(generate.begun))
    assert generate.seen == []
    assert render.bodies(DERENDER) == []


@pytest.mark.parametrize("head", [b"\x80", b"\xc1", b""])
async def test_a_head_without_a_prompt_is_render_s_failure(
    head: bytes, render: ScriptedPod, generate: ScriptedPod, caller: aiohttp.ClientSession
) -> None:
    """502 that names the render pod, and derender is not asked."""
    render.answers[RENDER] = framed(frames(head=head))
    async with routed([render], [generate]) as url, caller.post(url + CHAT, data=REQUEST) as answer:
        assert answer.status == 502
        assert "render pod" in (await soon(answer.json()))["error"]["message"]
    assert render.bodies(DERENDER) == []


async def test_generate_may_answer_before_it_has_the_head(
    render: ScriptedPod, generate: ScriptedPod, caller: aiohttp.ClientSession
) -> None:
    """A success that no payload has led to: 502, and derender is not asked."""
    render.answers[RENDER] = streamed(FRAMES[:40], Does.HANG, content_type=MEDIA_TYPE)
    generate.unread.add(GENERATE)
    async with routed([render], [generate]) as url, caller.post(url + CHAT, data=REQUEST) as answer:
        assert answer.status == 502
    assert render.bodies(DERENDER) == []


# What the generate pod refuses with; what the caller gets, and whether it reads the pod's words.
REFUSALS = {
    "bad request": (400, "BadRequestError", 400, True),
    "wrong key": (403, "PermissionDeniedError", 502, False),
    "another model": (409, "ConflictError", 409, True),
    "features gone": (412, "PreconditionFailedError", 502, False),
    "too large": (413, "RequestEntityTooLargeError", 413, True),
    "queue full": (429, "RateLimitError", 429, True),
    "too late": (504, "DeadlineExceededError", 504, True),
}


@pytest.mark.parametrize("case", REFUSALS.values(), ids=REFUSALS)
async def test_a_refusal_of_generate_is_told_by_whose_it_is(
    case: tuple[int, str, int, bool], render: ScriptedPod, generate: ScriptedPod, caller: aiohttp.ClientSession
) -> None:
    """The payload is ours: that its signature or features do not do is for the operator, and no fault of the caller."""
    status, kind, told, in_its_words = case
    body = json.dumps({"error": {"message": "as the pod says", "type": kind, "param": None, "code": status}}).encode()
    generate.answers[GENERATE] = json_answer(body, status, {"Retry-After": "3"} if status == 429 else None)
    async with routed([render], [generate]) as url, caller.post(url + CHAT, data=REQUEST) as answer:
        error = (await answer.json())["error"]
        assert (answer.status, answer.headers.get("Retry-After")) == (told, "3" if status == 429 else None)
    assert ("as the pod says" in error["message"]) is in_its_words
    assert error["type"] == (kind if in_its_words else "BadGatewayError")
    assert in_its_words or str(status) in error["message"]


@pytest.mark.parametrize("case", [case for case in REFUSALS.values() if case[0] != 400])
async def test_on_the_raw_path_a_refusal_is_passed_on(
    case: tuple[int, str, int, bool], render: ScriptedPod, generate: ScriptedPod, caller: aiohttp.ClientSession
) -> None:
    """There the payload is the caller's."""
    status, kind, _, _ = case
    body = json.dumps({"error": {"message": "as the pod says", "type": kind, "param": None, "code": status}}).encode()
    generate.answers[GENERATE] = json_answer(body, status)
    headers = {"Content-Type": MEDIA_TYPE}
    async with (
        routed([render], [generate]) as url,
        caller.post(url + GENERATE, data=io.BytesIO(FRAMES), headers=headers) as answer,
    ):
        error = (await answer.json())["error"]
        assert (answer.status, error["message"], error["type"]) == (status, "as the pod says", kind)


async def test_raw_frames_are_carried_as_they_are(
    render: ScriptedPod, generate: ScriptedPod, caller: aiohttp.ClientSession
) -> None:
    """A caller that renders and generates itself gets and sends frames unchanged, and their type."""
    async with routed([render], [generate]) as url:
        headers = {"Accept": MEDIA_TYPE, "Content-Type": "application/json"}
        async with caller.post(url + RENDER, data=REQUEST, headers=headers) as answer:
            assert answer.headers["Content-Type"] == MEDIA_TYPE
            assert await answer.read() == FRAMES
        headers = {"Content-Type": MEDIA_TYPE}
        async with caller.post(url + GENERATE, data=io.BytesIO(FRAMES), headers=headers) as answer:
            assert await answer.read() == GENERATED
    assert render.seen[0].headers["Accept"] == MEDIA_TYPE
    assert generate.seen[0].headers["Content-Type"] == MEDIA_TYPE
    assert generate.bodies(GENERATE) == [FRAMES]


async def test_raw_frames_go_to_a_pod_that_takes_them(
    render: ScriptedPod, generate: ScriptedPod, caller: aiohttp.ClientSession
) -> None:
    """JSON goes to any; with no pod left that takes frames the caller is told so."""
    headers = {"Content-Type": MEDIA_TYPE}
    async with scripted_pod({GENERATE: json_answer(GENERATED)}) as bare, routed([render], [generate, bare]) as url:
        for _ in range(4):
            async with caller.post(url + GENERATE, data=io.BytesIO(FRAMES), headers=headers) as answer:
                assert answer.status == 200
        assert (len(generate.seen), bare.seen) == (4, [])
        generate.healthy = False
        await eventually(lambda: is_not_ready(url, generate, caller))
        async with caller.post(url + GENERATE, data=io.BytesIO(FRAMES), headers=headers) as answer:
            assert answer.status == 503
            assert "frames" in (await answer.json())["error"]["message"]
        assert bare.seen == []


def test_the_payload_of_these_tests_has_tensors() -> None:
    """Most of its bytes are between head and tail."""
    [tensors] = struct.unpack_from("<Q", FRAMES, 24)
    assert tensors == 5120
