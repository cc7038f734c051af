"""What the plugin lets through to the engine, on real vLLM: by frames and by JSON alike."""

from __future__ import annotations

import copy
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import blake3
import pytest
import pytest_asyncio

from rendergen.launcher import LaunchSettings, Stack
from rendergen.payload.frame_reader import read_frames
from rendergen.payload.frames import MEDIA_TYPE, FrameItem, FramesPayload, Tensor, write_frames
from tests.e2e.calls import (
    CHAT,
    DERENDER,
    GENERATE,
    RED,
    RENDER,
    WHAT_COLOR,
    Reply,
    chat,
    encoded,
    image_part,
    ok,
    solid,
)
from tests.e2e.calls import post as send
from tests.e2e.refusal import assert_openai_shape

pytestmark = pytest.mark.plugin

JSON = "application/json"
ENCODINGS = (JSON, MEDIA_TYPE)
INFO = "/inference/v1/rendergen"
GREEN = image_part(encoded(solid((0, 200, 0))))
REQUEST = chat(RED, WHAT_COLOR, max_tokens=8)

by_encoding = pytest.mark.parametrize("encoding", ENCODINGS, ids=["JSON", "frames"])


async def render(stack: Stack, client: aiohttp.ClientSession, request: Any, encoding: str) -> Any:
    """The payload of ``request``, read: a `FramesPayload`, or JSON's members."""
    reply = await send(client, stack.vllm_render_urls[0] + RENDER, request, {"Accept": encoding})
    assert reply.status == 200, reply.text()
    assert reply.headers["Content-Type"] == encoding
    return read_frames(reply.body) if encoding == MEDIA_TYPE else reply.json()


async def generate(stack: Stack, client: aiohttp.ClientSession, payload: Any, **members: Any) -> Reply:
    """What the engine's server answers to it; ``members`` are set in its request."""
    url = stack.vllm_engine_urls[0] + GENERATE
    if isinstance(payload, FramesPayload):
        payload = replace(payload, request={**payload.request, **members})
        return await send(client, url, b"".join(write_frames(payload)), {"Content-Type": MEDIA_TYPE})
    return await send(client, url, {**payload, **members})


def changed(payload: Any, **members: Any) -> Any:
    """The payload with another fingerprint or signature."""
    if isinstance(payload, FramesPayload):
        return replace(payload, **members)
    member = {name: value.hex() if isinstance(value, bytes) else value for name, value in members.items()}
    return {**payload, "rendergen": {**payload["rendergen"], **member}}


async def says(stack: Stack, client: aiohttp.ClientSession, reply: Reply) -> str:
    """The text of what was generated."""
    assert reply.status == 200, reply.text()
    answer = reply.json()
    for choice in answer["choices"]:
        if choice["finish_reason"] == "stop":
            choice["token_ids"].pop()
    completion = await ok(
        client,
        stack.vllm_render_urls[0] + DERENDER,
        {"model": REQUEST["model"], "generate_response": answer, "chat_request": REQUEST},
    )
    return str(completion["choices"][0]["message"]["content"])


async def said_by_one_server(stack: Stack, client: aiohttp.ClientSession, image: Any) -> str:
    """What the engine's own chat endpoint says of the picture."""
    completion = await ok(client, stack.vllm_engine_urls[0] + CHAT, chat(image, WHAT_COLOR, max_tokens=8))
    return str(completion["choices"][0]["message"]["content"])


def refused(reply: Reply, status: int, *words: str) -> None:
    """The reply is OpenAI's error of that status, and its message has these words."""
    assert reply.status == status, reply.text()
    assert_openai_shape(reply)
    message = reply.json()["error"]["message"]
    assert all(word in message for word in words), message


@by_encoding
async def test_a_payload_as_it_was_rendered(stack: Stack, client: aiohttp.ClientSession, encoding: str) -> None:
    """Is served."""
    payload = await render(stack, client, REQUEST, encoding)
    assert await says(stack, client, await generate(stack, client, payload)) == "Red"


@by_encoding
async def test_a_payload_of_another_model(stack: Stack, client: aiohttp.ClientSession, encoding: str) -> None:
    """409, with both fingerprints; it is looked at for text as well."""
    async with client.get(stack.vllm_engine_urls[0] + INFO) as answer:
        own = (await answer.json())["fingerprint"]
    for request in (REQUEST, chat("Count to 3.")):
        payload = changed(await render(stack, client, request, encoding), fingerprint="e" * 64)
        refused(await generate(stack, client, payload), 409, own, "e" * 64)


async def test_both_servers_have_one_fingerprint(stack: Stack, client: aiohttp.ClientSession) -> None:
    """The render server, which has no engine, and the engine's."""
    fingerprints = set()
    for url in (stack.vllm_render_urls[0], stack.vllm_engine_urls[0]):
        async with client.get(url + INFO) as answer:
            fingerprints.add((await answer.json())["fingerprint"])
    assert len(fingerprints) == 1


async def test_a_payload_of_bare_vllms(stack: Stack, client: aiohttp.ClientSession) -> None:
    """No fingerprint, no signature, and no key here: its geometry is proven, and it is served."""
    payload = await render(stack, client, REQUEST, JSON)
    del payload["rendergen"]
    assert await says(stack, client, await generate(stack, client, payload)) == "Red"


def with_hash(payload: Any, hint: str) -> Any:
    """The payload's image under another hash."""
    if isinstance(payload, FramesPayload):
        return replace(payload, items=(replace(payload.items[0], hash=hint),))
    payload = copy.deepcopy(payload)
    payload["features"]["mm_hashes"]["image"] = [hint]
    return payload


def hash_of(payload: Any) -> str:
    """Its image's hash."""
    return str(
        payload.items[0].hash if isinstance(payload, FramesPayload) else payload["features"]["mm_hashes"]["image"][0]
    )


@by_encoding
async def test_pixels_under_another_images_hash(stack: Stack, client: aiohttp.ClientSession, encoding: str) -> None:
    """Green pixels are green, though the engine has just seen red ones under the hash that they come with."""
    red = await render(stack, client, REQUEST, encoding)
    assert await says(stack, client, await generate(stack, client, red)) == "Red"
    green = await render(stack, client, chat(GREEN, WHAT_COLOR, max_tokens=8), encoding)
    assert hash_of(green) != hash_of(red)
    forged = with_hash(green, hash_of(red))
    assert await says(stack, client, await generate(stack, client, forged)) == "Green"
    assert await says(stack, client, await generate(stack, client, red)) == "Red"


async def test_a_name_that_a_caller_chose_on_another_route(stack: Stack, client: aiohttp.ClientSession) -> None:
    """The engine's own chat endpoint knows a picture by its caller's `uuid`.

    No payload's picture is taken for it: not by its hash, nor by the digest that its signature is made of.
    """
    unseen = image_part(encoded(solid((251, 2, 4))))
    payload = await render(stack, client, chat(unseen, WHAT_COLOR, max_tokens=8), MEDIA_TYPE)
    digest = item_digest(payload.items[0])
    for name in (hash_of(payload), digest):
        assert await said_by_one_server(stack, client, {**GREEN, "uuid": name}) == "Green"
    assert await says(stack, client, await generate(stack, client, payload)) == "Red"


def item_digest(item: FrameItem) -> str:
    """As docs/payload-format.md has it, for an item of plain tensors."""
    form = blake3.blake3()

    def count(number: int) -> None:
        form.update(number.to_bytes(8, "little"))

    def part(data: bytes) -> None:
        count(len(data))
        form.update(data)

    assert item.fields is not None
    count(len(item.fields))
    for field in sorted(item.fields, key=lambda each: each.name):
        assert isinstance(field.data, Tensor)
        for each in (field.name.encode(), b"tensor", b"torch." + field.data.dtype.encode()):
            part(each)
        count(len(field.data.shape))
        for size in field.data.shape:
            count(size)
        part(bytes(field.data.data))
    return str(form.hexdigest())


RENDERS = {
    "/v1/messages/render": {"max_tokens": 8, "messages": [{"role": "user", "content": "Count to 3."}]},
    "/v1/responses/render": {"max_output_tokens": 8, "input": "Count to 3."},
}


@by_encoding
@pytest.mark.parametrize("path", RENDERS)
async def test_other_apis_render_too(stack: Stack, client: aiohttp.ClientSession, path: str, encoding: str) -> None:
    """Their payloads say where they come from as well, and are served."""
    request = {"model": REQUEST["model"], **RENDERS[path]}
    reply = await send(client, stack.vllm_render_urls[0] + path, request, {"Accept": encoding})
    assert reply.status == 200, reply.text()
    payload = read_frames(reply.body) if encoding == MEDIA_TYPE else reply.json()
    assert (payload.fingerprint if encoding == MEDIA_TYPE else payload["rendergen"]["fingerprint"]) is not None
    assert (await generate(stack, client, payload)).status == 200


@by_encoding
async def test_an_image_that_comes_as_a_hash_alone(stack: Stack, client: aiohttp.ClientSession, encoding: str) -> None:
    """412, naming it, whether the engine has seen it or not; and the engine goes on."""
    whole = await render(stack, client, REQUEST, encoding)
    assert (await generate(stack, client, whole)).status == 200
    if encoding == MEDIA_TYPE:
        nulls = [replace(whole, items=(replace(whole.items[0], fields=None),))]
        nulls.append(await render(stack, client, {**REQUEST, "mm_payload": "none"}, encoding))
    else:
        nulls = [copy.deepcopy(whole), copy.deepcopy(whole)]
        nulls[0]["features"].update(kwargs_data=None, mm_metadata=None)
        nulls[1]["features"].update(kwargs_data={"image": [None]}, mm_metadata=None)
    for payload in nulls:
        refused(await generate(stack, client, payload), 412, "image 0", hash_of(whole))
    assert await says(stack, client, await generate(stack, client, whole)) == "Red"


SWITCHED_OFF: dict[str, Mapping[str, Any]] = {
    "content_parts": {"content_parts": [{"type": "image_url", "url": "http://127.0.0.1:1/x.png"}], "features": None},
    "kv_transfer_params": {"kv_transfer_params": {"remote_host": "10.0.0.1"}},
    "ec_transfer_params": {"ec_transfer_params": {"x": 1}},
}


@pytest.mark.parametrize("name", SWITCHED_OFF)
async def test_what_makes_the_server_open_connections(stack: Stack, client: aiohttp.ClientSession, name: str) -> None:
    """400, naming the member, unless a setting allows it."""
    payload = await render(stack, client, REQUEST, JSON)
    reply = await generate(stack, client, payload, **SWITCHED_OFF[name])
    refused(reply, 400, name)
    assert reply.json()["error"]["param"] == name


@by_encoding
async def test_sampling_params_that_no_sampler_takes(
    stack: Stack, client: aiohttp.ClientSession, encoding: str
) -> None:
    """NaN, which Python's JSON reads, and ids beyond the vocabulary: 400, naming the field."""
    payload = await render(stack, client, REQUEST, encoding)
    for name, value in (("temperature", float("nan")), ("stop_token_ids", [10**6]), ("logit_bias", {"999999": 1})):
        if isinstance(payload, FramesPayload):
            params = {**json.loads(payload.sampling_params), name: value}
            bad: Any = replace(payload, sampling_params=json.dumps(params).encode())
        else:
            bad = {**payload, "sampling_params": {**payload["sampling_params"], name: value}}
        refused(await generate(stack, client, bad), 400, name)


@by_encoding
async def test_streamed(stack: Stack, client: aiohttp.ClientSession, encoding: str) -> None:
    """The same route streams where the payload says so."""
    payload = await render(stack, client, REQUEST, encoding)
    reply = await generate(stack, client, payload, stream=True)
    assert reply.status == 200
    assert reply.headers["Content-Type"].startswith("text/event-stream")
    assert reply.body.endswith(b"data: [DONE]\n\n")


async def test_a_stream_that_fails_before_it_begins(stack: Stack, client: aiohttp.ClientSession) -> None:
    """Has the error's status: vLLM would answer 200, with the error within."""
    payload = await render(stack, client, REQUEST, JSON)
    payload["sampling_params"]["logprobs"] = 100
    reply = await generate(stack, client, payload, stream=True)
    refused(reply, 400, "logprobs")
    assert reply.headers["Content-Type"] == JSON


async def test_frames_that_are_none(stack: Stack, client: aiohttp.ClientSession) -> None:
    """400, saying where."""
    url = stack.vllm_engine_urls[0] + GENERATE
    for body in (b"", b"x" * 100, b"".join(write_frames(await render(stack, client, REQUEST, MEDIA_TYPE)))[:-1]):
        refused(await send(client, url, body, {"Content-Type": MEDIA_TYPE}), 400, "payload")


async def test_another_media_type(stack: Stack, client: aiohttp.ClientSession) -> None:
    """Is refused as vLLM does; a version that nobody speaks is one."""
    for media_type in ("text/plain", MEDIA_TYPE.replace("v1", "v2")):
        reply = await send(client, stack.vllm_engine_urls[0] + GENERATE, b"{}", {"Content-Type": media_type})
        refused(reply, 400)


async def test_several_prompts_are_several_payloads(stack: Stack, client: aiohttp.ClientSession) -> None:
    """One after the other in one answer; sent on as one they are refused, one by one they are served."""
    request = {"model": REQUEST["model"], "prompt": ["Count to 2.", "Count to 3."], "max_tokens": 3}
    url = stack.vllm_render_urls[0] + "/v1/completions/render"
    both = (await send(client, url, request, {"Accept": MEDIA_TYPE})).body
    second = both.index(b"\x89RGPAY", 1)
    refused(await send(client, stack.vllm_engine_urls[0] + GENERATE, both, {"Content-Type": MEDIA_TYPE}), 400)
    for index, data in enumerate((both[:second], both[second:])):
        payload = read_frames(data)
        assert (payload.index, payload.count) == (index, 2)
        assert (await generate(stack, client, replace(payload, index=0, count=1))).status == 200


KEYS = ("first key, of at least 32 characters", "second key, of at least 32 characters")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def signed(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stack]:
    """A stack whose payloads are signed, and which takes no others."""
    directory: Path = tmp_path_factory.mktemp("signed")
    (directory / "keys").write_text("\n".join(KEYS))
    settings = LaunchSettings(
        port=0,
        log_dir=directory / "logs",
        environment=(("RENDERGEN_PLUGIN__SIGNING_KEYS_FILE", str(directory / "keys")),),
        check_memory=False,
    )
    async with Stack(settings) as running:
        yield running


async def test_a_chat_with_signatures(signed: Stack, client: aiohttp.ClientSession) -> None:
    """Through the whole stack."""
    completion = await ok(client, signed.router_url + CHAT, REQUEST)
    assert completion["choices"][0]["message"]["content"] == "Red"


@by_encoding
async def test_signatures(signed: Stack, client: aiohttp.ClientSession, encoding: str) -> None:
    """403 without one, with one that is another's, and with a payload that was changed after it was signed."""
    payload = await render(signed, client, REQUEST, encoding)
    assert await says(signed, client, await generate(signed, client, payload)) == "Red"
    refused(await generate(signed, client, changed(payload, signature=None)), 403, "no signature")
    refused(await generate(signed, client, changed(payload, signature=bytes(32))), 403, "does not hold")
    refused(await generate(signed, client, changed(payload, fingerprint=None)), 403)
    refused(await generate(signed, client, with_hash(payload, "another")), 403, "does not hold")


async def test_one_signature_for_both_encodings(signed: Stack, client: aiohttp.ClientSession) -> None:
    """It is of what the payload says, not of how it is written."""
    frames, members = [await render(signed, client, REQUEST, encoding) for encoding in (MEDIA_TYPE, JSON)]
    assert frames.signature is not None
    assert frames.signature.hex() == members["rendergen"]["signature"]
    assert frames.fingerprint == members["rendergen"]["fingerprint"]


async def test_an_unsigned_payload(stack: Stack, signed: Stack, client: aiohttp.ClientSession) -> None:
    """Of a render server without a key, or a bare one: 403, though the model is the same."""
    for encoding in ENCODINGS:
        payload = await render(stack, client, {**REQUEST, "model": REQUEST["model"]}, encoding)
        refused(await generate(signed, client, payload), 403, "no signature")
    bare = await render(stack, client, REQUEST, JSON)
    del bare["rendergen"]
    refused(await generate(signed, client, bare), 403, "no signature")
