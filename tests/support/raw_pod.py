"""A pod below HTTP: a listening socket, and one script a connection that reads and writes literal bytes."""

from __future__ import annotations

import asyncio
import re
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_LAST_CHUNK = b"0\r\n\r\n"


@dataclass(slots=True)
class Connection:
    """One connection that was accepted.

    Attributes:
        received: all that was read from it.
        ended: True once the other side closed it.
    """

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    received: bytearray = field(default_factory=bytearray)
    ended: bool = False

    async def head(self) -> bytes:
        """The next request's head."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        self.received += head
        return head

    async def request(self) -> bytes:
        """The next request's body, as it was framed."""
        head = await self.head()
        if (length := _LENGTH.search(head)) is not None:
            body = await self.reader.readexactly(int(length[1]))
        elif b"chunked" in head.lower():
            body = await self.reader.readuntil(_LAST_CHUNK)
        else:
            body = b""
        self.received += body
        return body

    async def send(self, data: bytes) -> None:
        """Send ``data`` as it is."""
        self.writer.write(data)
        await self.writer.drain()

    async def until_closed(self) -> None:
        """Read until the other side closes."""
        try:
            while data := await self.reader.read(65536):
                self.received += data
        except ConnectionError:
            pass
        self.ended = True

    def reset(self) -> None:
        """Close so that the other side is told "connection reset", as when bytes arrive at a socket just closed."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


Script = Callable[[Connection], Awaitable[None]]


@dataclass(slots=True)
class RawPod:
    """A listening socket.

    Attributes:
        url: its base address.
        connections: those accepted, in order.
    """

    url: str = ""
    connections: list[Connection] = field(default_factory=list)


@asynccontextmanager
async def raw_pod(*scripts: Script, receive_buffer_bytes: int | None = None) -> AsyncIterator[RawPod]:
    """A pod that runs the n-th script on the n-th connection, the last one on all after it, then closes."""
    pod = RawPod()
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        connection = Connection(reader, writer)
        pod.connections.append(connection)
        try:
            await scripts[min(len(pod.connections), len(scripts)) - 1](connection)
        except (ConnectionError, asyncio.IncompleteReadError):
            connection.ended = True
        except asyncio.CancelledError:
            pass
        finally:
            writer.close()

    listener = socket.socket()
    if receive_buffer_bytes is not None:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
    listener.bind(("127.0.0.1", 0))
    server = await asyncio.start_server(serve, sock=listener)
    pod.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    try:
        yield pod
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def closed_port() -> AsyncIterator[str]:
    """The base address of a port on which connections are refused: bound by us, and nobody listens."""
    with socket.socket() as unlistening:
        unlistening.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{unlistening.getsockname()[1]}"


@asynccontextmanager
async def full_port() -> AsyncIterator[str]:
    """The base address of a port that listens and never accepts, with its backlog full: connecting takes for ever."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        address = listener.getsockname()
        waiting = [socket.socket() for _ in range(4)]
        try:
            for sock in waiting:
                sock.setblocking(False)
                sock.connect_ex(address)
            yield f"http://127.0.0.1:{address[1]}"
        finally:
            for sock in waiting:
                sock.close()
