"""A chat request by frames: what reaches the engine's server is what the render server gave, but for the tail."""

from __future__ import annotations

import json
import struct
from contextlib import AsyncExitStack
from typing import Any

import aiohttp
import msgpack
import pytest

from rendergen.launcher import Stack
from tests.e2e.calls import (
    CHAT,
    GENERATE,
    RED,
    RENDER,
    WHAT_COLOR,
    chat,
    encoded,
    image_part,
    noise,
    ok,
    post,
)
from tests.e2e.derendered import derender_path
from tests.e2e.json_members import digest
from tests.e2e.projection import projection
from tests.e2e.service_process import service_process
from tests.e2e.tap import Tap, tap
from tests.e2e.tapped_stack import CAPABILITIES, TappedStack

pytestmark = pytest.mark.plugin

FRAMES = "application/vnd.rendergen.payload.v1"
SIDES = {1: 768, 4: 544}


def request_with(images: int, **members: Any) -> dict[str, Any]:
    """A chat request whose images and text have nothing to do with colours: only bytes count here."""
    parts = [image_part(encoded(noise(SIDES[images], seed))) for seed in range(images)]
    return chat(*parts, 'Say "naïve": 한국어 🔴', max_tokens=16, **members)


def tail_at(payload: bytes) -> int:
    """Where the tail begins: by the format's page, not by our code."""
    assert payload[:10] == b"\x89RGPAY\r\n\x01\x00"
    [head, tensors] = struct.unpack_from("<I4xQ", payload, 16)
    return int(-(-(32 + head) // 16) * 16 + tensors)


def params_of(payload: bytes) -> Any:
    """The sampling params, which must take all of the tail."""
    at = tail_at(payload)
    [size] = struct.unpack_from("<I", payload, at)
    assert len(payload) == at + 4 + size
    return json.loads(payload[at + 4 :])


async def test_each_vllm_says_what_it_speaks(stack: Stack, client: aiohttp.ClientSession) -> None:
    """Through the services too, which carry the question."""
    for url, role in (
        (stack.vllm_render_urls[0], "render"),
        (stack.render_service_urls[0], "render"),
        (stack.vllm_engine_urls[0], "generate"),
        (stack.generate_service_urls[0], "generate"),
    ):
        async with client.get(url + CAPABILITIES) as answer:
            said = await answer.json()
        assert (said["role"], said["payload_versions"], said["media_types"]) == (role, [1], [FRAMES])


@pytest.mark.parametrize("images", SIDES)
async def test_only_the_tail_differs(framed: TappedStack, client: aiohttp.ClientSession, images: int) -> None:
    """Between the two vLLM servers are a service, the router and a service, and no byte before the tail changes."""
    framed.forget()
    await ok(client, framed.router_url + CHAT, request_with(images, sampling_params={"seed": 7, "min_tokens": 2}))
    [rendered], [generate] = framed.render.to(RENDER), framed.generate.to(GENERATE)
    assert rendered.headers["Accept"] == FRAMES
    assert generate.headers["Content-Type"] == FRAMES
    assert generate.headers["Content-Length"] == str(len(generate.request))
    before, after = tail_at(rendered.answer), tail_at(generate.request)
    assert before > 3 * images * SIDES[images] ** 2
    assert digest(generate.request[:after]) == digest(rendered.answer[:before])
    assert params_of(generate.request) == params_of(rendered.answer) | {"seed": 7, "min_tokens": 2}
    assert params_of(rendered.answer)["max_tokens"] == 16


async def test_the_answer_is_the_one_by_json(
    framed: TappedStack, tapped: TappedStack, client: aiohttp.ClientSession
) -> None:
    """Text, reasons, usage and log probabilities."""
    answers = []
    for running, by_frames in ((framed, True), (tapped, False)):
        running.forget()
        answers.append(await ok(client, running.router_url + CHAT, chat(RED, WHAT_COLOR, logprobs=True, max_tokens=8)))
        [generate] = running.generate.to(GENERATE)
        assert generate.request.startswith(b"\x89RGPAY") is by_frames
    assert projection(answers[0]) == projection(answers[1])
    logprobs = [answer["choices"][0]["logprobs"] for answer in answers]
    assert logprobs[0] == logprobs[1]
    assert answers[0]["choices"][0]["message"]["content"] == "Red"


async def test_derender_is_given_what_it_needs(framed: TappedStack, client: aiohttp.ClientSession) -> None:
    """The prompt's tokens and where its image is in them, out of the head."""
    framed.forget()
    await ok(client, framed.router_url + CHAT, chat(RED, WHAT_COLOR))
    [rendered], [derender] = framed.render.to(RENDER), framed.render.to(derender_path(CHAT))
    head = msgpack.unpackb(rendered.answer[32 : 32 + struct.unpack_from("<I", rendered.answer, 16)[0]])
    prompt = [token for (token,) in struct.iter_unpack("<I", head["token_ids"])]
    given = json.loads(derender.request.partition(b"\n")[0])
    assert given["prompt_token_ids"] == prompt
    [item] = head["items"]
    assert given["mm_placeholders"] == {"image": [{"offset": item["offset"], "length": item["length"]}]}


async def test_text_alone_goes_by_frames_too(framed: TappedStack, client: aiohttp.ClientSession) -> None:
    """A payload without tensors."""
    framed.forget()
    await ok(client, framed.router_url + CHAT, chat("Count to 3.", max_tokens=8))
    [generate] = framed.generate.to(GENERATE)
    assert generate.headers["Content-Type"] == FRAMES
    assert params_of(generate.request)["max_tokens"] == 8


async def test_the_raw_paths_change_nothing_at_all(framed: TappedStack, client: aiohttp.ClientSession) -> None:
    """A caller who renders and generates itself may do so in frames."""
    framed.forget()
    reply = await post(client, framed.router_url + RENDER, chat(RED, WHAT_COLOR), {"Accept": FRAMES})
    assert (reply.status, reply.headers["Content-Type"]) == (200, FRAMES)
    assert digest(reply.body) == digest(framed.render.to(RENDER)[0].answer)
    generated = await post(client, framed.router_url + GENERATE, reply.body, {"Content-Type": FRAMES})
    assert generated.status == 200, generated.text()
    assert generated.json()["choices"][0]["token_ids"]
    [generate] = framed.generate.to(GENERATE)
    assert digest(generate.request) == digest(reply.body)


async def test_a_refusal_of_the_plugin_reaches_the_caller(framed: TappedStack, client: aiohttp.ClientSession) -> None:
    """A payload that was cut within its tensors, on the raw path: 400, in the plugin's words."""
    reply = await post(client, framed.router_url + RENDER, chat(RED, WHAT_COLOR), {"Accept": FRAMES})
    refused = await post(client, framed.router_url + GENERATE, reply.body[:-100], {"Content-Type": FRAMES})
    assert refused.status == 400
    assert "sampling params" in refused.json()["error"]["message"]


MIXED = {"render without": (True, (False,)), "generate without": (False, (True,)), "one of two": (False, (False, True))}


@pytest.mark.parametrize("hidden", MIXED.values(), ids=MIXED)
async def test_a_pod_without_the_plugin_makes_it_json(
    hidden: tuple[bool, tuple[bool, ...]], stack: Stack, client: aiohttp.ClientSession
) -> None:
    """Whichever it is, and with a router that stands before vLLM itself; the answer is the same."""
    render_hidden, generate_hidden = hidden

    def hides(hide: bool) -> frozenset[str]:
        return frozenset({CAPABILITIES}) if hide else frozenset()

    async with AsyncExitStack() as running:
        render = await running.enter_async_context(tap(stack.vllm_render_urls[0], hides(render_hidden)))
        engine = stack.vllm_engine_urls[0]
        generate: list[Tap] = [await running.enter_async_context(tap(engine, hides(hide))) for hide in generate_hidden]
        pods = ",".join(each.url for each in generate)
        router = await running.enter_async_context(
            service_process("router", "--render-pods", render.url, "--generate-pods", pods)
        )
        for _ in range(4):
            answer = await ok(client, router.spec.url + CHAT, chat(RED, WHAT_COLOR))
            assert answer["choices"][0]["message"]["content"] == "Red"
        assert {exchange.headers["Accept"] for exchange in render.to(RENDER)} == {"application/json"}
        carried = [exchange for each in generate for exchange in each.to(GENERATE)]
        assert len(carried) == 4
        assert {exchange.headers["Content-Type"] for exchange in carried} == {"application/json"}
