"""A request through render, generate and derender in a stream, and the same through one server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from random import Random
from typing import Any

import aiohttp

from rendergen.launcher import Stack
from tests.e2e.calls import GENERATE, Reply, ok, post

VLLM_DEFAULT_MAX_TOKENS = 16


def derender_path(path: str) -> str:
    """Where the answers of an API's path are derendered in a stream."""
    return f"{path}/derender/stream"


async def rendered(client: aiohttp.ClientSession, stack: Stack, path: str, request: dict[str, Any]) -> dict[str, Any]:
    """What generate is to be sent."""
    payload = await ok(client, f"{stack.vllm_render_urls[0]}{path}/render", request)
    if isinstance(payload, list):  # completions: one for each prompt
        (payload,) = payload
    # Render leaves out what is vLLM's default, and generate takes the absence for all that is left of the context.
    payload["sampling_params"].setdefault("max_tokens", VLLM_DEFAULT_MAX_TOKENS)
    return payload


async def generated(
    client: aiohttp.ClientSession, stack: Stack, payload: dict[str, Any], *, stream: bool, **members: Any
) -> bytes:
    """Generate's answer, streamed or not."""
    reply = await post(client, stack.vllm_engine_urls[0] + GENERATE, {**payload, **members, "stream": stream})
    assert reply.status == 200, reply.text()
    return reply.body


def context_of(payload: dict[str, Any], request: dict[str, Any], **members: Any) -> bytes:
    """The first line of a derender stream."""
    context = {
        "request": blanked(request),
        "prompt_token_ids": payload["token_ids"],
        "sampling_params": payload["sampling_params"],
        "request_id": payload["request_id"],
        **members,
    }
    return json.dumps({name: value for name, value in context.items() if value is not None}).encode() + b"\n"


def blanked(value: Any) -> Any:
    """The request with nothing left of its images."""
    if isinstance(value, dict):
        return {name: blanked(each) for name, each in value.items()}
    if isinstance(value, list):
        return [blanked(each) for each in value]
    if isinstance(value, str) and value.startswith("data:image/"):
        return ""
    return value


def cut(data: bytes, seed: object, most: int = 200) -> Iterator[bytes]:
    """The same bytes in pieces of random lengths, many of them of one byte."""
    random = Random(str(seed))
    at = 0
    while at < len(data):
        length = random.choice((1, 2, 3, random.randint(1, most)))
        yield data[at : at + length]
        at += length


async def sent(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    """As a body that comes piece by piece."""
    for piece in pieces:
        yield piece


async def derendered(
    client: aiohttp.ClientSession,
    stack: Stack,
    path: str,
    request: dict[str, Any],
    *,
    generate_streams: bool,
    **members: Any,
) -> Reply:
    """The answer by render, generate and derender, generate's cut at random byte positions."""
    payload = await rendered(client, stack, path, request)
    answer = await generated(client, stack, payload, stream=generate_streams)
    return await derender(client, stack, path, context_of(payload, request, **members) + answer)


async def derender(client: aiohttp.ClientSession, stack: Stack, path: str, body: bytes) -> Reply:
    """POST a whole derender stream, in pieces."""
    return await post(client, stack.vllm_render_urls[0] + derender_path(path), sent(cut(body, len(body))))
