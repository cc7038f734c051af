"""What reaches the engine is what the render server returned, byte for byte, but for the sampling params."""

from __future__ import annotations

import json
from typing import Any

import aiohttp
import pytest

from tests.e2e.calls import CHAT, DERENDER, GENERATE, RENDER, chat, encoded, image_part, noise, ok, post
from tests.e2e.derendered import blanked
from tests.e2e.json_members import digest, member_spans, outside
from tests.e2e.tapped_stack import TappedStack

# Sides in pixels: the payloads have some megabytes.
IMAGES = {1: 768, 4: 544}


def request_with(images: int, **members: Any) -> dict[str, Any]:
    """A chat request whose images and text have nothing to do with colours: only bytes count here."""
    parts = [image_part(encoded(noise(IMAGES[images], seed))) for seed in range(images)]
    return chat(*parts, 'Say "naïve": 한국어 🔴 \\ \x00 <|im_end|> "sampling_params":{}', max_tokens=16, **members)


@pytest.mark.parametrize("images", IMAGES)
async def test_only_the_sampling_params_differ(tapped: TappedStack, client: aiohttp.ClientSession, images: int) -> None:
    """Between the two vLLM servers are a service, the router and a service, and no byte outside the span changes."""
    tapped.forget()
    await ok(client, tapped.router_url + CHAT, request_with(images, sampling_params={"seed": 7}))
    [rendered], [generate] = tapped.render.to(RENDER), tapped.generate.to(GENERATE)
    assert len(rendered.answer) > 4_000_000
    assert outside(generate.request, "sampling_params") == outside(rendered.answer, "sampling_params")
    assert list(member_spans(generate.request)) == list(member_spans(rendered.answer))


@pytest.mark.parametrize("images", IMAGES)
async def test_the_sampling_params_are_the_rendered_ones_and_the_callers(
    tapped: TappedStack, client: aiohttp.ClientSession, images: int
) -> None:
    """Inside the span the caller's overrides are merged into what was rendered, and `max_tokens` is never missing."""
    tapped.forget()
    await ok(client, tapped.router_url + CHAT, request_with(images, sampling_params={"seed": 7, "min_tokens": 2}))
    [rendered], [generate] = tapped.render.to(RENDER), tapped.generate.to(GENERATE)
    before = json.loads(rendered.answer)["sampling_params"]
    assert "max_tokens" not in before, "vLLM's render server no longer leaves its default out"
    assert json.loads(generate.request)["sampling_params"] == {**before, "max_tokens": 16, "seed": 7, "min_tokens": 2}


@pytest.mark.parametrize("images", IMAGES)
async def test_the_chat_request_reaches_the_render_server_as_it_was_sent(
    tapped: TappedStack, client: aiohttp.ClientSession, images: int
) -> None:
    """Nothing of the caller's request is dropped or rewritten, fields that nobody knows included."""
    tapped.forget()
    body = json.dumps(request_with(images, field_of_the_future={"a": [1, 2.50, None]}), ensure_ascii=False).encode()
    await ok(client, tapped.router_url + CHAT, body)
    [rendered] = tapped.render.to(RENDER)
    assert digest(rendered.request) == digest(body)


@pytest.mark.parametrize("images", IMAGES)
async def test_the_raw_paths_change_nothing_at_all(
    tapped: TappedStack, client: aiohttp.ClientSession, images: int
) -> None:
    """A caller who renders and generates itself gets and sends exactly the bytes that vLLM made and takes."""
    tapped.forget()
    reply = await post(client, tapped.router_url + RENDER, request_with(images))
    assert reply.status == 200
    payload = reply.body
    [rendered] = tapped.render.to(RENDER)
    assert digest(payload) == digest(rendered.answer)

    start, end = member_spans(payload)["sampling_params"]
    changed = payload[:start] + b' {"max_tokens" : 3, "temperature": 0.0, "ignore_eos":true } ' + payload[end:]
    generated = await ok(client, tapped.router_url + GENERATE, changed)
    assert len(generated["choices"][0]["token_ids"]) == 3
    [generate] = tapped.generate.to(GENERATE)
    assert digest(generate.request) == digest(changed)


async def test_derender_is_given_what_it_needs(tapped: TappedStack, client: aiohttp.ClientSession) -> None:
    """The caller's request without its images, for its tools and templates, and the end of the prompt."""
    tapped.forget()
    request = request_with(1)
    await ok(client, tapped.router_url + CHAT, request)
    [rendered], [derender] = tapped.render.to(RENDER), tapped.render.to(DERENDER)
    prompt = json.loads(rendered.answer)["token_ids"]
    given = json.loads(derender.request)
    assert given["chat_request"] == blanked(request)
    assert given["prompt_tokens"] == len(prompt)
    tail = given["prompt_token_ids"]
    assert len(tail) >= 8
    assert tail == prompt[-len(tail) :]


async def test_the_comparison_sees_one_changed_byte() -> None:
    """The measure itself: a byte before or behind the span shows, bytes inside it do not."""
    payload = b'{"a": "x]}\\"", "sampling_params" : {"b": [1, {"c": "}"}]} , "z": [null, 1.50]}'
    assert payload[slice(*member_spans(payload)["sampling_params"])] == b'{"b": [1, {"c": "}"}]}'
    reference = outside(payload, "sampling_params")
    assert outside(payload.replace(b'[1, {"c": "}"}]', b"2"), "sampling_params") == reference
    assert outside(payload.replace(b"1.50", b"1.5"), "sampling_params") != reference
    assert outside(payload.replace(b'"a": ', b'"a":'), "sampling_params") != reference
    assert outside(payload.replace(b"} ,", b"},"), "sampling_params") != reference
