"""What the split costs on real servers: CPU time per request and process, over JSON and over frames, beside one server.

Three ways for the same requests: one `vllm serve`; bare vLLM pods over JSON; pods with the plugin over frames. Each
request has an image of its own, so that no cache answers; every way's turns alternate with the others' within the run.
*Floor* is a server that receives the frames, copies them into one buffer and does nothing else. At the end requests of
three images pass two at a time, and what the servers' event loops stood still is counted.
"""

from __future__ import annotations

import asyncio
import base64
import io
import json
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp
import numpy as np
from PIL import Image

from benchmarks import loop_probe
from benchmarks.cpu import cpu_seconds, engine_processes, tree
from benchmarks.floor import floor_server
from benchmarks.report import table
from rendergen.launcher import LaunchSettings, Stack
from rendergen.payload.frames import (
    MEDIA_TYPE,
)

CHAT = "/v1/chat/completions"
RENDER = "/v1/chat/completions/render"
GENERATE = "/inference/v1/generate"
JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured: ``rounds`` of ``requests`` for each case and way."""

    rounds: int
    requests: int


FULL = Plan(rounds=3, requests=8)
QUICK = Plan(rounds=2, requests=3)


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of request: ``images`` pictures of ``size`` (width, height) in pixels."""

    name: str
    images: int
    size: tuple[int, int]


STALLING = Case("3 images 1024²", 3, (1024, 1024))
CASES = (
    Case("text only", 0, (0, 0)),
    Case("1 image 224²", 1, (224, 224)),
    Case("1 image 1024²", 1, (1024, 1024)),
    STALLING,
    Case("12-megapixel photo", 1, (4000, 3000)),
)


@dataclass(slots=True)
class Costs:
    """What one way took, in sums over its requests."""

    requests: int = 0
    cpu: dict[str, float] = field(default_factory=dict)
    payload_bytes: int = 0
    wall_ms: list[float] = field(default_factory=list)

    def per_request_ms(self, *parts: str) -> float:
        return 1000 * sum(self.cpu.get(part, 0.0) for part in parts) / self.requests


Send = Callable[[bytes], Awaitable[int]]
"""Sends one chat request on its way; returns the payload's bytes."""


@dataclass(frozen=True, slots=True)
class Way:
    """One way for a request: how it is sent, and the processes that serve it, by their part."""

    name: str
    send: Send
    processes: Mapping[str, Sequence[int]]


class Pictures:
    """Images like photos (smooth, with some noise), each different, as JPEG data URLs."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)

    def data_url(self, width: int, height: int) -> str:
        base = self._random.integers(0, 256, (8, 8, 3), dtype=np.uint8)
        image = Image.fromarray(base).resize((width, height), Image.Resampling.BICUBIC)
        pixels = np.asarray(image, dtype=np.int16)
        noise = self._random.integers(-8, 9, pixels.shape, dtype=np.int16)
        buffer = io.BytesIO()
        Image.fromarray(np.clip(pixels + noise, 0, 255).astype(np.uint8)).save(buffer, "JPEG", quality=90)
        return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode()


def requests_of(case: Case, count: int, pictures: Pictures) -> list[bytes]:
    """``count`` bodies of the case, no image twice."""
    return [_request(case, number, pictures) for number in range(count)]


def _request(case: Case, number: int, pictures: Pictures) -> bytes:
    content: list[dict[str, Any]] = [
        {"type": "image_url", "image_url": {"url": pictures.data_url(*case.size)}} for _ in range(case.images)
    ]
    content.append({"type": "text", "text": f"What color is this image? Answer in one word. ({number})"})
    body = {"model": "tiny-vlm", "messages": [{"role": "user", "content": content}], "temperature": 0, "max_tokens": 2}
    return json.dumps(body).encode()


def ways(bare: Stack, fast: Stack, floor: tuple[str, int], session: aiohttp.ClientSession) -> list[Way]:
    """The ways to be compared."""

    async def post(url: str, body: bytes, content_type: str, accept: str = JSON) -> bytes:
        headers = {"Content-Type": content_type, "Accept": accept}
        async with session.post(url, data=body, headers=headers) as answer:
            data = await answer.read()
            if answer.status != 200:
                raise RuntimeError(f"{url}: {answer.status} {data[:300]!r}")
            return data

    async def single(body: bytes) -> int:
        await post(bare.vllm_engine_urls[0] + CHAT, body, JSON)
        return 0

    def split(stack: Stack, generate_url: str, media_type: str) -> Send:
        async def send(body: bytes) -> int:
            payload = await post(stack.vllm_render_urls[0] + RENDER, body, JSON, media_type)
            await post(generate_url + GENERATE, payload, media_type)
            return len(payload)

        return send

    floor_url, floor_pid = floor
    return [
        Way("one server", single, _processes(bare)),
        Way("JSON", split(bare, bare.generate_service_urls[0], JSON), _processes(bare)),
        Way("JSON, past the service", split(bare, bare.vllm_engine_urls[0], JSON), _processes(bare)),
        Way("frames", split(fast, fast.generate_service_urls[0], MEDIA_TYPE), _processes(fast)),
        Way("frames, past the service", split(fast, fast.vllm_engine_urls[0], MEDIA_TYPE), _processes(fast)),
        Way("floor", split(fast, floor_url, MEDIA_TYPE), {"api": [floor_pid]}),
    ]


def _processes(stack: Stack) -> dict[str, list[int]]:
    def pids(name: str) -> list[int]:
        pid = stack.process(name).pid
        assert pid is not None
        return tree(pid)

    engine = pids("vllm-engine-0")
    computing = engine_processes(engine)
    return {
        "render": pids("vllm-render-0"),
        "api": [pid for pid in engine if pid not in computing],
        "engine": computing,
        "service": pids("generate-service-0"),
    }


def _settings(logs: Path, *, plugin: bool) -> LaunchSettings:
    return LaunchSettings(
        port=0,
        plugin=plugin,
        log_dir=logs,
        check_memory=False,
        vllm_args=("--middleware", f"{loop_probe.__name__}.{loop_probe.LoopProbe.__name__}"),
    )


async def measure(plan: Plan, cases: Sequence[Case]) -> tuple[dict[str, dict[str, Costs]], list[tuple[str, ...]]]:
    """What each way costs, by case and way; and the lines of the table of stalls."""
    pictures = Pictures(seed=0)
    timeout = aiohttp.ClientTimeout(total=120)
    with TemporaryDirectory() as logs:
        async with (
            Stack(_settings(Path(logs, "bare"), plugin=False)) as bare,
            Stack(_settings(Path(logs, "fast"), plugin=True)) as fast,
            floor_server() as floor,
            aiohttp.ClientSession(timeout=timeout) as session,
        ):
            measured: dict[str, dict[str, Costs]] = {}
            for case in cases:
                measured[case.name] = {way.name: Costs() for way in ways(bare, fast, floor, session)}
                for turn in range(plan.rounds + 1):
                    for way in ways(bare, fast, floor, session):
                        # The first round warms up, and is not counted.
                        costs = measured[case.name][way.name] if turn else Costs()
                        await _turn(way, requests_of(case, plan.requests, pictures), costs)
            by_name = {way.name: way for way in ways(bare, fast, floor, session)}
            lines = []
            for name, stack in (("one server", bare), ("JSON", bare), ("frames", fast)):
                bodies = requests_of(STALLING, plan.rounds * plan.requests, pictures)
                lines += await _stalls(by_name[name], stack, bodies, session)
            return measured, lines


async def _stalls(
    way: Way, stack: Stack, bodies: Sequence[bytes], session: aiohttp.ClientSession
) -> list[tuple[str, ...]]:
    servers = {"render server": stack.vllm_render_urls[0], "API server": stack.vllm_engine_urls[0]}

    async def told(url: str) -> list[float]:
        async with session.get(url + loop_probe.PATH) as answer:
            return list(await answer.json())

    for url in servers.values():
        await told(url)
    waiting = iter(bodies)

    async def sender() -> None:
        for body in waiting:
            await way.send(body)

    await asyncio.gather(sender(), sender())
    lines = []
    for server, url in servers.items():
        stalls = await told(url)
        longest = f"{max(stalls):.0f}" if stalls else "–"
        lines.append((way.name, server, str(len(bodies)), str(len(stalls)), longest))
    return lines


async def _turn(way: Way, bodies: Sequence[bytes], costs: Costs) -> None:
    before = {part: cpu_seconds(pids) for part, pids in way.processes.items()}
    for body in bodies:
        started = time.perf_counter()
        costs.payload_bytes = await way.send(body)
        costs.wall_ms.append(1000 * (time.perf_counter() - started))
    costs.requests += len(bodies)
    for part, pids in way.processes.items():
        costs.cpu[part] = costs.cpu.get(part, 0.0) + cpu_seconds(pids) - before[part]


def report(measured: Mapping[str, Mapping[str, Costs]]) -> str:
    """The tables, with the ratios that are claimed."""
    parts = []
    for case, by_way in measured.items():
        lines = [
            ("", "render", "API server", "generate_service", "GPU pod", "engine", "payload MB", "median wall ms"),
            *(_line(name, costs) for name, costs in by_way.items()),
        ]
        parts.append(f"### {case}: CPU ms per request\n\n{table(lines)}\n\n{_ratios(by_way)}")
    return "\n\n".join(parts)


def _line(name: str, costs: Costs) -> tuple[str, ...]:
    return (
        name,
        f"{costs.per_request_ms('render'):.1f}",
        f"{costs.per_request_ms('api'):.1f}",
        f"{costs.per_request_ms('service'):.1f}",
        f"{costs.per_request_ms('api', 'service'):.1f}",
        f"{costs.per_request_ms('engine'):.1f}",
        f"{costs.payload_bytes / 1e6:.2f}",
        f"{statistics.median(costs.wall_ms):.0f}",
    )


def _ratios(by_way: Mapping[str, Costs]) -> str:
    def pod(name: str) -> float:
        return by_way[name].per_request_ms("api", "service")

    def render(name: str) -> float:
        return by_way[name].per_request_ms("render")

    frames, past = pod("frames"), pod("frames, past the service")
    return (
        f"GPU pod, frames ÷ JSON: {frames / pod('JSON'):.2f}; past the service {past / pod('JSON'):.2f}. "
        f"÷ one server: {frames / pod('one server'):.2f}; past the service {past / pod('one server'):.2f}. "
        f"Render server, frames ÷ JSON: {render('frames') / render('JSON'):.2f}."
    )


def run(plan: Plan, cases: Sequence[Case] = CASES) -> None:
    """Measure, and print the tables."""
    measured, stalls = asyncio.run(measure(plan, cases))
    if measured:
        print(report(measured))
    print(f"\n### Event loops that stood still for over {1000 * loop_probe.STALL_S:.0f} ms, {STALLING.name}\n")
    print(table([("", "server", "requests", "stalls", "longest ms"), *stalls]))
