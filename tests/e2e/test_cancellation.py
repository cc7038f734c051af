"""A caller who leaves stops the engine: nobody reads what it would go on to compute."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest

from rendergen.launcher import Stack
from tests.e2e.calls import CHAT, GENERATE, RED, RENDER, WHAT_COLOR, chat, ok
from tests.e2e.engine_load import engine_is_busy, engine_is_idle, requests_running, tokens_generated
from tests.e2e.polling import eventually
from tests.e2e.stalls import again_if_the_machine_stalls
from tests.support.raw_caller import RawCaller, raw_caller

# How soon the engine must have stopped.
STOPPED_WITHIN_S = 1.0

# Some 4,000 tokens: many times longer than that.
ENDLESS = {"ignore_eos": True, "max_tokens": 3900}


@dataclass(frozen=True, slots=True)
class Way:
    """One way to the engine."""

    door: str
    path: str
    streamed: bool

    def __str__(self) -> str:
        return f"{self.door} {self.path}{' streamed' if self.streamed else ''}"

    def url(self, stack: Stack) -> str:
        return (stack.router_url if self.door == "router" else stack.generate_service_urls[0]) + self.path

    async def body(self, stack: Stack, client: aiohttp.ClientSession) -> dict[str, Any]:
        """A request that keeps the engine busy for longer than any test waits."""
        request = chat(RED, WHAT_COLOR, **ENDLESS)
        if self.path == CHAT:
            return request
        payload = await ok(client, stack.router_url + RENDER, request)
        return {**payload, "stream": self.streamed}


WAYS = (
    Way("router", CHAT, False),
    Way("router", GENERATE, False),
    Way("router", GENERATE, True),
    Way("generate service", GENERATE, False),
    Way("generate service", GENERATE, True),
)


async def begin(caller: RawCaller, path: str, body: dict[str, Any]) -> None:
    """Send a whole request."""
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    await caller.send(head.encode() + data)


@pytest.mark.parametrize("way", WAYS, ids=str)
@again_if_the_machine_stalls
async def test_a_caller_who_leaves_stops_the_engine(stack: Stack, client: aiohttp.ClientSession, way: Way) -> None:
    """The connection closes in the midst of a generation; the engine aborts within a second or so."""
    [engine] = stack.vllm_engine_urls
    body = await way.body(stack, client)
    await engine_is_idle(client, engine)
    before = await tokens_generated(client, engine)
    async with raw_caller(way.url(stack)) as caller:
        await begin(caller, way.path, body)
        await engine_is_busy(client, engine)
        if way.streamed:
            await caller.reader.readuntil(b"data:")
        caller.leave()
        await engine_is_idle(client, engine, STOPPED_WITHIN_S)
    assert await tokens_generated(client, engine) - before < ENDLESS["max_tokens"]


@pytest.mark.parametrize("way", WAYS, ids=str)
@again_if_the_machine_stalls
async def test_a_caller_who_closes_in_good_order_stops_it_too(
    stack: Stack, client: aiohttp.ClientSession, way: Way
) -> None:
    """The same for a client library that gives up: it closes the connection rather than reset it."""
    [engine] = stack.vllm_engine_urls
    body = await way.body(stack, client)
    await engine_is_idle(client, engine)
    before = await tokens_generated(client, engine)
    calling = asyncio.create_task(ok(client, way.url(stack), body))
    await engine_is_busy(client, engine, calling)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    await engine_is_idle(client, engine, STOPPED_WITHIN_S)
    assert await tokens_generated(client, engine) - before < ENDLESS["max_tokens"]


@again_if_the_machine_stalls
async def test_a_caller_who_leaves_does_not_hurt_another(stack: Stack, client: aiohttp.ClientSession) -> None:
    """Two requests under one id, of which one goes away: the other is answered in full."""
    [engine] = stack.vllm_engine_urls
    await engine_is_idle(client, engine)
    headers = {"X-Request-Id": "shared"}

    async def ask(max_tokens: int) -> Any:
        request = chat(RED, WHAT_COLOR, ignore_eos=True, max_tokens=max_tokens)
        async with client.post(stack.router_url + CHAT, json=request, headers=headers) as answer:
            return answer.status, await answer.json()

    staying = asyncio.create_task(ask(400))
    leaving = asyncio.create_task(ask(3900))

    async def both_run() -> bool:
        return await requests_running(client, engine) == 2

    await eventually(both_run, "the engine runs both")
    leaving.cancel()
    status, completion = await staying
    assert status == 200
    assert completion["usage"]["completion_tokens"] == 400
    await engine_is_idle(client, engine, STOPPED_WITHIN_S)


@again_if_the_machine_stalls
async def test_a_request_is_aborted_by_its_id(stack: Stack, client: aiohttp.ClientSession) -> None:
    """The router passes vLLM's abort on to the pods, for a caller who generates by the raw path."""
    [engine] = stack.vllm_engine_urls
    way = Way("router", GENERATE, False)
    body = {**await way.body(stack, client), "request_id": "to-be-aborted"}
    await engine_is_idle(client, engine)
    generating = asyncio.create_task(ok(client, way.url(stack), body))
    try:
        await engine_is_busy(client, engine, generating)
        ids = {"request_ids": ["to-be-aborted", "generate-tokens-to-be-aborted"]}
        async with client.post(stack.router_url + "/inference/v1/abort_requests", json=ids) as answer:
            assert answer.status == 200
        await engine_is_idle(client, engine, STOPPED_WITHIN_S)
        assert (await generating)["choices"][0]["finish_reason"] == "abort"
    finally:
        generating.cancel()
