"""The raw generate and derender paths refuse what is no payload, without harm to the engine.

Payloads that are known to end an engine (geometry that lies) are not among these: only the plugin can tell them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest

from rendergen.launcher import Stack
from tests.e2e.calls import CHAT, DERENDER, GENERATE, RED, RENDER, WHAT_COLOR, chat, ok, post
from tests.e2e.refusal import assert_refused

Change = Callable[[dict[str, Any]], Any]


def with_members(**members: Any) -> Change:
    """A payload with some of its members set."""
    return lambda payload: {**payload, **members}


def without(name: str) -> Change:
    """A payload without one of its members."""
    return lambda payload: {key: value for key, value in payload.items() if key != name}


def with_image(data: Any, **features: Any) -> Change:
    """A payload whose image data are ``data``, under a hash that no cache knows."""
    return lambda payload: {
        **payload,
        "features": {
            **payload["features"],
            "mm_hashes": {"image": ["f" * 64]},
            "kwargs_data": data,
            **features,
        },
    }


CASES: dict[str, tuple[Change, int, str]] = {
    "cut JSON": (lambda payload: json.dumps(payload).encode()[:-10], 400, "JSON"),
    "nothing": (lambda _: b"", 400, "JSON|body|required"),
    "a list": (lambda _: b"[]", 400, "object|dictionary|JSON"),
    "no token ids": (without("token_ids"), 400, "token_ids"),
    "no sampling params": (without("sampling_params"), 400, "sampling_params"),
    "empty token ids": (with_members(token_ids=[], features=None), 400, "prompt|token"),
    "negative token ids": (with_members(token_ids=[-1], features=None), 400, "token_ids"),
    "token ids beyond the vocabulary": (with_members(token_ids=[10**6], features=None), 400, "vocab|token"),
    "token ids that are text": (with_members(token_ids=["x"], features=None), 400, "token_ids"),
    "more tokens than the context": (with_members(token_ids=[5] * 5000, features=None), 400, "4096|context|length"),
    "an unknown model": (with_members(model="no-such-model"), 404, "no-such-model"),
    "a temperature that is NaN": (with_members(sampling_params={"temperature": float("nan")}), 400, "temperature"),
    "no tokens to make": (with_members(sampling_params={"max_tokens": 0}), 400, "max_tokens"),
    "image data that are no base64": (with_image({"image": ["@@@@"]}), 400, "."),
    "image data that are no message": (with_image({"image": ["AAAA"]}), 400, "."),
    "no image data": (with_image(None), 400, "."),
}


@pytest.fixture(scope="module")
def payloads() -> dict[str, Any]:
    """One rendered payload, kept for all cases."""
    return {}


@pytest.mark.parametrize("door", ["router", "generate service"])
@pytest.mark.parametrize("case", CASES)
async def test_bad_payloads_are_refused(
    stack: Stack, client: aiohttp.ClientSession, payloads: dict[str, Any], case: str, door: str
) -> None:
    """A 4xx that says what is wrong, and the engine goes on."""
    if not payloads:
        payloads.update(await ok(client, stack.router_url + RENDER, chat(RED, WHAT_COLOR)))
    change, status, says = CASES[case]
    url = stack.router_url if door == "router" else stack.generate_service_urls[0]
    reply = await post(client, url + GENERATE, change(payloads))
    assert_refused(reply, status, says, stack=stack)
    right = await ok(client, url + GENERATE, payloads)
    assert right["choices"][0]["finish_reason"] == "stop"


DERENDERS: dict[str, tuple[Any, int, str]] = {
    "cut JSON": (b'{"model"', 400, "JSON"),
    "nothing": ({}, 400, "generate_response|required"),
    "an unknown model": (
        {
            "model": "no-such-model",
            "generate_response": {"request_id": "x", "choices": [{"index": 0, "token_ids": [20]}]},
        },
        404,
        "no-such-model",
    ),
    "token ids beyond the vocabulary": (
        {
            "model": "tiny-vlm",
            "generate_response": {"request_id": "x", "choices": [{"index": 0, "token_ids": [10**7]}]},
        },
        400,
        ".",
    ),
}


@pytest.mark.parametrize("door", ["router", "render service"])
@pytest.mark.parametrize("case", DERENDERS)
async def test_bad_derenders_are_refused(stack: Stack, client: aiohttp.ClientSession, case: str, door: str) -> None:
    """The same for what is to become text."""
    body, status, says = DERENDERS[case]
    url = stack.router_url if door == "router" else stack.render_service_urls[0]
    assert_refused(await post(client, url + DERENDER, body), status, says, stack=stack)


async def test_the_engine_still_answers(stack: Stack, client: aiohttp.ClientSession) -> None:
    """Nothing of all this has hurt it."""
    completion = await ok(client, stack.router_url + CHAT, chat(RED, WHAT_COLOR))
    assert completion["choices"][0]["message"]["content"] == "Red"
