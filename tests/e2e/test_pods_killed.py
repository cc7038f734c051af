"""Two render and two engine processes, of which one each is killed under a steady load.

It costs the streams that it had started, and nothing else.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

import aiohttp
import pytest_asyncio

from rendergen.launcher import LaunchSettings, Stack
from tests.e2e.calls import CHAT, GENERATE, RED, RENDER, WHAT_COLOR, chat, ok
from tests.e2e.polling import eventually
from tests.e2e.service_process import service_process

CALLERS = 6
# So many answers are waited for before a kill, and after the last.
STEADY = 24

SHORT = chat(RED, WHAT_COLOR)
LONG = chat("Count to 30", ignore_eos=True, max_tokens=60)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def doomed(stack: Stack, tmp_path_factory: Any) -> AsyncIterator[Stack]:
    """Pods beside the stack's, to be killed."""
    settings = LaunchSettings(
        port=0,
        plugin=stack.settings.plugin,
        log_dir=tmp_path_factory.mktemp("doomed") / "logs",
        vllm_args=stack.settings.vllm_args,
    )
    async with Stack(settings) as running:
        yield running


@dataclass(slots=True)
class Asked:
    """One request, and what became of it so far."""

    streamed: bool
    done: bool = False
    failure: str = ""
    broke_off: bool = False
    """It failed after its status: a stream that had been started."""
    was_in_flight_at_a_kill: bool = False


@dataclass(slots=True)
class Load:
    """Callers that ask one request after the other."""

    client: aiohttp.ClientSession
    url: str
    asked: list[Asked] = field(default_factory=list)
    over: bool = False

    def done(self) -> int:
        return sum(each.done for each in self.asked)

    async def more(self, number: int = STEADY) -> None:
        """Wait for so many more answers."""
        before = self.done()
        await eventually(lambda: self._has(before + number), "more answers")

    async def _has(self, number: int) -> bool:
        return self.done() >= number

    def note_kill(self) -> None:
        for each in self.asked:
            each.was_in_flight_at_a_kill |= not each.done

    async def keep_asking(self, number: int) -> None:
        for turn in count(number):
            if self.over:
                return
            asked = Asked(streamed=turn % 3 != 0)
            self.asked.append(asked)
            request = {**(LONG if turn % 2 else SHORT), "stream": asked.streamed}
            try:
                await self._ask(request, asked)
            except (aiohttp.ClientError, TimeoutError) as error:
                asked.failure = f"{type(error).__name__}: {error}"
            asked.done = True

    async def _ask(self, request: dict[str, Any], asked: Asked) -> None:
        async with self.client.post(self.url + CHAT, json=request) as answer:
            body = await answer.read()
        if answer.status != 200:
            asked.failure = f"{answer.status}: {body.decode()}"
        elif asked.streamed:
            *_, last, end, nothing = body.split(b"\n\n")
            assert (end, nothing) == (b"data: [DONE]", b""), body
            asked.broke_off = last.startswith(b'data: {"error"')
            asked.failure = last.decode() if asked.broke_off else ""
        else:
            assert json.loads(body)["choices"][0]["finish_reason"]


async def requests_served(client: aiohttp.ClientSession, service_url: str, path: str) -> float:
    """How much of the load a pod has done, that which its callers gave up included."""
    async with client.get(service_url + "/metrics") as answer:
        lines = (await answer.text()).splitlines()
    counts = [line for line in lines if line.startswith("rendergen_requests_total{") and f'route="{path}"' in line]
    return sum(float(line.rpartition(" ")[2]) for line in counts)


async def serves_load(client: aiohttp.ClientSession, service_url: str, path: str) -> bool:
    """Whether the pod has served more than its first requests, which are no part of the load."""
    return await requests_served(client, service_url, path) > len((SHORT, LONG))


async def pods_ready(client: aiohttp.ClientSession, router_url: str, number: int) -> bool:
    """Whether the router takes so many pods for ready: it is itself so with one of each role."""
    async with client.get(router_url + "/metrics") as answer:
        lines = (await answer.text()).splitlines()
    return sum(line.startswith("rendergen_pod_ready{") and line.endswith(" 1.0") for line in lines) == number


async def test_a_killed_pod_costs_the_streams_that_it_had_started(
    stack: Stack, doomed: Stack, client: aiohttp.ClientSession
) -> None:
    """Whatever had not begun is made on the other pod: no caller sees that anything happened."""
    pods = {
        "--render-pods": [*stack.render_service_urls, *doomed.render_service_urls],
        "--generate-pods": [*stack.generate_service_urls, *doomed.generate_service_urls],
    }
    flags = [text for name, urls in pods.items() for text in (name, ",".join(urls))]
    async with service_process("router", *flags) as router:
        await eventually(lambda: pods_ready(client, router.spec.url, 4), "all pods are ready")
        # An engine's first requests take seconds: others would be done by the other one alone.
        for request in (SHORT, LONG):
            await ok(client, doomed.router_url + CHAT, request)
        load = Load(client, router.spec.url)
        async with asyncio.TaskGroup() as callers:
            for number in range(CALLERS):
                callers.create_task(load.keep_asking(number))
            try:
                await load.more()
                for name, url, path in (
                    ("vllm-engine-0", doomed.generate_service_urls[0], GENERATE),
                    ("vllm-render-0", doomed.render_service_urls[0], RENDER),
                ):
                    await eventually(partial(serves_load, client, url, path), f"{name} serves some of the load")
                    load.note_kill()
                    doomed.process(name).kill()
                    await load.more()
            finally:
                load.over = True
    failed = [each for each in load.asked if each.failure]
    assert [each.failure for each in failed if not (each.broke_off and each.was_in_flight_at_a_kill)] == []
    assert len(failed) <= 2 * CALLERS
