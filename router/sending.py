"""Sending an answer to the caller: at once, or event by event with comments while nothing comes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from rendergen import sse
from rendergen.service.app import ANSWERED, BROKEN_STATUS
from rendergen.service.errors import CallerTooSlow, ServiceError
from router.answer import Answer, StreamedAnswer, WholeAnswer
from router.apis import Api
from router.settings import RouterSettings

SERVER_TIMING = "Server-Timing"

log = logging.getLogger(__name__)


async def send(request: web.Request, api: Api, answer: Answer, settings: RouterSettings) -> web.StreamResponse:
    """Answer ``request`` with ``answer``.

    Raises:
        CallerTooSlow: the caller took nothing of it for ``idle_timeout_s``; it has to be cut off.
    """
    response = web.StreamResponse(headers={SERVER_TIMING: answer.stages.server_timing()})
    caller = _Caller(response, settings.idle_timeout_s)
    if isinstance(answer, WholeAnswer):
        body = b"".join(answer.pieces)
        response.content_type, response.content_length = "application/json", len(body)
        await response.prepare(request)
        await caller.write(body)
        request[ANSWERED] = True
        return response
    response.headers["Content-Type"] = "text/event-stream; charset=utf-8"
    response.headers["Cache-Control"] = "no-cache"
    response.headers["X-Accel-Buffering"] = "no"  # or nginx would gather the events
    await response.prepare(request)
    async with caller.kept_alive(settings.keepalive_interval_s):
        await _send_events(request, api, answer, caller)
    request[ANSWERED] = True
    return response


async def _send_events(request: web.Request, api: Api, answer: StreamedAnswer, caller: _Caller) -> None:
    sent = 0
    try:
        async for events in answer.events:
            await caller.write(events)
            sent += events.count(b"\n\n")
    except CallerTooSlow:
        raise
    except ServiceError as error:
        # An error after the first byte of a stream is one event, then the stream's end.
        log.warning("stream broke off", extra={"error": error.message})
        request[BROKEN_STATUS] = error.status
        await caller.write(api.error_event(error, sent))


class _Caller:
    """Writes whole events to the caller, each by one call, so that comments can come between any two.

    Args:
        response: the answer, prepared.
        idle_timeout_s: the longest wait for the caller to take something.
    """

    def __init__(self, response: web.StreamResponse, idle_timeout_s: float) -> None:
        self._response = response
        self._idle_timeout_s = idle_timeout_s
        self._clock = asyncio.get_running_loop().time
        self._last = self._clock()

    async def write(self, data: bytes) -> None:
        """Raises: CallerTooSlow: it was not taken in time."""
        try:
            async with asyncio.timeout(self._idle_timeout_s):
                await self._response.write(data)
        except TimeoutError as error:
            raise CallerTooSlow(f"The caller took none of its answer for {self._idle_timeout_s:g} s.") from error
        self._last = self._clock()

    @asynccontextmanager
    async def kept_alive(self, interval_s: float) -> AsyncIterator[None]:
        """Sends a comment whenever nothing was sent for so long, lest a proxy on the way take the stream for dead."""
        task = asyncio.create_task(self._keep_alive(interval_s))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def _keep_alive(self, interval_s: float) -> None:
        while True:
            idle_s = self._clock() - self._last
            if idle_s < interval_s:
                await asyncio.sleep(interval_s - idle_s)
            elif not await self._has_taken_comment():
                return

    async def _has_taken_comment(self) -> bool:
        """Whether the caller is still there. If it is not, whoever writes the next event finds out, and says so."""
        try:
            await self.write(sse.COMMENT_KEEP_ALIVE)
        except (CallerTooSlow, ConnectionResetError):
            return False
        return True
