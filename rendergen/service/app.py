"""What is the same in every service's HTTP: request ids, the error boundary, probes, metrics, the access log."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from aiohttp import web

from rendergen.service import request_id
from rendergen.service.errors import (
    CallerLeft,
    InternalError,
    MethodNotAllowed,
    RouteNotFound,
    ServiceError,
    TooLarge,
    Unavailable,
)
from rendergen.service.metrics import CONTENT_TYPE, ServiceMetrics

log = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

# Asked every second by someone; not worth a line each.
_QUIET = frozenset({"/livez", "/readyz", "/health", "/metrics"})


@dataclass(slots=True)
class Lifecycle:
    """What this process is at: serving until told to stop, then draining.

    Attributes:
        ready: asks whether what is behind this process can serve.
        draining: True from the signal to stop on; readiness is off and stays off.
        in_flight: the requests whose answer's last byte is not out yet.
    """

    ready: Callable[[], bool]
    draining: bool = False
    in_flight: set[asyncio.Task[object]] = field(default_factory=set)

    def begin_request(self) -> None:
        """The current task, which aiohttp makes for each request, serves one until it ends."""
        task = asyncio.current_task()
        assert task is not None
        self.in_flight.add(task)
        task.add_done_callback(self.in_flight.discard)

    async def drain(self, timeout_s: float) -> None:
        """Let the requests in flight end, and cancel what is left of them after ``timeout_s``."""
        if self.in_flight:
            await asyncio.wait(self.in_flight, timeout=timeout_s)
        for task in tuple(self.in_flight):
            task.cancel()


LIFECYCLE: web.AppKey[Lifecycle] = web.AppKey("lifecycle", Lifecycle)
# An answer whose head is out, and what log and metrics call it if it breaks off after that.
BEGUN: web.RequestKey[web.StreamResponse] = web.RequestKey("begun", web.StreamResponse)
BROKEN_STATUS: web.RequestKey[int] = web.RequestKey("broken_status", int)
# All that there is to say has been given out: a caller that closes the connection now has not left early.
ANSWERED: web.RequestKey[bool] = web.RequestKey("answered", bool)
# Whose API key the request came with: for the access log alone. The key itself is kept nowhere.
KEY_NAME: web.RequestKey[str] = web.RequestKey("key_name", str)
METRICS: web.AppKey[ServiceMetrics] = web.AppKey("metrics", ServiceMetrics)

ErrorBody = Callable[[str, ServiceError], bytes]
_ERROR_BODY: web.AppKey[ErrorBody] = web.AppKey("error_body")


def make_app(
    metrics: ServiceMetrics,
    ready: Callable[[], bool],
    error_body: ErrorBody = lambda path, error: error.json(),
) -> web.Application:
    """An application with everything but the service's own routes.

    Args:
        metrics: the process's metrics.
        ready: whether what is behind this process can serve; asked by ``/readyz`` and ``/health``, must not wait.
        error_body: an error on a path, as JSON. OpenAI's form if not told otherwise.
    """
    # Limits are set by RequestBody, which streams; aiohttp's own would hold the body first.
    app = web.Application(middlewares=[_observe], client_max_size=0)
    app[LIFECYCLE] = Lifecycle(ready)
    app[METRICS] = metrics
    app[_ERROR_BODY] = error_body
    app.on_response_prepare.append(_set_headers)
    app.router.add_get("/livez", _livez)
    app.router.add_get("/readyz", _readyz)
    app.router.add_get("/health", _readyz)
    app.router.add_get("/metrics", _metrics)
    return app


def _error_response(request: web.Request, error: ServiceError) -> web.Response:
    return web.Response(
        status=error.status,
        headers=error.headers(),
        body=request.app[_ERROR_BODY](request.path, error),
        content_type="application/json",
    )


@web.middleware
async def _observe(request: web.Request, handler: Handler) -> web.StreamResponse:
    """The outermost boundary: gives each request an id, turns every failure into an answer, and records it."""
    request.app[LIFECYCLE].begin_request()
    request_id.current.set(request_id.given_in(request.headers) or request_id.new())
    metrics = request.app[METRICS]
    route = _route_of(request)
    start = time.perf_counter()
    status = CallerLeft.status
    response: web.StreamResponse | None = None
    with metrics.in_flight.track_inprogress():
        try:
            response = await _answer(request, handler)
            status = request.get(BROKEN_STATUS, response.status)
            return response
        except asyncio.CancelledError:
            # Cancelled by aiohttp, because the caller left, or by us, because the time to drain is over.
            begun = request.get(BEGUN)
            if begun is not None and request.get(ANSWERED):
                status = request.get(BROKEN_STATUS, begun.status)
            elif request.app[LIFECYCLE].draining:
                status = Unavailable.status
            raise
        finally:
            seconds = time.perf_counter() - start
            metrics.requests.labels(request.method, route, str(status)).inc()
            metrics.seconds.labels(request.method, route).observe(seconds)
            metrics.body_bytes.labels("in").inc(request.content.total_bytes)
            metrics.body_bytes.labels("out").inc(_bytes_out(response))
            log.log(
                logging.DEBUG if route in _QUIET else logging.INFO,
                "request",
                extra={
                    "method": request.method,
                    "route": route,
                    "status": status,
                    "seconds": round(seconds, 4),
                    "bytes_in": request.content.total_bytes,
                }
                | ({"key": request[KEY_NAME]} if KEY_NAME in request else {}),
            )


async def _answer(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except ServiceError as error:
        if error.status >= 500:
            log.warning("request failed", extra={"status": error.status, "error": error.message})
        return _answer_with(request, error)
    except web.HTTPNotFound:
        return _error_response(request, RouteNotFound(f"There is no {request.method} {request.path} here."))
    except web.HTTPMethodNotAllowed as error:
        allowed = ", ".join(sorted(error.allowed_methods))
        told = f"{request.path} takes {allowed}, not {request.method}."
        answer = _error_response(request, MethodNotAllowed(told))
        answer.headers["Allow"] = allowed.replace(" ", "")
        return answer
    except web.HTTPRequestEntityTooLarge:
        return _error_response(request, TooLarge("The request is too large."))
    except ConnectionResetError:  # of the caller's connection: those to pods are ServiceErrors by now
        return _error_response(request, CallerLeft("The caller closed the connection."))
    except Exception:
        log.exception("unexpected failure")
        told = "Internal error. The log has its cause under this answer's X-Request-Id."
        return _answer_with(request, InternalError(told))


def _answer_with(request: web.Request, error: ServiceError) -> web.StreamResponse:
    """``error`` as the answer; an answer that has begun is cut off without its proper end, lest it pass for whole."""
    begun: web.StreamResponse | None = request.get(BEGUN)
    if begun is None:
        return _error_response(request, error)
    log.warning("answer broke off after its first byte", extra={"error": error.message})
    request[BROKEN_STATUS] = error.status
    if request.transport is not None:
        request.transport.abort()
    return begun


async def _set_headers(request: web.Request, response: web.StreamResponse) -> None:
    response.headers[request_id.HEADER] = request_id.current.get()
    response.headers.popall("Server", None)
    request[BEGUN] = response


def _bytes_out(response: web.StreamResponse | None) -> int:
    if response is None:
        return 0
    # What is not streamed is sent only after this.
    return (response.content_length or 0) if isinstance(response, web.Response) else response.body_length


def _route_of(request: web.Request) -> str:
    """The route's pattern, never the path itself: a label must not have as many values as callers have ideas."""
    resource = request.match_info.route.resource
    return resource.canonical if resource is not None else "unknown"


async def _livez(_: web.Request) -> web.Response:
    return web.json_response({"status": "alive"})


async def _readyz(request: web.Request) -> web.Response:
    lifecycle = request.app[LIFECYCLE]
    if lifecycle.draining:
        return web.json_response({"status": "draining"}, status=503)
    if not lifecycle.ready():
        return web.json_response({"status": "waiting for pods"}, status=503)
    return web.json_response({"status": "ready"})


async def _metrics(request: web.Request) -> web.Response:
    return web.Response(body=request.app[METRICS].exposition(), headers={"Content-Type": CONTENT_TYPE})
