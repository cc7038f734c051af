"""What derender costs the render server for each token: in a stream, against upstream's one request for each chunk.

`python -m benchmarks.derender` starts the stack with the tiny model and prints a table. Tokens come one at a time at an
engine's pace, so that nothing is done for two tokens of a stream at once: that is the dearest way. One stream alone is
dearer than one of several, because the server wakes up for each token.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp

from benchmarks.cpu import cpu_seconds, tree
from benchmarks.report import table
from rendergen.launcher import LaunchSettings, Stack
from rendergen.tiny_model import TINY_MODEL_NAME

TOKENS = 2_100
WINDOW = 40
"""Tokens over which CPU time is taken."""

PLACES = ((20, 1), (20, 16), (2_000, 1))
"""The tokens in whose neighbourhood it is taken, and how many streams are there at once."""

PACE_S = 0.003
"""Time between two tokens: longer than a token takes."""

SETTLE_S = 0.05
"""How long the server has to finish what it was sent before its CPU time is read."""

ROUNDS = 5
"""How often each is measured; upstream's at token 2,000 once."""


@dataclass(frozen=True, slots=True)
class Api:
    """One API that can be derendered by both."""

    name: str
    path: str
    question: dict[str, Any]
    request_name: str
    """What upstream's derender calls the caller's request."""


def _question(**members: Any) -> dict[str, Any]:
    return {
        "model": TINY_MODEL_NAME,
        "temperature": 0,
        "max_tokens": TOKENS,
        "ignore_eos": True,
        "stream": True,
        **members,
    }


APIS = (
    Api(
        "chat, with parsers",
        "/v1/chat/completions",
        _question(messages=[{"role": "user", "content": "Count to 50"}]),
        "chat_request",
    ),
    Api("text", "/v1/completions", _question(prompt="1 2 3"), "completion_request"),
)


@dataclass(frozen=True, slots=True)
class Generated:
    """A request that has been rendered and generated."""

    api: Api
    payload: dict[str, Any]
    events: Sequence[bytes]

    @property
    def context(self) -> bytes:
        """The first line of a derender stream."""
        members = {
            "request": self.api.question,
            "prompt_token_ids": self.payload["token_ids"],
            "sampling_params": self.payload["sampling_params"],
        }
        return json.dumps(members).encode() + b"\n"


class Bench:
    """Two servers, and the process whose CPU time is taken."""

    def __init__(
        self, session: aiohttp.ClientSession, render_url: str, engine_url: str, render_pids: Sequence[int]
    ) -> None:
        self._session = session
        self._render_url = render_url
        self._engine_url = engine_url
        self._pids = render_pids

    async def generated(self, api: Api) -> Generated:
        """Ask once; what comes is derendered again and again."""
        rendered = await self._post(self._render_url + api.path + "/render", api.question)
        payload = rendered[0] if isinstance(rendered, list) else rendered
        async with self._session.post(self._engine_url + "/inference/v1/generate", json=payload) as answer:
            body = await answer.read()
        return Generated(api, payload, [event + b"\n\n" for event in body.split(b"\n\n") if event])

    async def in_a_stream(self, what: Generated, meter: Meter) -> None:
        """Derender by our endpoint."""

        async def body() -> AsyncIterator[bytes]:
            yield what.context
            for count, event in enumerate(what.events[: meter.tokens]):
                await meter.at(count)
                yield event
                await asyncio.sleep(PACE_S)
            await meter.at(meter.tokens)

        url = self._render_url + what.api.path + "/derender/stream"
        async with self._session.post(url, data=body()) as answer:
            await answer.read()

    async def by_chunks(self, what: Generated, meter: Meter) -> None:
        """The same by upstream's endpoint: the state goes to and fro."""
        state = None
        for count, event in enumerate(what.events[: meter.tokens]):
            await meter.at(count)
            request = {
                "stream": True,
                "generate_chunk": json.loads(event.removeprefix(b"data: ")),
                "stream_state": state,
                "prompt_token_ids": what.payload["token_ids"],
                "prompt_tokens": len(what.payload["token_ids"]),
                what.api.request_name: what.api.question,
            }
            await asyncio.sleep(PACE_S)
            state = (await self._post(self._render_url + what.api.path + "/derender", request))["stream_state"]
        await meter.at(meter.tokens)

    def meter(self, place: int, streams: int) -> Meter:
        """For that many streams, around the token at ``place``."""
        return Meter(self._pids, place, streams)

    async def _post(self, url: str, body: Any) -> Any:
        async with self._session.post(url, json=body) as answer:
            answer.raise_for_status()
            return await answer.json()


class Meter:
    """CPU time of some processes while each of some streams goes through the tokens around one place."""

    def __init__(self, pids: Sequence[int], place: int, streams: int) -> None:
        self._pids = pids
        self._streams = streams
        self._first = place - WINDOW // 2
        self._barrier = asyncio.Barrier(streams)
        self._marks: list[float] = []

    @property
    def tokens(self) -> int:
        """Tokens that each stream has to go through."""
        return self._first + WINDOW

    async def at(self, count: int) -> None:
        """A stream is about to send token ``count``. At both ends of the window all streams wait for each other."""
        if count not in (self._first, self.tokens):
            return
        async with self._barrier as place:
            if place == 0:
                await asyncio.sleep(SETTLE_S)
                self._marks.append(cpu_seconds(self._pids))
        async with self._barrier:
            pass

    @property
    def microseconds(self) -> float:
        """For one token of one stream."""
        begin, end = self._marks
        return 1e6 * (end - begin) / WINDOW / self._streams


async def measure(bench: Bench) -> str:
    """The table."""
    lines = [("API", "token", "streams at once", "in a stream, µs CPU", "upstream, µs CPU", "ratio")]
    for api in APIS:
        what = await bench.generated(api)
        for place, streams in PLACES:
            ours = await _median(bench, bench.in_a_stream, what, place, streams, ROUNDS)
            theirs = await _median(bench, bench.by_chunks, what, place, streams, 1 if place > 100 else ROUNDS)
            ratio = f"{ours / theirs:.3f}"
            lines.append((api.name, f"{place:,}", str(streams), f"{ours:.0f}", f"{theirs:.0f}", ratio))
    return table(lines)


async def _median(
    bench: Bench,
    derender: Callable[[Generated, Meter], Awaitable[None]],
    what: Generated,
    place: int,
    streams: int,
    rounds: int,
) -> float:
    """Of some rounds: a machine that does other things adds to single ones."""
    values = []
    for _ in range(rounds):
        meter = bench.meter(place, streams)
        await asyncio.gather(*(derender(what, meter) for _ in range(streams)))
        values.append(meter.microseconds)
    return sorted(values)[len(values) // 2]


async def _run() -> str:
    async with Stack(LaunchSettings(port=0)) as stack, _session() as session:
        process = stack.process("vllm-render-0")
        assert process.pid is not None
        return await measure(Bench(session, stack.vllm_render_urls[0], stack.vllm_engine_urls[0], tree(process.pid)))


def _session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None, sock_read=60))


def run() -> None:
    """Start the stack, measure and print."""
    print(asyncio.run(_run()))


if __name__ == "__main__":
    run()
