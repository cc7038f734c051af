"""The requests of the latency benchmark are alike and share nothing that a cache could answer; the sides take turns."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import BaseTestServer, TestServer

from benchmarks.client import RequestFailed
from benchmarks.latency import FULL, QUICK, Bench, Plan, cache_hits
from benchmarks.latency_requests import TOKENS, MarkedPictures, Twins
from benchmarks.latency_tables import Cell, Sides
from rendergen.sse import DONE, written

STAGES = {"Server-Timing": "render;dur=1.0"}
WARM_UP = 2  # cells of one client, each asked once of both sides
COUNTED = {"completion_tokens": TOKENS}


@pytest.fixture(scope="module")
def twins() -> Twins:
    return Twins(MarkedPictures(384), spoken=[1, 2])


def images_of(body: dict[str, Any]) -> list[str]:
    return [part["image_url"]["url"] for part in body["messages"][0]["content"] if part["type"] == "image_url"]


def without_what_differs(body: dict[str, Any]) -> str:
    return re.sub(r"data:image/jpeg;base64,[^\"]*|request \d+", "", json.dumps(body))


@pytest.mark.parametrize("images", [0, 3])
@pytest.mark.parametrize("streamed", [True, False])
def test_no_request_shares_an_image_or_a_salt_and_all_else_is_the_same(
    twins: Twins, images: int, streamed: bool
) -> None:
    one, other = twins.pairs(Cell(images, 384, 1, streamed), 4)
    bodies = [json.loads(body) for body in one + other]
    urls = [url for body in bodies for url in images_of(body)]
    assert len(urls) == len(set(urls)) == 8 * images
    assert len({body["cache_salt"] for body in bodies}) == 8
    assert len({without_what_differs(body) for body in bodies}) == 1
    assert bodies[0].get("stream", False) is streamed


def test_plans_have_text_one_and_three_images_at_one_and_eight_clients_streamed_and_not() -> None:
    for plan in (FULL, QUICK):
        cells = {(cell.images, cell.clients, cell.streamed) for cell in plan.cells()}
        assert cells == {(i, c, s) for i in (0, 1, 3) for c in (1, 8) for s in (True, False)}
        assert len(plan.cells()) == len(cells)
        assert all(plan.requests[cell.clients][cell.images] >= cell.clients for cell in plan.cells())


def address(server: BaseTestServer) -> str:
    return str(server.make_url("")).rstrip("/")


class Asked:
    """Two servers that answer alike, and what they were asked."""

    def __init__(self, clients: int = 1) -> None:
        self.sides: list[str] = []
        self.headers = {"router": STAGES, "server": {}}
        self.status = {"router": 200, "server": 200}
        self.limit = asyncio.timeout(None)
        self.last = 1 << 30  # request, after which the time is over
        self._together = asyncio.Barrier(clients)

    @asynccontextmanager
    async def bench(self, twins: Twins) -> AsyncIterator[Bench]:
        async with (
            TestServer(self._app("router")) as router,
            TestServer(self._app("server")) as server,
            aiohttp.ClientSession() as session,
        ):
            yield Bench(session, Sides(address(router), address(server)), twins)

    def _app(self, side: str) -> web.Application:
        async def answer(request: web.Request) -> web.Response:
            self.sides.append(side)
            if len(self.sides) > self.last:
                self.limit.reschedule(0)
                await asyncio.Event().wait()
            asked = await request.json()
            async with self._together:
                pass
            headers, status = self.headers[side], self.status[side]
            if not asked.get("stream"):
                message = {"choices": [{"message": {"content": "1"}}], "usage": COUNTED}
                return web.json_response(message, headers=headers, status=status)
            text = {"choices": [{"delta": {"content": "1"}}]}
            events = [json.dumps(chunk).encode() for chunk in (text, {"choices": [], "usage": COUNTED})]
            return web.Response(body=b"".join(map(written, events)) + DONE, headers=headers, status=status)

        app = web.Application(client_max_size=1 << 24)
        app.router.add_post("/v1/chat/completions", answer)
        return app


async def test_sides_take_turns_and_each_is_first_every_other_time(twins: Twins) -> None:
    asked = Asked()
    async with asked.bench(twins) as bench:
        measured = await bench.measure(Plan(rounds=2, budget_s=1, side_px=384, requests={1: {0: 2}}), asked.limit)
    router, server = ["router"] * 2, ["server"] * 2
    warm_up = ["router", "server"] * WARM_UP
    assert asked.sides == [*warm_up, *router, *server, *server, *router, *server, *router, *router, *server]
    for cell, sides in measured.items():
        assert [len(answers) for answers in sides.router + sides.server] == [2] * 4
        assert all(answer.stages == {"render": 1.0} for answers in sides.router for answer in answers)
        assert all(
            (answer.first_token_ms is None) is not cell.streamed for answers in sides.server for answer in answers
        )


async def test_clients_ask_at_the_same_time_until_all_has_been_asked(twins: Twins) -> None:
    asked = Asked(clients=3)
    async with asked.bench(twins) as bench:
        measured = await bench.measure(Plan(rounds=1, budget_s=1, side_px=384, requests={3: {0: 6}}), asked.limit)
    assert all(len(sides.router[0]) == len(sides.server[0]) == 6 for sides in measured.values())


async def test_what_is_not_measured_within_the_budget_is_left_out(twins: Twins) -> None:
    asked = Asked()
    asked.last = 2 * WARM_UP + 3  # one cell, and one side of the next
    async with asked.bench(twins) as bench:
        measured = await bench.measure(Plan(rounds=5, budget_s=1, side_px=384, requests={1: {0: 1}}), asked.limit)
    assert [(len(sides.router), len(sides.server)) for sides in measured.values()] == [(1, 1), (0, 0)]


async def test_budget_without_time_for_a_single_cell_is_a_failure(twins: Twins) -> None:
    asked = Asked()
    asked.last = 2 * WARM_UP
    async with asked.bench(twins) as bench:
        with pytest.raises(RequestFailed, match=r"over before anything was measured"):
            await bench.measure(Plan(rounds=5, budget_s=1, side_px=384, requests={1: {0: 1}}), asked.limit)


@pytest.mark.parametrize(
    ("side", "name"), [("router", "router, text, 1 client, streamed"), ("server", "one server, text, 1 client")]
)
async def test_wrong_answer_is_a_failure_that_names_the_side_and_the_cell(twins: Twins, side: str, name: str) -> None:
    asked = Asked()
    asked.status[side] = 503
    async with asked.bench(twins) as bench:
        with pytest.raises(RequestFailed, match=f"^{name}.*: status 503"):
            await bench.measure(Plan(rounds=1, budget_s=1, side_px=384, requests={1: {0: 1}}), asked.limit)


async def test_server_that_is_not_there_is_a_failure_that_names_the_side(twins: Twins) -> None:
    gone = TestServer(web.Application())
    await gone.start_server()
    url = address(gone)
    await gone.close()
    async with aiohttp.ClientSession() as session:
        bench = Bench(session, Sides(url, url), twins)
        with pytest.raises(RequestFailed, match=r"^router, .*: no answer, or no whole one: ClientConnectorError"):
            await bench.measure(Plan(rounds=1, budget_s=1, side_px=384, requests={1: {0: 1}}), asyncio.timeout(None))


async def test_router_that_names_no_stages_is_a_failure(twins: Twins) -> None:
    asked = Asked()
    asked.headers["router"] = {}
    async with asked.bench(twins) as bench:
        with pytest.raises(RequestFailed, match=r"^router, .*Server-Timing"):
            await bench.measure(Plan(rounds=1, budget_s=1, side_px=384, requests={1: {0: 1}}), asked.limit)


def test_cache_hits_are_those_of_prompts_and_images() -> None:
    metrics = (
        "# TYPE vllm:prefix_cache_hits counter\n"
        'vllm:prefix_cache_queries_total{engine="0"} 7.0\n'
        'vllm:prefix_cache_hits_total{engine="0",model_name="a b"} 1024.0\n'
        'vllm:prefix_cache_hits_created{engine="0"} 1.7e+09\n'
        'vllm:external_prefix_cache_hits_total{engine="0"} 5.0\n'
        'vllm:mm_cache_hits_total{engine="0"} 2.0\n'
    )
    assert cache_hits(metrics) == 1026.0


def test_metrics_without_cache_hits_are_a_failure() -> None:
    with pytest.raises(RequestFailed, match="no cache hits"):
        cache_hits("vllm:other_total 1.0\n")
