"""One request carried to a pod and its answer carried back, both while they arrive."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable

from aiohttp import web

from rendergen.service import deadline, request_id
from rendergen.service.app import BROKEN_STATUS
from rendergen.service.bodies import RequestBody
from rendergen.service.errors import CallerTooSlow, ServiceError
from rendergen.service.pods import Body, PodAnswer, PodClient
from rendergen.service.settings import ServiceSettings
from rendergen.sse import EventReader, EventTooLarge

log = logging.getLogger(__name__)

EVENT_STREAM = "text/event-stream"

# Far above an event with all its log probabilities. A longer one is passed on as it comes.
MAX_HELD_BYTES = 1024 * 1024

# What a caller may say to a pod through us. The request id goes on only where the caller gave one: to vLLM the header
# takes the place of the payload's own request_id.
_PASSED_ON = (
    "Content-Type",
    "Accept",
    "Authorization",
    "traceparent",
    "tracestate",
    "X-data-parallel-rank",
    "X-Session-ID",
)


def passed_on(request: web.Request) -> dict[str, str]:
    """The caller's headers that go on to a pod."""
    headers = {name: request.headers[name] for name in _PASSED_ON if name in request.headers}
    # Anthropic's clients know only this header, and vLLM's keys only the other.
    if "Authorization" not in headers and "x-api-key" in request.headers:
        headers["Authorization"] = f"Bearer {request.headers['x-api-key']}"
    if (given := request_id.given_in(request.headers)) is not None:
        headers[request_id.HEADER] = given
    return headers


class WholeEvents:
    """Holds back the last event of a stream until it is whole, so that an error event can follow at any time."""

    def __init__(self) -> None:
        self._reader = EventReader(MAX_HELD_BYTES)
        self._may_be_within = False  # an event of which a part has been passed on

    def feed(self, chunk: bytes) -> bytes:
        """Take the next bytes; returns what can be passed on now, unchanged."""
        try:
            return b"".join([event.raw for event in self._reader.feed(chunk)])
        except EventTooLarge:
            begun = self._reader.finish()
            self._reader = EventReader(MAX_HELD_BYTES)
            self._may_be_within = True
            return begun

    def finish(self) -> bytes:
        """The stream has ended in order; returns what is left of it, which is no event."""
        return self._reader.finish()

    def followed_by(self, event: bytes) -> bytes:
        """The stream has broken: what is held will never be an event, and ``event`` takes its place as the last."""
        return b"\n\n" + event if self._may_be_within else event


async def forward(
    request: web.Request,
    pod: PodClient,
    path: str,
    settings: ServiceSettings,
    timeout_s: float,
    *,
    body_pause_s: float | None = None,
    looked_at: Callable[[AsyncIterator[bytes]], AsyncIterator[bytes]] | None = None,
) -> web.StreamResponse:
    """Carry ``request`` to ``path`` on ``pod``, byte for byte and without holding it, and answer with the pod's answer.

    The answer goes back while the request's body still comes, if the pod begins it before that has ended. An answer
    that is an event stream is passed on in whole events, and ends with an error event where the pod breaks off.

    Args:
        request: the caller's request.
        pod: who serves it.
        path: the path there.
        settings: limits of the body.
        timeout_s: budget for the whole, in seconds. The pod is told it, or what the caller said if that is less.
        body_pause_s: longest wait for the next bytes of the request's body, in seconds, if not ``idle_timeout_s``.
        looked_at: gives out the body that it is given, unchanged; what it raises ends the request before its end.

    Raises:
        ServiceError: what went wrong. If an answer has begun, it has to be cut off.
    """
    headers = passed_on(request) | deadline.left(timeout_s, request.headers.get(deadline.HEADER))
    chunks: Body = b""
    if request.body_exists:
        body = RequestBody(request, settings, pause_s=body_pause_s)
        chunks = body.chunks() if looked_at is None else looked_at(body.chunks())
        if body.declared_bytes is not None:
            headers["Content-Length"] = str(body.declared_bytes)
    response: web.StreamResponse | None = None
    events = WholeEvents()
    try:
        async with pod.request(request.method, path, headers=headers, body=chunks, timeout_s=timeout_s) as answer:
            response = _response_to(answer)
            await response.prepare(request)
            is_stream = response.content_type == EVENT_STREAM
            async for chunk in answer.chunks():
                await _write(response, events.feed(chunk) if is_stream else chunk, settings)
            await _write(response, events.finish(), settings)
            await response.write_eof()
    except ServiceError as error:
        if response is None or response.content_type != EVENT_STREAM or isinstance(error, CallerTooSlow):
            raise
        # An error after the first byte of a stream is one event, then the stream's end.
        log.warning("stream broke off", extra={"error": error.message})
        request[BROKEN_STATUS] = error.status
        await _write(response, events.followed_by(error.event()), settings)
        await response.write_eof()
    return response


def _response_to(answer: PodAnswer) -> web.StreamResponse:
    response = web.StreamResponse(status=answer.status, headers={"Content-Type": answer.content_type})
    response.content_length = answer.content_length
    return response


async def _write(response: web.StreamResponse, data: bytes, settings: ServiceSettings) -> None:
    try:
        async with asyncio.timeout(settings.idle_timeout_s):
            await response.write(data)
    except TimeoutError as error:
        raise CallerTooSlow(f"The caller took none of its answer for {settings.idle_timeout_s:g} s.") from error
