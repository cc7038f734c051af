"""What the engine is at, by its own metrics."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import aiohttp

from tests.e2e.polling import eventually


async def requests_running(client: aiohttp.ClientSession, engine_url: str) -> int:
    """Requests that the engine computes now, or will."""
    text = await _metrics(client, engine_url)
    return round(_sum(text, "vllm:num_requests_running") + _sum(text, "vllm:num_requests_waiting"))


async def tokens_generated(client: aiohttp.ClientSession, engine_url: str) -> int:
    """Tokens that the engine has generated since its start."""
    return round(_sum(await _metrics(client, engine_url), "vllm:generation_tokens_total"))


async def engine_is_idle(client: aiohttp.ClientSession, engine_url: str, within_s: float = 30) -> None:
    """Wait until it computes nothing."""

    async def idle() -> bool:
        return await requests_running(client, engine_url) == 0

    await eventually(idle, "the engine has nothing to do", within_s)


async def engine_is_busy(
    client: aiohttp.ClientSession, engine_url: str, with_request: asyncio.Task[Any] | None = None
) -> None:
    """Wait until it computes something; fail if ``with_request``, which should keep it busy, has ended by then."""

    async def busy() -> bool:
        assert with_request is None or not with_request.done(), with_request
        return await requests_running(client, engine_url) > 0

    await eventually(busy, "the engine computes something")


async def _metrics(client: aiohttp.ClientSession, engine_url: str) -> str:
    async with client.get(engine_url + "/metrics") as answer:
        assert answer.status == 200
        return await answer.text()


def _sum(text: str, name: str) -> float:
    samples = re.findall(rf"^{re.escape(name)}(?:\{{[^}}]*\}})? (\S+)$", text, re.MULTILINE)
    assert samples, f"the engine has no metric {name}"
    return sum(map(float, samples))
