"""A pod at the network seam that does what a test tells it to: answers, misbehaves, and remembers what it was sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum

from aiohttp import web
from multidict import CIMultiDictProxy

HEALTH = "/health"
CAPABILITIES = "/inference/v1/rendergen"
MODELS = "/v1/models"

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Does(Enum):
    """What a pod may do in the midst of an answer, besides sending bytes."""

    CUT = "close the connection"
    HANG = "send nothing more, and keep the connection"


Step = bytes | asyncio.Event | Does


@dataclass(frozen=True, slots=True)
class Seen:
    """One request as it arrived."""

    method: str
    path: str
    headers: CIMultiDictProxy[str]
    body: bytes


@dataclass(slots=True)
class ScriptedPod:
    """A running pod.

    Attributes:
        url: its base address.
        answers: what it does with a request, by path; a path that is not here is answered with vLLM's 404.
        unread: paths whose answer is called before the body has been read, and which are not in ``seen``.
        seen: requests whose body arrived in full, in order.
        begun: paths of the requests whose head arrived, in order.
        left: paths of the requests whose caller went away before the answer ended.
        healthy: what ``/health`` says, unless that path is in ``answers``; None accepts the question and never answers.
        probes: how often ``/health`` was asked.
        speaks: what it answers to the question what it can do, unless that path is in ``answers``; None is a 404.
        asked: how often it was asked that.
        models: what it answers to the question which models it serves, unless that path is in ``answers``; None is a
            404.
        asked_models: how often it was asked that.
    """

    url: str = ""
    answers: dict[str, Answer] = field(default_factory=dict)
    unread: set[str] = field(default_factory=set)
    seen: list[Seen] = field(default_factory=list)
    begun: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    healthy: bool | None = True
    probes: int = 0
    speaks: bytes | None = None
    asked: int = 0
    models: bytes | None = None
    asked_models: int = 0
    server: web.Server | None = None

    @property
    def connections(self) -> int:
        """How many connections are open, idle ones included."""
        return 0 if self.server is None else len(self.server.connections)

    def bodies(self, path: str) -> list[bytes]:
        """The bodies that were sent to ``path``, in order."""
        return [seen.body for seen in self.seen if seen.path == path]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.path == HEALTH and request.path not in self.answers:
            return await self._health(request)
        if request.path == CAPABILITIES and request.path not in self.answers:
            return await self._capabilities(request)
        if request.path == MODELS and request.path not in self.answers:
            return await self._models(request)
        self.begun.append(request.path)
        try:
            if request.path not in self.unread:
                body = await request.read()
                self.seen.append(Seen(request.method, request.path, request.headers, body))
            return await self.answers.get(request.path, _not_found)(request)
        except (asyncio.CancelledError, ConnectionError, web.RequestPayloadError):
            self.left.append(request.path)
            raise

    async def _health(self, request: web.Request) -> web.StreamResponse:
        self.probes += 1
        if self.healthy is None:
            return await streamed(Does.HANG)(request)
        return web.Response(status=200 if self.healthy else 503)

    async def _capabilities(self, request: web.Request) -> web.StreamResponse:
        self.asked += 1
        return await (_not_found if self.speaks is None else json_answer(self.speaks))(request)

    async def _models(self, request: web.Request) -> web.StreamResponse:
        self.asked_models += 1
        return await (_not_found if self.models is None else json_answer(self.models))(request)


def json_answer(body: bytes, status: int = 200, headers: dict[str, str] | None = None) -> Answer:
    """Answer with ``body`` as JSON, whatever was asked."""

    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=body, status=status, headers=headers, content_type="application/json")

    return answer


def streamed(
    *steps: Step, status: int = 200, content_type: str = "application/json", content_length: int | None = None
) -> Answer:
    """Answer step by step: bytes are sent, an event is waited for. The head goes out with the first bytes."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=status, headers={"Content-Type": content_type})
        response.content_length = content_length
        for step in steps:
            if step is Does.CUT:
                _cut(request)
            elif step is Does.HANG:
                await asyncio.Event().wait()
            elif isinstance(step, asyncio.Event):
                await step.wait()
            elif isinstance(step, bytes):
                if not response.prepared:
                    await response.prepare(request)
                await response.write(step)
        return response

    return answer


def raw(data: bytes) -> Answer:
    """Send ``data`` as it is in the place of an HTTP answer, and close the connection."""

    async def answer(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.write(data)
        request.transport.close()
        raise ConnectionResetError("as scripted")

    return answer


def _cut(request: web.Request) -> None:
    assert request.transport is not None
    request.transport.close()
    raise ConnectionResetError("as scripted")


async def _not_found(_: web.Request) -> web.Response:
    return web.json_response({"detail": "Not Found"}, status=404)


@asynccontextmanager
async def scripted_pod(
    answers: dict[str, Answer] | None = None, *, healthy: bool | None = True
) -> AsyncIterator[ScriptedPod]:
    """A pod on a free loopback port."""
    pod = ScriptedPod(answers=dict(answers or {}), healthy=healthy)
    app = web.Application(client_max_size=0)
    app.router.add_route("*", "/{path:.*}", pod.handle)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    pod.server = runner.server
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    pod.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield pod
    finally:
        await runner.cleanup()
