"""How long a caller waits at the router, beside one server: to the first token, to the answer's end, between tokens.

*One server* is the engine's own `/v1/chat/completions`, at its own port, so that both sides have the same engine, and
have it in turns. Requests come in pairs that are alike but for what keeps a cache from answering the second: a mark
in a corner of each image, and the salt of the prefix cache. One of a pair goes to the router, the other to the server.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import aiohttp

from benchmarks.client import RequestFailed
from benchmarks.latency_requests import TOKENS, MarkedPictures, Twins
from benchmarks.latency_tables import Cell, Measured, Sides, report
from benchmarks.timed_answer import Timed, ask
from rendergen.launcher import LaunchSettings, Stack
from rendergen.tiny_model import TINY_MODEL_NAME

_REQUEST_TIMEOUT_S = 120.0

# What answers are made of: tokens that each are text by themselves, so that each makes an event of its own.
_SPOKEN = "1 2 3 4 5 6 7 8 9"

_CACHE_HITS = re.compile(r"^vllm:(?:prefix|mm)_cache_hits_total\b.* ([0-9.e+]+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured.

    Attributes:
        rounds: how often each cell is, at most.
        budget_s: the longest it may take once the servers are there. What has not been measured by then is left out.
        side_px: width and height of each image.
        requests: of one turn, by the number of clients and that of images.
    """

    rounds: int
    budget_s: float
    side_px: int
    requests: Mapping[int, Mapping[int, int]]

    def cells(self) -> list[Cell]:
        """What is measured in each round."""
        return [
            Cell(images, self.side_px, clients, streamed)
            for clients, by_images in self.requests.items()
            for images in by_images
            for streamed in (True, False)
        ]


FULL = Plan(rounds=5, budget_s=270, side_px=1024, requests={1: {0: 8, 1: 5, 3: 3}, 8: {0: 40, 1: 16, 3: 8}})
QUICK = Plan(rounds=1, budget_s=35, side_px=512, requests={1: {0: 3, 1: 2, 3: 2}, 8: {0: 8, 1: 8, 3: 8}})


class Bench:
    """Both servers, and the requests for them.

    Args:
        session: connects to them.
        urls: the router's and the server's.
        twins: makes the requests.
    """

    def __init__(self, session: aiohttp.ClientSession, urls: Sides[str], twins: Twins) -> None:
        self._session = session
        self._urls = urls
        self._twins = twins

    async def measure(self, plan: Plan, limit: asyncio.Timeout) -> Measured:
        """The cells of ``plan``, round by round, after a first one that is not counted.

        Args:
            plan: what to measure.
            limit: when to stop; what has not been measured by then is left out.

        Raises:
            RequestFailed: an answer is none, or not the right one; or there was no time for a single cell.
        """
        measured: Measured = {cell: Sides([], []) for cell in plan.cells()}
        try:
            async with limit:
                await self._measure(plan, measured)
        except TimeoutError:
            if not any(sides.router for sides in measured.values()):
                raise RequestFailed("the time was over before anything was measured") from None
        return measured

    async def _measure(self, plan: Plan, measured: Measured) -> None:
        for cell in measured:
            if cell.clients == 1:
                await self._round(cell, 1, router_first=True)
        for number in range(plan.rounds):
            for place, (cell, sides) in enumerate(measured.items()):
                requests = plan.requests[cell.clients][cell.images]
                one = await self._round(cell, requests, router_first=(number + place) % 2 == 0)
                sides.router.append(one.router)
                sides.server.append(one.server)

    async def _round(self, cell: Cell, requests: int, *, router_first: bool) -> Sides[list[Timed]]:
        for_router, for_server = self._twins.pairs(cell, requests)
        if router_first:
            router = await self._of_router(cell, for_router)
            return Sides(router, await self._of_server(cell, for_server))
        server = await self._of_server(cell, for_server)
        return Sides(await self._of_router(cell, for_router), server)

    async def _of_router(self, cell: Cell, bodies: Sequence[bytes]) -> list[Timed]:
        with _named(f"router, {cell.name}"):
            answers = await self._turn(self._urls.router, cell, bodies)
            if not all(answer.stages for answer in answers):
                raise RequestFailed("an answer without stages in its Server-Timing")
            return answers

    async def _of_server(self, cell: Cell, bodies: Sequence[bytes]) -> list[Timed]:
        with _named(f"one server, {cell.name}"):
            return await self._turn(self._urls.server, cell, bodies)

    async def _turn(self, url: str, cell: Cell, bodies: Sequence[bytes]) -> list[Timed]:
        """Some clients, each of which sends the next request when its last has been answered."""
        waiting = iter(bodies)
        answers: list[Timed] = []

        async def client() -> None:
            for body in waiting:
                answers.append(await ask(self._session, url, body, streamed=cell.streamed, tokens=TOKENS))

        try:
            async with asyncio.TaskGroup() as clients:
                for _ in range(cell.clients):
                    clients.create_task(client())
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None
        return answers


@contextmanager
def _named(what: str) -> Iterator[None]:
    """A failure within says what failed."""
    try:
        yield
    except RequestFailed as error:
        raise RequestFailed(f"{what}: {error}") from error


async def _tokens_of(session: aiohttp.ClientSession, url: str, text: str) -> list[int]:
    body = {"model": TINY_MODEL_NAME, "prompt": text, "add_special_tokens": False}
    async with session.post(url + "/tokenize", json=body) as answer:
        if answer.status != 200:
            raise RequestFailed(f"one server: /tokenize answers {answer.status}")
        return sorted(set((await answer.json())["tokens"]))


def cache_hits(metrics: str) -> float:
    """What vLLM's caches of prompts and images have answered, in tokens and images, by the text of its `/metrics`.

    Raises:
        RequestFailed: it does not say.
    """
    hits = [float(value) for value in _CACHE_HITS.findall(metrics)]
    if not hits:
        raise RequestFailed("the engine's metrics have no cache hits: it cannot be told whether caches answered")
    return sum(hits)


async def _measure(plan: Plan) -> Measured:
    timeout = aiohttp.ClientTimeout(total=_REQUEST_TIMEOUT_S)
    connector = aiohttp.TCPConnector(limit=0)
    with TemporaryDirectory() as logs:
        async with (
            Stack(LaunchSettings(port=0, log_dir=Path(logs))) as stack,
            aiohttp.ClientSession(timeout=timeout, connector=connector) as session,
        ):
            server = stack.vllm_engine_urls[0]
            twins = Twins(MarkedPictures(plan.side_px), await _tokens_of(session, server, _SPOKEN))
            measured = await Bench(session, Sides(stack.router_url, server), twins).measure(
                plan, asyncio.timeout(plan.budget_s)
            )
            async with session.get(server + "/metrics") as answer:
                hits = cache_hits(await answer.text())
            if hits:
                raise RequestFailed(f"caches of the engine answered {hits:g} times: the figures would be theirs")
            return measured


def run(plan: Plan) -> None:
    """Start the stack, measure, and print the tables.

    Raises:
        RequestFailed: an answer was wrong, or a cache's.
    """
    try:
        measured = asyncio.run(_measure(plan))
    except (aiohttp.ClientError, TimeoutError) as error:
        raise RequestFailed(f"the engine cannot be asked for tokens or metrics: {type(error).__name__}") from error
    print(report(measured))
