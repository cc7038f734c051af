"""Speaking to a pod: one place where its failures become errors that a caller can be told.

A pod is another process that serves vLLM's paths: a vLLM server, or a rendergen service in front of one. What it
answers is either a success, whose body is streamed on, or an error, which is classed here: the caller's fault (4xx),
the pod's load (429, 503), or the pod's own failure (502).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterable, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

import aiohttp
from aiohttp.connector import Connection

from rendergen.service.bodies import next_chunk
from rendergen.service.errors import DeadlineExceeded, PodFailed, ServiceError, Unavailable
from rendergen.service.refusals import refusal_of
from rendergen.service.settings import ServiceSettings

log = logging.getLogger(__name__)

# aiohttp pauses a pod's socket when twice this much waits unread: one request's window in this process.
READ_WINDOW_BYTES = 512 * 1024
MAX_ERROR_BYTES = 64 * 1024
# A body in pieces is joined up to this size: sending it in one write costs less than not copying it saves.
JOINED_BYTES = 64 * 1024

HEALTH = "/health"
# Answered by the vLLM plugin, and carried through by the services. Under a prefix that vLLM's API key guards.
CAPABILITIES = "/inference/v1/rendergen"
MODELS = "/v1/models"
# Asked every few seconds: that it fails is logged by who asks, when it begins to.
_QUIET = frozenset({HEALTH, CAPABILITIES, MODELS})

# How aiohttp reports a connection that the pod has ended. (A connection that could not be made is told apart before.)
_CONNECTION_ENDED = (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError, ConnectionResetError)

Body = bytes | tuple[bytes | memoryview, ...] | AsyncIterable[bytes | memoryview]


@dataclass(frozen=True, slots=True)
class Pod:
    """Where a pod is, and what callers may know it as.

    Attributes:
        role: ``render pod``, ``generate pod``, …: the name in messages to callers.
        url: its base address, for logs and metrics only.
    """

    role: str
    url: str


def open_session(
    settings: ServiceSettings, middlewares: Sequence[aiohttp.ClientMiddlewareType] = ()
) -> aiohttp.ClientSession:
    """The HTTP client of a service process: no cookies, no redirects followed by chance, no total timeout.

    Every request to a pod passes ``middlewares``. Time limits belong to the stages (see ``docs/ARCHITECTURE.md``); only
    connecting has one here.
    """
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=settings.pod_keepalive_s),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=settings.connect_timeout_s),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        read_bufsize=READ_WINDOW_BYTES,
        skip_auto_headers=("User-Agent", "Accept-Encoding", "Content-Type"),
        response_class=_Response,
        middlewares=middlewares,
    )


class _Response(aiohttp.ClientResponse):
    """Gives no connection back to the pool on which a pod has answered 5xx.

    uvicorn closes it after a 500, though its answer does not say so. A short answer is at its end, and its connection
    given back, before anyone could see the status; so the end is held back until then.
    """

    _started = False
    _ended = False

    async def start(self, connection: Connection) -> aiohttp.ClientResponse:
        await super().start(connection)
        self._started = True
        if self.status >= 500 and connection.protocol is not None:
            connection.protocol.force_close()
        if self._ended:
            self._response_eof()
        return self

    def _response_eof(self) -> None:
        self._ended = True
        if self._started:
            super()._response_eof()


class PodAnswer:
    """A pod's successful answer, being read."""

    def __init__(self, pod: Pod, response: aiohttp.ClientResponse, deadline: _Deadline, upload: _Upload | None) -> None:
        self._pod = pod
        self._response = response
        self._upload = upload
        self._deadline = deadline

    @property
    def status(self) -> int:
        return self._response.status

    @property
    def content_type(self) -> str:
        return self._response.headers.get("Content-Type", "application/octet-stream")

    @property
    def content_length(self) -> int | None:
        return self._response.content_length

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body in the pieces in which it came. May be iterated in another task than the request's.

        Raises:
            PodFailed: the pod closed the connection before the body's end.
            DeadlineExceeded: the request's budget was spent.
            ServiceError: what stopped the request's own body, which the pod had begun to answer before its end.
        """
        while True:
            try:
                chunk = await next_chunk(self._response.content)
            except (aiohttp.ClientError, OSError) as error:
                if self._deadline.passed:
                    raise self._deadline.exceeded() from error
                if self._upload is not None and self._upload.failure is not None:
                    raise self._upload.failure from error
                raise _broken(self._pod, error) from error
            if not chunk:
                return
            yield chunk

    async def read(self, limit: int) -> bytes:
        """The whole body.

        Raises:
            PodFailed: the body broke off, or is over ``limit`` bytes.
            DeadlineExceeded: the request's budget was spent.
        """
        pieces: list[bytes] = []
        size = 0
        async for chunk in self.chunks():
            size += len(chunk)
            if size > limit:
                raise PodFailed(f"The {self._pod.role}'s answer is over the limit of {limit} bytes.")
            pieces.append(chunk)
        return b"".join(pieces)


class _Deadline:
    """When a request's budget is spent, and what to say then."""

    def __init__(self, role: str, timeout_s: float) -> None:
        self._role = role
        self._timeout_s = timeout_s
        self._at = asyncio.get_running_loop().time() + timeout_s
        self.passed = False

    @asynccontextmanager
    async def limit(self) -> AsyncIterator[None]:
        """Ends one await of the task that makes it."""
        try:
            async with asyncio.timeout_at(self._at) as timer:
                yield
        except TimeoutError as error:
            if not timer.expired():
                raise
            raise self.exceeded() from error

    @contextmanager
    def closing(self, response: aiohttp.ClientResponse) -> Iterator[None]:
        """Ends whoever reads ``response``, in whichever task, by closing it; ``passed`` then tells why.

        One timer for a whole body: limiting each read of one costs as much as the rest of what is done with it here.
        """
        timer = asyncio.get_running_loop().call_at(self._at, self._close, response)
        try:
            yield
        finally:
            timer.cancel()

    def _close(self, response: aiohttp.ClientResponse) -> None:
        self.passed = True
        response.close()

    def exceeded(self) -> DeadlineExceeded:
        """The error to say so."""
        return DeadlineExceeded(f"The {self._role} did not finish within {self._timeout_s:.3g} s.")


class PodClient:
    """Sends requests to one pod.

    Args:
        session: the process's HTTP client.
        pod: whom to speak to.
    """

    def __init__(self, session: aiohttp.ClientSession, pod: Pod) -> None:
        self._session = session
        self.pod = pod

    @asynccontextmanager
    async def request(
        self,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str],
        body: Body = b"",
        timeout_s: float,
    ) -> AsyncIterator[PodAnswer]:
        """Send one request; the answer is read inside the context, and leaving it early closes the connection.

        Closing is what cancels the work on the pod: vLLM aborts a generation whose client has gone.

        Args:
            method: HTTP method.
            path: path on the pod.
            headers: sent as they are, beside those that HTTP needs.
            body: bytes; or a tuple of pieces, sent one after the other without being joined; or an iterator of
                pieces, sent while it is made.
            timeout_s: budget from here to the answer's last byte, in seconds.

        Raises:
            PodRefusal: the pod answered with an error that is the caller's to know.
            PodFailed: the connection broke, or the answer was no HTTP, or a failure of the pod's own.
            Unavailable: no connection could be made.
            DeadlineExceeded: the budget was spent.
        """
        deadline = _Deadline(self.pod.role, timeout_s)
        upload = _Upload(body) if isinstance(body, AsyncIterable) else None
        async with deadline.limit():
            response = await self._send(method, path, headers, upload or body)
        async with response:
            if upload is not None:
                upload.is_answered_by(response)
            if response.status >= 400:
                async with deadline.limit():
                    raise await self._refusal(response, _level(path))
            if response.status >= 300:
                raise PodFailed(f"The {self.pod.role} answered with a redirect, which is not followed.")
            with deadline.closing(response):
                yield PodAnswer(self.pod, response, deadline, upload)

    async def _send(self, method: str, path: str, headers: Mapping[str, str], body: Body) -> aiohttp.ClientResponse:
        try:
            try:
                return await self._try(method, path, headers, body)
            except _CONNECTION_ENDED:
                # The pod closed an idle connection as it was taken from the pool, or died. A body that is at hand can
                # be sent again; should it be the latter, the second try says so.
                if isinstance(body, AsyncIterable):
                    raise
            return await self._try(method, path, headers, body)
        except (aiohttp.ClientError, OSError) as error:
            if isinstance(body, _Upload) and body.failure is not None:
                raise body.failure from error
            raise _broken(self.pod, error, _level(path)) from error

    async def _try(self, method: str, path: str, headers: Mapping[str, str], body: Body) -> aiohttp.ClientResponse:
        if isinstance(body, tuple) and sum(map(len, body)) <= JOINED_BYTES:
            body = b"".join(body)
        if isinstance(body, tuple):
            headers = {**headers, "Content-Length": str(sum(map(len, body)))}
        try:
            return await self._session.request(
                method,
                self.pod.url + path,
                headers=headers,
                data=_each(body) if isinstance(body, tuple) else body,
                allow_redirects=False,
            )
        except aiohttp.ClientConnectorError as error:
            log.log(_level(path), "pod cannot be reached", extra={"pod": self.pod.url, "cause": str(error)})
            raise Unavailable(f"The {self.pod.role} cannot be reached. Try again shortly.") from error
        except aiohttp.ServerTimeoutError as error:  # only connecting has a limit of aiohttp's
            log.log(_level(path), "pod does not accept connections", extra={"pod": self.pod.url})
            raise Unavailable(f"The {self.pod.role} does not accept connections. Try again shortly.") from error

    async def _refusal(self, response: aiohttp.ClientResponse, level: int) -> ServiceError:
        body = b""
        try:
            while len(body) < MAX_ERROR_BYTES and (chunk := await next_chunk(response.content)):
                body += chunk
        except (aiohttp.ClientError, OSError) as error:
            raise _broken(self.pod, error, level) from error
        finally:
            # The pod may have answered before it had read the whole request: what is left of it must not follow.
            response.close()
        refusal = refusal_of(self.pod.role, response.status, response.headers.get("Retry-After"), body)
        if refusal.status >= 500:
            log.log(
                level,
                "pod answered with an error",
                extra={"pod": self.pod.url, "status": response.status, "body": body[:2000].decode(errors="replace")},
            )
        return refusal

    async def healthy(self, timeout_s: float) -> bool:
        """Whether the pod says that it can serve (``GET /health`` is 200).

        Raises:
            DeadlineExceeded: it says nothing within ``timeout_s``.
        """
        try:
            async with self.request("GET", HEALTH, headers={}, timeout_s=timeout_s):
                return True
        except DeadlineExceeded:
            raise
        except ServiceError:
            return False


class _Upload:
    """A body being sent. aiohttp reports a failure of the iterator as one of the connection; this remembers which."""

    def __init__(self, pieces: AsyncIterable[bytes | memoryview]) -> None:
        self._pieces = pieces
        self._response: aiohttp.ClientResponse | None = None
        self.failure: ServiceError | None = None

    def is_answered_by(self, response: aiohttp.ClientResponse) -> None:
        """The pod answers already: a failure from here on has to end ``response``, or its reader would wait for it."""
        self._response = response
        if self.failure is not None:
            raise self.failure

    async def __aiter__(self) -> AsyncIterator[bytes | memoryview]:
        try:
            async for piece in self._pieces:
                yield piece
        except ServiceError as error:
            self.failure = error
            if self._response is not None:
                self._response.close()
            raise


async def _each(pieces: tuple[bytes | memoryview, ...]) -> AsyncIterator[bytes | memoryview]:
    for piece in pieces:
        yield piece


def _level(path: str) -> int:
    return logging.DEBUG if path in _QUIET else logging.WARNING


def _broken(pod: Pod, error: Exception, level: int = logging.WARNING) -> PodFailed:
    log.log(level, "pod broke off", extra={"pod": pod.url, "cause": f"{type(error).__name__}: {error}"})
    return PodFailed(f"The {pod.role} failed while it handled this request.")
