"""The request's body while it arrives."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from rendergen.vllm_plugin.derender.failures import CallerLeft, TooSilent
from rendergen.vllm_plugin.derender.patience import Patience
from rendergen.vllm_plugin.errors import BadPayload, TooLarge

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


class RequestBody:
    """Hands out a body piece by piece, as ASGI's `receive` gives it.

    What is not asked for is not read, so that a caller is held up when the answer is not taken.
    """

    def __init__(self, receive: Receive, patience: Patience, before_wait: Callable[[], Awaitable[None]]) -> None:
        """`before_wait` is awaited each time before more of the body is waited for."""
        self._receive = receive
        self._patience = patience
        self._before_wait = before_wait
        self._rest = b""
        self._ended = False

    async def chunk(self) -> bytes:
        """The next bytes, at least one; none at the body's end.

        Raises CallerLeft, and TooSilent when nothing came for too long.
        """
        if self._rest:
            rest, self._rest = self._rest, b""
            return rest
        while not self._ended:
            await self._before_wait()
            try:
                message = await self._patience.wait(self._receive())
            except TimeoutError as error:
                limit_s = self._patience.limit_s
                raise TooSilent(f"nothing came for {limit_s:g} s, and the body has not ended") from error
            if message["type"] != "http.request":
                raise CallerLeft
            self._ended = not message.get("more_body", False)
            if body := message.get("body", b""):
                return bytes(body)
        return b""

    async def turn(self) -> None:
        """Let others on the event loop go on, and what is before a wait be done."""
        await self._before_wait()
        await asyncio.sleep(0)

    async def line(self, max_bytes: int) -> bytes:
        """The bytes up to the first LF, without it.

        Raises TooLarge, and BadPayload when the body ends before.
        """
        pieces: list[bytes] = []
        length = 0
        while chunk := await self.chunk():
            head, found, self._rest = chunk.partition(b"\n")
            pieces.append(head)
            length += len(head)
            if length > max_bytes:
                raise TooLarge(
                    f"the context is over the limit of {max_bytes} bytes; leave the media out of the request"
                )
            if found:
                return b"".join(pieces)
        raise BadPayload("the body ended within its first line, which is the context")

    async def rest(self, max_bytes: int, first: bytes) -> bytes:
        """All that is left, with `first` before it. Raises TooLarge."""
        pieces = [first]
        length = len(first)
        while chunk := await self.chunk():
            pieces.append(chunk)
            length += len(chunk)
            if length > max_bytes:
                raise TooLarge(f"generate's answer is over the limit of {max_bytes} bytes")
        return b"".join(pieces)

    async def drain(self, linger_s: float) -> None:
        """Read on and forget it, until the body's end, or the caller's, or for so long.

        A connection that is closed on bytes that nobody read is reset, and may take the answer's end with it.
        """
        with contextlib.suppress(TimeoutError, TooSilent, CallerLeft):
            async with asyncio.timeout(linger_s):
                while await self.chunk():
                    pass
