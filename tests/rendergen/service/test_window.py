"""That a service holds a window of what passes through it, and not the whole."""

import asyncio
import gc
import tracemalloc
from collections.abc import Iterator

import pytest

from rendergen.service.pods import READ_WINDOW_BYTES
from tests.support.carrier import carried_to
from tests.support.clients import MIB
from tests.support.polling import eventually, soon, stays
from tests.support.raw_caller import raw_caller
from tests.support.raw_pod import Connection, raw_pod

TOTAL = 64 * MIB
PIECE = b"x" * (64 * 1024)
# Windows of both connections, and the transports' own buffers; a twentieth of what passes.
MOST_HELD = 12 * READ_WINDOW_BYTES


@pytest.fixture
def traced() -> Iterator[None]:
    gc.collect()
    tracemalloc.start()
    yield
    tracemalloc.stop()


async def test_a_large_upload_through_a_slow_pod_is_held_back(traced: None) -> None:
    """The pod reads nothing until the caller can send no more; then it reads slowly. Little is held at any time."""
    sent = received = 0
    read = asyncio.Event()

    async def slow(connection: Connection) -> None:
        nonlocal received
        await connection.head()
        await read.wait()
        while received < TOTAL:
            received += len(await connection.reader.read(256 * 1024))
            await asyncio.sleep(0)
        await connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

    async with (
        raw_pod(slow, receive_buffer_bytes=64 * 1024) as pod,
        carried_to(pod.url, timeout_s=60) as url,
        raw_caller(url) as caller,
    ):
        await caller.send(b"POST /path HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % TOTAL)

        async def send() -> None:
            nonlocal sent
            while sent < TOTAL:
                await caller.send(PIECE)
                sent += len(PIECE)

        sending = asyncio.create_task(send())
        await eventually(lambda: sent > 0)
        tracemalloc.reset_peak()
        assert await stays(lambda: sent) < TOTAL
        read.set()
        await soon(sending)
        assert (await soon(caller.answer()))[0] == 200
        assert received == TOTAL
        assert tracemalloc.get_traced_memory()[1] < MOST_HELD


async def test_a_large_answer_to_a_slow_caller_is_held_back(traced: None) -> None:
    """The caller reads nothing until the pod can send no more; then all of it arrives."""
    sent = 0

    async def generous(connection: Connection) -> None:
        nonlocal sent
        await connection.request()
        await connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % TOTAL)
        while sent < TOTAL:
            await connection.send(PIECE)
            sent += len(PIECE)

    async with (
        raw_pod(generous) as pod,
        carried_to(pod.url, timeout_s=60) as url,
        raw_caller(url) as caller,
    ):
        await caller.send(b"GET /path HTTP/1.1\r\nHost: x\r\n\r\n")
        await caller.reader.readuntil(b"\r\n\r\n")
        await eventually(lambda: sent > 0)
        tracemalloc.reset_peak()
        assert await stays(lambda: sent) < TOTAL
        received = 0
        while received < TOTAL:
            received += len(await soon(caller.reader.read(256 * 1024)))
            await asyncio.sleep(0)
        assert tracemalloc.get_traced_memory()[1] < MOST_HELD
