"""An image goes in and `Red` comes out, whichever door is used."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import aiohttp
import pytest

from rendergen.launcher import Stack
from tests.e2e.calls import CHAT, DERENDER, GENERATE, RED, RENDER, WHAT_COLOR, chat, ok, post

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "roundtrip.py"


@pytest.mark.parametrize("door", ["router", "engine"])
async def test_the_round_trip_script_says_red(stack: Stack, door: str) -> None:
    """The documented client works against the router and, unchanged, against one `vllm serve --enable-scale-out`."""
    url = stack.router_url if door == "router" else stack.vllm_engine_urls[0]
    script = await asyncio.create_subprocess_exec(
        sys.executable, str(SCRIPT), "--base-url", url, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        output, _ = await asyncio.wait_for(script.communicate(), 60)
    finally:
        if script.returncode is None:
            script.kill()
    assert script.returncode == 0, output.decode()
    assert output.decode().splitlines()[-1] == "answer: Red"


@pytest.mark.parametrize("doors", ["router", "services", "vllm"])
async def test_render_generate_and_derender_say_red(stack: Stack, client: aiohttp.ClientSession, doors: str) -> None:
    """The three endpoints compose, whether the router, the services or vLLM's two servers are asked.

    They are vLLM's own, so the text still has the end-of-turn token that vLLM's derender leaves in it.
    """
    render, generate = {
        "router": (stack.router_url, stack.router_url),
        "services": (stack.render_service_urls[0], stack.generate_service_urls[0]),
        "vllm": (stack.vllm_render_urls[0], stack.vllm_engine_urls[0]),
    }[doors]
    request = chat(RED, WHAT_COLOR)
    payload = await ok(client, render + RENDER, request)
    payload["sampling_params"]["max_tokens"] = 16
    generated = await ok(client, generate + GENERATE, payload)
    derender = {
        "model": request["model"],
        "generate_response": generated,
        "chat_request": request,
        "prompt_tokens": len(payload["token_ids"]),
        "prompt_token_ids": payload["token_ids"],
        "stream": False,
    }
    completion = await ok(client, render + DERENDER, derender)
    assert completion["choices"][0]["message"]["content"].removesuffix("<|im_end|>") == "Red"
    assert completion["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize("door", ["router", "services"])
async def test_completions_are_rendered_and_derendered(stack: Stack, client: aiohttp.ClientSession, door: str) -> None:
    """The three steps of `/v1/completions`, of which render gives a list, one payload a prompt."""
    render = stack.router_url if door == "router" else stack.render_service_urls[0]
    generate = stack.router_url if door == "router" else stack.generate_service_urls[0]
    prompt = "<|im_start|>user\nCount to 3<|im_end|>\n<|im_start|>assistant\n"
    request = {"model": stack.settings.name, "prompt": prompt, "temperature": 0, "max_tokens": 5}
    [payload] = await ok(client, render + "/v1/completions/render", request)
    generated = await ok(client, generate + GENERATE, payload)
    derender = {"model": stack.settings.name, "generate_responses": [generated], "completion_request": request}
    derender |= {"prompt_tokens": [len(payload["token_ids"])], "prompt_token_ids": [payload["token_ids"]]}
    completion = await ok(client, render + "/v1/completions/derender", derender)
    single = await ok(client, stack.vllm_engine_urls[0] + "/v1/completions", request)
    assert completion["choices"][0]["text"] == single["choices"][0]["text"] == "1 2 3"
    assert completion["usage"]["total_tokens"] == single["usage"]["total_tokens"]


@pytest.mark.parametrize("door", ["router", "generate service"])
async def test_a_raw_generation_is_streamed(stack: Stack, client: aiohttp.ClientSession, door: str) -> None:
    """The events are vLLM's own: the same tokens as in one answer, in several events, and `[DONE]` at the end."""
    url = (stack.router_url if door == "router" else stack.generate_service_urls[0]) + GENERATE
    payload = await ok(client, stack.router_url + RENDER, chat("Count to 20"))
    whole = await ok(client, url, payload)
    reply = await post(client, url, {**payload, "stream": True})
    assert reply.headers["Content-Type"].startswith("text/event-stream")
    events = [line.removeprefix("data: ") for line in reply.text().split("\n\n") if line]
    assert events[-1] == "[DONE]"
    choices = [choice for event in events[:-1] for choice in json.loads(event)["choices"]]
    assert len(choices) > 5
    assert [token for choice in choices for token in choice["token_ids"] or ()] == whole["choices"][0]["token_ids"]


async def test_a_chat_completion_says_red(stack: Stack, client: aiohttp.ClientSession) -> None:
    """The router does the three steps in one request."""
    completion = await ok(client, stack.router_url + CHAT, chat(RED, WHAT_COLOR))
    assert completion["choices"][0]["message"]["content"] == "Red"


@pytest.mark.parametrize("door", ["router", "render service", "generate service"])
async def test_every_door_names_the_model(stack: Stack, client: aiohttp.ClientSession, door: str) -> None:
    """Clients that list the models first find the one that is served."""
    url = {
        "router": stack.router_url,
        "render service": stack.render_service_urls[0],
        "generate service": stack.generate_service_urls[0],
    }[door]
    async with client.get(url + "/v1/models") as answer:
        assert answer.status == 200
        models = (await answer.json())["data"]
    assert [model["id"] for model in models] == [stack.settings.name]
