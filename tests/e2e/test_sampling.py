"""Sampling params arrive as the caller meant them, and those that only the render server knows are kept."""

from __future__ import annotations

import json

import aiohttp
import pytest

from rendergen.launcher import Stack
from tests.e2e.calls import CHAT, GENERATE, RED, RENDER, WHAT_COLOR, chat, ok
from tests.e2e.conftest import GENERATION_DEFAULTS
from tests.e2e.projection import projection
from tests.e2e.tapped_stack import TappedStack


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
async def test_sixteen_tokens_are_sixteen(stack: Stack, client: aiohttp.ClientSession, name: str) -> None:
    """16 is vLLM's default, which its render server leaves out; it must not become all that is left of the context."""
    request = chat("Count to 50", **{name: 16})
    ours = await ok(client, stack.router_url + CHAT, request)
    assert ours["usage"]["completion_tokens"] == 16
    assert ours["choices"][0]["finish_reason"] == "length"
    assert projection(ours) == projection(await ok(client, stack.vllm_engine_urls[0] + CHAT, request))


@pytest.mark.parametrize("tokens", [1, 15, 17])
async def test_other_numbers_of_tokens_too(stack: Stack, client: aiohttp.ClientSession, tokens: int) -> None:
    """Around the default nothing is special."""
    request = chat("Count to 50", max_tokens=tokens)
    ours = await ok(client, stack.router_url + CHAT, request)
    assert ours["usage"]["completion_tokens"] == tokens
    assert projection(ours) == projection(await ok(client, stack.vllm_engine_urls[0] + CHAT, request))


async def test_without_a_number_the_answer_ends_by_itself(stack: Stack, client: aiohttp.ClientSession) -> None:
    """The chat endpoint's own default is what is left of the context, as on one server."""
    request = chat("Count to 50")
    ours = await ok(client, stack.router_url + CHAT, request)
    assert ours["choices"][0]["finish_reason"] == "stop"
    assert projection(ours) == projection(await ok(client, stack.vllm_engine_urls[0] + CHAT, request))


async def test_overrides_are_merged(stack: Stack, client: aiohttp.ClientSession) -> None:
    """A `sampling_params` member changes what it names, and nothing else."""
    request = chat("Count to 50", max_tokens=40, sampling_params={"max_tokens": 5})
    ours = await ok(client, stack.router_url + CHAT, request)
    same = await ok(client, stack.vllm_engine_urls[0] + CHAT, chat("Count to 50", max_tokens=5))
    assert projection(ours) == projection(same)


async def test_the_models_own_defaults_are_kept(tapped: TappedStack, client: aiohttp.ClientSession) -> None:
    """What generation_config.json says holds where the caller sets only the temperature."""
    tapped.forget()
    await ok(client, tapped.router_url + CHAT, chat(RED, WHAT_COLOR, temperature=0.5, max_tokens=4))
    [generate] = tapped.generate.to(GENERATE)
    sent = json.loads(generate.request)["sampling_params"]
    assert sent["temperature"] == 0.5
    assert sent.items() >= GENERATION_DEFAULTS.items()


async def test_overrides_leave_the_models_own_defaults(tapped: TappedStack, client: aiohttp.ClientSession) -> None:
    """The same for a caller who sets the temperature by `sampling_params`."""
    tapped.forget()
    request = chat(RED, WHAT_COLOR, max_tokens=4, sampling_params={"temperature": 0.5, "top_p": 0.9})
    del request["temperature"]
    await ok(client, tapped.router_url + CHAT, request)
    [rendered], [generate] = tapped.render.to(RENDER), tapped.generate.to(GENERATE)
    sent = json.loads(generate.request)["sampling_params"]
    assert sent == {**json.loads(rendered.answer)["sampling_params"], "temperature": 0.5, "top_p": 0.9, "max_tokens": 4}
    assert sent.items() >= GENERATION_DEFAULTS.items()


async def test_a_seed_gives_the_same_sample_as_on_one_server(stack: Stack, client: aiohttp.ClientSession) -> None:
    """Sampling with a seed goes through the same params in both places, so it draws the same tokens."""
    request = chat("Count to 50", temperature=1.5, seed=11, max_tokens=30)
    ours = await ok(client, stack.router_url + CHAT, request)
    assert projection(ours) == projection(await ok(client, stack.vllm_engine_urls[0] + CHAT, request))
