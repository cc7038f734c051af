import hashlib
import json
import re

import aiohttp
import pytest

from tests.support.router import (
    AFTER,
    BEFORE,
    CHAT,
    COMPLETION,
    DERENDER,
    GENERATE,
    GENERATED,
    PARAMS,
    PAYLOAD,
    RENDER,
    REQUEST,
    routed,
)
from tests.support.scripted_pod import ScriptedPod, json_answer, streamed

HEADERS = {"Authorization": "Bearer key", "Content-Type": "application/json", "X-Request-Id": "mine"}


async def answer_to(
    body: bytes, render: ScriptedPod, generate: ScriptedPod, caller: aiohttp.ClientSession, **settings: float
) -> bytes:
    """The completion that the caller gets."""
    async with (
        routed([render], [generate], **settings) as url,
        caller.post(url + CHAT, data=body, headers=HEADERS) as answer,
    ):
        assert answer.status == 200, await answer.text()
        assert answer.content_type == "application/json"
        return await answer.read()


async def params_sent(
    overrides: bytes, rendered: bytes | None, render: ScriptedPod, generate: ScriptedPod, caller: aiohttp.ClientSession
) -> dict[str, object]:
    """The sampling params that reach the generate pod, as it decodes them."""
    member = b"" if rendered is None else b',"sampling_params":' + rendered
    render.answers[RENDER] = json_answer(b'{"token_ids":[1]' + member + b"}")
    await answer_to(b'{"model":"m","messages":[]' + overrides + b"}", render, generate, caller)
    found = json.loads(generate.bodies(GENERATE)[-1])["sampling_params"]
    assert isinstance(found, dict)
    return found


async def test_each_pod_is_sent_its_part(
    render: ScriptedPod, generate: ScriptedPod, caller: aiohttp.ClientSession
) -> None:
    """Render gets the caller's bytes; derender gets those, and generate's with the prompt's tokens, else unchanged."""
    await answer_to(REQUEST, render, generate, caller)
    assert [seen.path for seen in render.seen] == [RENDER, DERENDER]
    assert [seen.path for seen in generate.seen] == [GENERATE]
    assert render.bodies(RENDER) == [REQUEST]
    [context] = render.bodies(DERENDER)
    assert REQUEST in context
    assert GENERATED[:-1] in context
    assert json.loads(context) == {
        "stream": False,
        "prompt_tokens": 3,
        "prompt_token_ids": [1, 2, 3],
        "generate_response": {**json.loads(GENERATED), "prompt_token_ids": [1, 2, 3]},
        "chat_request": json.loads(REQUEST),
    }


@pytest.mark.parametrize("overrides", [b"", b',"sampling_params":{"seed":7,"temperature":0.10}'])
@pytest.mark.parametrize("step", [1, 7, 1000])
async def test_the_payload_is_the_rendered_one_outside_the_sampling_params(
    overrides: bytes, step: int, render: ScriptedPod, generate: ScriptedPod, caller: aiohttp.ClientSession
) -> None:
    """By digest, for every way in which it may be cut into reads."""
    render.answers[RENDER] = streamed(*(PAYLOAD[at : at + step] for at in range(0, len(PAYLOAD), step)))
    await answer_to(REQUEST[:-1] + overrides + b"}", render, generate, caller)
    [sent] = generate.bodies(GENERATE)
    assert hashlib.sha256(sent[: len(BEFORE)]).digest() == hashlib.sha256(BEFORE).digest()
    assert hashlib.sha256(sent[-len(AFTER) :]).digest() == hashlib.sha256(AFTER).digest()
    params = sent[len(BEFORE) : -len(AFTER)]
    assert json.loads(params) == json.loads(PARAMS) | {"max_tokens": 16} | json.loads(b"{%b}" % overrides[1:]).get(
        "sampling_params", {}
    )


async def test_a_large_payload_is_the_same(
    render: ScriptedPod, generate: ScriptedPod, caller: aiohttp.ClientSession
) -> None:
    """20 MB of features."""
    features = b'"features":{"kwargs_data":"' + b"QUJD" * 5_000_000 + b'"}}'
    render.answers[RENDER] = json_answer(b'{"token_ids":[1],"sampling_params":{},' + features)
    await answer_to(REQUEST, render, generate, caller)
    [sent] = generate.bodies(GENERATE)
    before, after = b'{"token_ids":[1],"sampling_params":', b"," + features
    assert hashlib.sha256(sent[: len(before)]).digest() == hashlib.sha256(before).digest()
    assert hashlib.sha256(sent[-len(after) :]).digest() == hashlib.sha256(after).digest()
    assert json.loads(sent[len(before) : -len(after)]) == {"max_tokens": 16}


async def test_the_length_of_the_payload_is_declared_where_render_declares_it(
    render: ScriptedPod, generate: ScriptedPod, caller: aiohttp.ClientSession
) -> None:
    """Sent in HTTP chunks it would cost more; the sampling params get spaces to be as long as was said."""
    await answer_to(REQUEST, render, generate, caller)
    [seen] = generate.seen
    assert int(seen.headers["Content-Length"]) == len(seen.body)
    assert "Transfer-Encoding" not in seen.headers


PARAMS_SENT = {
    "absent": (b"", None, {"max_tokens": 16}),
    "null": (b"", b"null", {"max_tokens": 16}),
    "empty": (b"", b"{}", {"max_tokens": 16}),
    "kept": (b"", b'{"max_tokens":5}', {"max_tokens": 5}),
    "no other is lost": (
        b"",
        b'{"top_k":20,"stop_token_ids":[1]}',
        {"top_k": 20, "stop_token_ids": [1], "max_tokens": 16},
    ),
    "merged": (b',"sampling_params":{"top_k":1}', b'{"top_k":20,"seed":3}', {"top_k": 1, "seed": 3, "max_tokens": 16}),
    "overridden": (b',"sampling_params":{"max_tokens":9}', b'{"max_tokens":5}', {"max_tokens": 9}),
    "added": (b',"sampling_params":{"max_tokens":9}', None, {"max_tokens": 9}),
    "null overrides": (b',"sampling_params":null', b'{"top_k":2}', {"top_k": 2, "max_tokens": 16}),
}


@pytest.mark.parametrize("case", PARAMS_SENT.values(), ids=PARAMS_SENT)
async def test_sampling_params_are_the_rendered_ones_with_the_overrides(
    case: tuple[bytes, bytes | None, dict[str, object]],
    render: ScriptedPod,
    generate: ScriptedPod,
    caller: aiohttp.ClientSession,
) -> None:
    """And `max_tokens` is vLLM's default, 16, where neither says it: its absence would mean the rest of the context."""
    overrides, rendered, expected = case
    assert await params_sent(overrides, rendered, render, generate, caller) == expected


async def test_each_step_has_an_id_of_its_own(
    render: ScriptedPod, generate: ScriptedPod, caller: aiohttp.ClientSession
) -> None:
    """Aborting an id on vLLM aborts every request that shares it; each shows whose it is."""
    async with routed([render], [generate]) as url:
        for _ in range(3):
            async with caller.post(url + CHAT, data=REQUEST, headers=HEADERS) as answer:
                assert answer.headers["X-Request-Id"] == "mine"
    ids = [seen.headers["X-Request-Id"] for seen in [*render.seen, *generate.seen]]
    assert len(ids) == len(set(ids)) == 9
    assert all(re.fullmatch("mine-[0-9a-f]{8}", each) for each in ids)


async def test_the_caller_s_credentials_go_to_every_pod(
    render: ScriptedPod, generate: ScriptedPod, caller: aiohttp.ClientSession
) -> None:
    """vLLM's own key check works behind the router; no other header of the caller's is sent."""
    await answer_to(REQUEST, render, generate, caller)
    for seen in [*render.seen, *generate.seen]:
        assert seen.headers["Authorization"] == "Bearer key"
        assert seen.headers["Content-Type"] == "application/json"
        assert "User-Agent" not in seen.headers


async def test_the_completion_is_derender_s_under_our_id(
    render: ScriptedPod, generate: ScriptedPod, caller: aiohttp.ClientSession
) -> None:
    """Every byte but the id's; absent, it is added."""
    assert await answer_to(REQUEST, render, generate, caller) == COMPLETION.replace(b"chatcmpl-vllm", b"chatcmpl-mine")
    render.answers[DERENDER] = json_answer(b'{"choices":[{}]}')
    answer = await answer_to(REQUEST, render, generate, caller)
    assert json.loads(answer) == {"choices": [{}], "id": "chatcmpl-mine"}


TOKENS = {
    "none": (b"[]", 0, []),
    "none, with a space": (b"[ \n]", 0, []),
    "one": (b"[ 7 ]", 1, [7]),
    "at the limit": (json.dumps([*range(32)]).encode(), 32, [*range(32)]),
    "many": (json.dumps([*range(5000)], indent=1).encode(), 5000, [*range(4968, 5000)]),
}


@pytest.mark.parametrize("case", TOKENS.values(), ids=TOKENS)
async def test_derender_is_told_the_prompt_s_length_and_end(
    case: tuple[bytes, int, list[int]], render: ScriptedPod, generate: ScriptedPod, caller: aiohttp.ClientSession
) -> None:
    """How many tokens it has, and the last few of them."""
    token_ids, count, tail = case
    render.answers[RENDER] = json_answer(b'{"sampling_params":{},"token_ids":' + token_ids + b"}")
    await answer_to(REQUEST, render, generate, caller)
    context = json.loads(render.bodies(DERENDER)[0])
    assert (context["prompt_tokens"], context["prompt_token_ids"]) == (count, tail)


async def test_the_request_may_be_in_any_form(
    render: ScriptedPod, generate: ScriptedPod, caller: aiohttp.ClientSession
) -> None:
    """Escapes, spaces and unknown members reach both ends as they were written."""
    body = rb' { "m\u006fdel" : "m" , "messages":[ ], "x_unknown":{"a":[1.50,null]} , "\ud83d\ude00":"\u00e9" } '
    await answer_to(body, render, generate, caller)
    assert render.bodies(RENDER) == [body]
    assert json.loads(render.bodies(DERENDER)[0])["chat_request"] == json.loads(body)


async def test_stages_are_timed(render: ScriptedPod, generate: ScriptedPod, caller: aiohttp.ClientSession) -> None:
    """One sample each for a request that went well, and none for a stage that did not end."""
    async with routed([render], [generate]) as url:
        for status in (200, 400):
            async with caller.post(url + CHAT, data=REQUEST) as answer:
                assert answer.status == status
            generate.answers[GENERATE] = json_answer(b'{"error":{"message":"no"}}', 400)
        async with caller.get(url + "/metrics") as answer:
            text = await answer.text()
    for stage, count in (("render", 2), ("generate", 1), ("derender", 1)):
        assert f'rendergen_router_stage_seconds_count{{stage="{stage}"}} {count}.0' in text
