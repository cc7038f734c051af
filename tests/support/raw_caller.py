"""A caller below HTTP: literal bytes out, literal bytes in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit


@dataclass(slots=True)
class RawCaller:
    """One connection to a service."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        """Send ``data`` as it is."""
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self) -> tuple[int, bytes, bytes]:
        """Status, head and body of the next answer, which must have a ``Content-Length``."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        return int(head.split(b" ", 2)[1]), head, await self.reader.readexactly(length)

    async def rest(self) -> bytes:
        """All that still comes until the service closes the connection."""
        try:
            return await self.reader.read()
        except ConnectionResetError:
            return b""

    def leave(self) -> None:
        """Close the connection at once, as a process does that is killed."""
        self.writer.transport.abort()


@asynccontextmanager
async def raw_caller(url: str) -> AsyncIterator[RawCaller]:
    """A connection to the service at ``url``."""
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    try:
        yield RawCaller(reader, writer)
    finally:
        writer.close()
