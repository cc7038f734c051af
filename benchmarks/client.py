"""The load: a fixed number of connections, each sending its next request when the last has been answered."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import cast

# A request of the slowest row takes a second on a busy machine. This long, and it hangs.
GRACE_S = 60.0


class RequestFailed(Exception):
    """An answer was not 200, or the connection closed before its end."""


@dataclass(frozen=True, slots=True)
class Load:
    """What came of sending requests for a while.

    Attributes:
        ms: wall time of each request, from its first byte sent to its answer's last byte, in milliseconds.
        seconds: wall time of the whole.
    """

    ms: tuple[float, ...]
    seconds: float


class Connection(asyncio.Protocol):
    """A keep-alive HTTP/1.1 connection. It reads answers that have a `Content-Length`, as all of ours do."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._answer.set_result(b"")
        self._received = bytearray()
        self._body_start = self._end = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by inheritance

    def data_received(self, data: bytes) -> None:
        self._received += data
        if not self._end:
            self._read_head()
        if self._end and len(self._received) >= self._end and not self._answer.done():
            self._answer.set_result(bytes(self._received[self._body_start :]))

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(f"the connection closed before an answer came ({exc})")

    def _fail(self, why: str) -> None:
        # It is done already if nobody waits: no request is on its way, or whoever sent it was cancelled.
        if not self._answer.done():
            self._answer.set_exception(RequestFailed(why))

    def _read_head(self) -> None:
        found = self._received.find(b"\r\n\r\n")
        if found < 0:
            return
        first, *fields = self._received[:found].decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, _, value in (field.partition(":") for field in fields)}
        if first.split()[1] != "200" or "content-length" not in headers:
            self._fail(f"not an answer of 200 and known length: {self._received.decode(errors='replace')[:500]}")
            return
        self._body_start = found + 4
        self._end = self._body_start + int(headers["content-length"])

    async def send(self, request: Sequence[bytes]) -> bytes:
        """Send a request, given in pieces, and return the answer's body.

        Raises:
            RequestFailed: the answer was not 200, or did not come.
        """
        if self._transport is None or self._transport.is_closing():
            raise RequestFailed("the connection is closed")
        self._received.clear()
        self._body_start = self._end = 0
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.writelines(request)
        return await self._answer

    def close(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[Connection]:
    """A connection to a port of the loopback."""
    _, connection = await asyncio.get_running_loop().create_connection(Connection, "127.0.0.1", port)
    try:
        yield connection
    finally:
        connection.close()


def request(method: str, path: str, body: bytes = b"") -> tuple[bytes, bytes]:
    """A request in pieces; `body` is not copied."""
    head = f"{method} {path} HTTP/1.1\r\nHost: benchmark\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode(), body


async def send_once(port: int, pieces: Sequence[bytes]) -> bytes:
    """Send one request on a connection of its own, and return the answer's body."""
    async with _limit(GRACE_S), connected(port) as connection:
        return await connection.send(pieces)


@asynccontextmanager
async def _limit(seconds: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise RequestFailed(f"no answer within {seconds:g} s") from error


async def load(connections: Sequence[Connection], pieces: Sequence[bytes], seconds: float) -> Load:
    """Send `pieces`, one request, again and again on each connection for `seconds`; at least once on each.

    Requests that are on their way at the end are waited for, and count.
    """
    taken: list[float] = []
    start = time.perf_counter()

    async def repeat(connection: Connection) -> None:
        now = start
        while now < start + seconds:
            sent = time.perf_counter()
            await connection.send(pieces)
            now = time.perf_counter()
            taken.append((now - sent) * 1e3)

    async with _limit(seconds + GRACE_S):
        await asyncio.gather(*(repeat(connection) for connection in connections))
    return Load(tuple(taken), time.perf_counter() - start)
