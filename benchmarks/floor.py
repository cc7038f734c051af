"""The least that a server like vLLM's can do with a payload: receive it, and copy it into one buffer.

An ASGI application, on the same HTTP server as vLLM's.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import numpy as np

from rendergen.launcher.machine import free_ports

_TRIES = 200
_PAUSE_S = 0.05


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Takes any request's body, and answers with nothing."""
    if scope["type"] != "http":
        return
    body = np.empty(int(dict(scope["headers"]).get(b"content-length", b"0")), np.uint8).data
    size, more = 0, True
    while more:
        message = await receive()
        chunk, more = message.get("body", b""), message.get("more_body", False)
        body[size : size + len(chunk)] = chunk
        size += len(chunk)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body"})


@asynccontextmanager
async def floor_server() -> AsyncIterator[tuple[str, int]]:
    """The application, running: its address and process id."""
    [port] = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    module = f"{__name__}:{app.__name__}"
    argv = [sys.executable, "-m", "uvicorn", module, "--port", str(port), "--lifespan", "off", "--log-level", "error"]
    process = await asyncio.create_subprocess_exec(*argv)
    try:
        await _answers(url)
        yield url, process.pid
    finally:
        process.terminate()
        await process.wait()


async def _answers(url: str) -> None:
    async with aiohttp.ClientSession() as session:
        for _ in range(_TRIES):
            try:
                async with session.get(url):
                    return
            except aiohttp.ClientError:
                await asyncio.sleep(_PAUSE_S)
    raise RuntimeError("the server of the floor does not start")
