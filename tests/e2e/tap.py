"""A server that stands between two others, passes every byte on, and remembers it."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
from aiohttp import web
from multidict import CIMultiDictProxy


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request that passed, and its answer, each body as it was on the wire."""

    path: str
    headers: CIMultiDictProxy[str]
    request: bytes
    status: int
    answer: bytes


@dataclass(slots=True)
class Tap:
    """A running tap.

    Attributes:
        url: where it listens.
        behind: base address of the server that it passes requests on to.
        exchanges: every POST that was answered, in order.
        hides: paths that it answers with 404, as a server does that has them not.
    """

    client: aiohttp.ClientSession
    behind: str
    url: str = ""
    exchanges: list[Exchange] = field(default_factory=list)
    hides: frozenset[str] = frozenset()

    def to(self, path: str) -> list[Exchange]:
        """The exchanges of one path, in order."""
        return [exchange for exchange in self.exchanges if exchange.path == path]

    async def pass_on(self, request: web.Request) -> web.Response:
        if request.path in self.hides:
            raise web.HTTPNotFound
        body = await request.read()
        headers = {name: value for name, value in request.headers.items() if name in _PASSED_ON}
        async with self.client.request(
            request.method, self.behind + request.path, data=io.BytesIO(body), headers=headers
        ) as answer:
            text = await answer.read()
            if request.method == "POST":
                self.exchanges.append(Exchange(request.path, request.headers, body, answer.status, text))
            return web.Response(status=answer.status, body=text, content_type=answer.content_type)


_PASSED_ON = ("Content-Type", "Accept", "X-Request-Id")


@asynccontextmanager
async def tap(behind: str, hides: frozenset[str] = frozenset()) -> AsyncIterator[Tap]:
    """A tap on a free loopback port, in front of the server at ``behind``; what it ``hides`` is not there."""
    app = web.Application(client_max_size=0)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as client:
        running = Tap(client, behind, hides=hides)
        app.router.add_route("*", "/{path:.*}", running.pass_on)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            running.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            yield running
        finally:
            await runner.cleanup()
