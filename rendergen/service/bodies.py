"""Request bodies as they arrive: bounded in size, and in how long the caller may pause."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from aiohttp import StreamReader, web

from rendergen.service.errors import BadRequest, CallerLeft, CallerTooSlow, TooLarge
from rendergen.service.settings import ServiceSettings


async def next_chunk(stream: StreamReader) -> bytes:
    """The next bytes of an HTTP body as the transport gave them, uncopied; empty at its end.

    (``StreamReader.readany`` joins what waits, which is a copy of every byte.)
    """
    while True:
        chunk, ends_http_chunk = await stream.readchunk()
        # Of a request without a body aiohttp's one reader for all of them says forever that a chunk ends.
        if chunk or not ends_http_chunk or stream.at_eof():
            return chunk


class RequestBody:
    """One request's body, read once.

    Args:
        request: whose body.
        settings: the limits.
        limit: most bytes that are taken, if less than the settings' ``max_body_bytes``.
        pause_s: longest wait for the next bytes, in seconds, if not the settings' ``idle_timeout_s``.

    Raises:
        BadRequest: at once, if it is compressed.
        TooLarge: at once, if ``Content-Length`` says so.
    """

    def __init__(
        self,
        request: web.Request,
        settings: ServiceSettings,
        limit: int | None = None,
        pause_s: float | None = None,
    ) -> None:
        # Unpacking would be done on the event loop, and a few kilobytes can become hundreds of megabytes.
        if request.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise BadRequest("The request body is compressed: send it without Content-Encoding.")
        self._stream = request.content
        self._limit = settings.max_body_bytes if limit is None else limit
        self._pause_s = settings.idle_timeout_s if pause_s is None else pause_s
        self.declared_bytes = request.content_length
        if self.declared_bytes is not None and self.declared_bytes > self._limit:
            raise self._too_large()

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body in the pieces in which it came.

        Raises:
            TooLarge: more came than the limit allows.
            CallerTooSlow: nothing came for as long as a pause may be.
            CallerLeft: the connection closed before the body's end.
            BadRequest: the body's framing is broken.
        """
        size = 0
        while True:
            chunk = await self._next()
            if not chunk:
                return
            size += len(chunk)
            if size > self._limit:
                raise self._too_large()
            yield chunk

    async def _next(self) -> bytes:
        try:
            async with asyncio.timeout(self._pause_s):
                return await next_chunk(self._stream)
        except TimeoutError as error:
            raise CallerTooSlow(f"No more of the request body came for {self._pause_s:g} s.") from error
        except web.RequestPayloadError as error:
            raise BadRequest("The request body could not be read to its end as its headers describe it.") from error
        except OSError as error:
            raise CallerLeft("The caller closed the connection before the request body ended.") from error

    def _too_large(self) -> TooLarge:
        return TooLarge(f"The request body is over the limit of {self._limit} bytes.")
