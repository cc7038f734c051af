"""A router in this process before scripted pods, and what those answer when all goes well."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import aiohttp

from router.app import make_router
from router.settings import RouterSettings
from tests.support.polling import eventually
from tests.support.scripted_pod import Answer, ScriptedPod, json_answer, scripted_pod
from tests.support.service import QUICK, app_served

CHAT = "/v1/chat/completions"
RENDER = CHAT + "/render"
GENERATE = "/inference/v1/generate"
DERENDER = CHAT + "/derender"

# Odd in every way that JSON allows: whatever re-encodes it does not give the same bytes.
BEFORE = (
    '{"request_id" : "r", "token_ids":[1, 2 ,3],\n "features":{"a\\u0062":"한\\/", "n":1.50E+2},"sampling_params": '
).encode()
PARAMS = b'{"temperature":0.70, "stop_token_ids":[ 5],"seed":null}'
AFTER = b' ,"model":"m" , "unknown": [ {"sampling_params":{"x":1}} ]\t}\n'
PAYLOAD = BEFORE + PARAMS + AFTER

GENERATED = b'{"request_id":"generate-tokens-r", "choices":[{"token_ids":[7 , 8],"finish_reason":"length"}]}'
COMPLETION = b'{"id":"chatcmpl-vllm", "object":"chat.completion","choices":[ {"message":{"content":"\\ud55c"}}]}'
REQUEST = b'{"model":"m", "messages":[{"role":"user","content":"hi"}]}'


def render_part() -> dict[str, Answer]:
    """What a render pod answers."""
    return {RENDER: json_answer(PAYLOAD), DERENDER: json_answer(COMPLETION)}


def generate_part() -> dict[str, Answer]:
    """What a generate pod answers."""
    return {GENERATE: json_answer(GENERATED)}


@asynccontextmanager
async def render_pod() -> AsyncIterator[ScriptedPod]:
    """A render pod that does its part."""
    async with scripted_pod(render_part()) as pod:
        yield pod


@asynccontextmanager
async def generate_pod() -> AsyncIterator[ScriptedPod]:
    """A generate pod that does its part."""
    async with scripted_pod(generate_part()) as pod:
        yield pod


@asynccontextmanager
async def routed(
    render: Sequence[ScriptedPod], generate: Sequence[ScriptedPod], *, until_ready: bool = True, **settings: float
) -> AsyncIterator[str]:
    """A router before those pods; gives its address once it knows all of them to be ready."""
    chosen = RouterSettings(
        render_pods=tuple(pod.url for pod in render),
        generate_pods=tuple(pod.url for pod in generate),
        **QUICK | settings,
    )
    async with app_served(await make_router(chosen), chosen) as url, aiohttp.ClientSession() as session:
        if until_ready:
            number = len({pod.url for pod in [*render, *generate]})
            await eventually(lambda: _are_ready(session, url, number))
        yield url


async def _are_ready(session: aiohttp.ClientSession, url: str, number: int) -> bool:
    async with session.get(url + "/metrics") as answer:
        lines = (await answer.text()).splitlines()
    return sum(line.startswith("rendergen_pod_ready{") and line.endswith(" 1.0") for line in lines) == number
