"""A request through render, generate and vLLM's own derender, as the router asks it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from enum import Enum
from typing import Any

import aiohttp

from rendergen.launcher import Stack
from rendergen.payload import Document, Piece, Span
from router.api_request import ApiRequest
from router.apis import CHAT, COMPLETIONS, Api
from router.media import Media
from router.prompt import Prompt
from router.upstream_derender import Generated, completion, derender_request
from router.upstream_stream import stream
from tests.e2e.calls import post
from tests.e2e.derendered import generated, rendered
from tests.e2e.joined import events_of

_INLINE = re.compile(rb"data:image/[^\"]*")


class Pace(Enum):
    """How generate's events come."""

    ONE_BY_ONE = "one by one"
    TOGETHER = "together"


def api_request(path: str, request: dict[str, Any]) -> ApiRequest:
    """The request as the router reads it."""
    body = json.dumps(request).encode()
    return ApiRequest(
        api=api_of(path),
        headers={},
        document=Document.of(body),
        media=Media(spans=tuple(Span(*match.span()) for match in _INLINE.finditer(body))),
        model=request["model"],
        sampling_overrides={},
    )


def api_of(path: str) -> Api:
    """The API of that path."""
    return next(api for api in (CHAT, COMPLETIONS) if api.path == path)


async def asked_of_generate(
    client: aiohttp.ClientSession, stack: Stack, path: str, request: dict[str, Any]
) -> dict[str, Any]:
    """The payload, set as the router sets it: completions may have to give one candidate more."""
    payload = await rendered(client, stack, path, request)
    if path == COMPLETIONS.path and "logprobs" in request:
        payload["sampling_params"]["logprobs"] += 1
    return payload


async def derendered_whole(
    client: aiohttp.ClientSession, stack: Stack, path: str, request: dict[str, Any]
) -> dict[str, Any]:
    """The answer that is not streamed."""
    payload = await asked_of_generate(client, stack, path, request)
    answer = Generated.read(await generated(client, stack, payload, stream=False))
    asked = api_request(path, request)
    prompt = Prompt.of_json(json.dumps(payload["token_ids"]).encode())
    body = derender_request(asked, prompt, answer)
    derendered = await post(client, f"{stack.vllm_render_urls[0]}{path}/derender", b"".join(body))
    assert derendered.status == 200, derendered.text()
    found = json.loads(b"".join(completion(asked, prompt, derendered.body, answer, "ours")))
    assert isinstance(found, dict)
    return found


async def derendered_stream(
    client: aiohttp.ClientSession, stack: Stack, path: str, request: dict[str, Any], pace: Pace
) -> str:
    """The answer that is streamed."""
    payload = await asked_of_generate(client, stack, path, request)
    events = events_of((await generated(client, stack, payload, stream=True)).decode())
    assert events.pop() == "[DONE]"
    paced = _Paced(client, f"{stack.vllm_render_urls[0]}{path}/derender", events, pace)
    asked = api_request(path, request)
    prompt = Prompt.of_json(json.dumps(payload["token_ids"]).encode())
    told = [told async for told in stream(asked, prompt, paced.events(), paced.ask, "ours")]
    return b"".join(told).decode()


class _Paced:
    def __init__(self, client: aiohttp.ClientSession, url: str, events: list[Any], pace: Pace) -> None:
        self._client = client
        self._url = url
        self._events = events
        self._pace = pace
        self._answered = asyncio.Semaphore(0)

    async def events(self) -> AsyncIterator[bytes]:
        for event in self._events:
            yield json.dumps(event).encode()
            if event["choices"] and self._pace is Pace.ONE_BY_ONE:
                await self._answered.acquire()

    async def ask(self, body: tuple[Piece, ...]) -> bytes:
        answer = await post(self._client, self._url, b"".join(body))
        assert answer.status == 200, answer.text()
        self._answered.release()
        return answer.body
