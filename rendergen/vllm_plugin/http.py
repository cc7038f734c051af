"""What the plugin's routes need of HTTP: bodies read into one buffer, answers in pieces, callers that leave."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

import numpy as np
from fastapi import Request, Response
from fastapi.responses import JSONResponse
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from rendergen.payload import Piece
from rendergen.vllm_plugin.errors import BadPayload, Refusal, TooLarge

T = TypeVar("T")

# What no caller sees: it has left.
CLIENT_CLOSED_REQUEST = 499


def media_type(header: str | None) -> str:
    """The media type that a `Content-Type` header names, in small letters and without parameters."""
    return (header or "").split(";", 1)[0].strip().lower()


def prefers(header: str | None, wanted: str, otherwise: str) -> bool:
    """Whether an `Accept` header names ``wanted``, and weighs it no less than ``otherwise``."""
    weights: dict[str, float] = {}
    for part in (header or "").lower().split(","):
        name, *parameters = (each.strip() for each in part.split(";"))
        weights[name] = _weight(parameters)
    weight = weights.get(wanted, 0.0)
    return weight > 0 and weight >= weights.get(otherwise, 0.0)


def _weight(parameters: Sequence[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0


async def read_body(request: Request, limit: int) -> memoryview:
    """The whole body, in one buffer made for its length, which may be written to.

    Raises:
        TooLarge: it is over ``limit`` bytes.
        BadPayload: it is not as long as it said.
    """
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.strip().lower() != "identity":
        raise BadPayload(
            f"Request bodies are not decompressed here: send it without Content-Encoding {encoding[:40]!r}."
        )
    declared = request.headers.get("content-length")
    if declared is None:
        return memoryview(await _gathered(request, limit))
    length = int(declared)
    if length > limit:
        raise TooLarge(f"The request body has {length} bytes; this server takes {limit}.")
    # Memory that nothing has been written to costs nothing yet, unlike a bytearray's zeros.
    body = np.empty(length, np.uint8).data
    size = 0
    async for chunk in request.stream():
        body[size : size + len(chunk)] = chunk
        size += len(chunk)
    if size < length:
        raise BadPayload(f"The request body ended after {size} of {length} bytes.")
    return body


async def _gathered(request: Request, limit: int) -> bytearray:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            raise TooLarge(f"The request body has more than {limit} bytes, which is what this server takes.")
    return body


class PiecesResponse(Response):
    """An answer whose body is given in pieces, which are sent as they are and never joined."""

    def __init__(self, pieces: Sequence[Piece], media_type: str) -> None:
        super().__init__(media_type=media_type)
        self._pieces = pieces
        self.headers["content-length"] = str(sum(len(piece) for piece in pieces))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for piece in self._pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def refusal(error: Refusal) -> JSONResponse:
    """The answer that says so."""
    headers = {} if error.retry_after_s is None else {"Retry-After": str(error.retry_after_s)}
    return JSONResponse(error.body(), status_code=error.status, headers=headers)


async def unless_gone(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """``work``'s result; it is cancelled when the caller leaves. The request's body must have been read.

    Raises:
        ClientDisconnect: the caller left.
    """
    working = asyncio.ensure_future(work)
    leaving = asyncio.create_task(_gone(request))
    try:
        await asyncio.wait([working, leaving], return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        leaving.cancel()
        working.cancel()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def closed() -> Response:
    """For a caller that has left; nothing of it is sent."""
    return Response(status_code=CLIENT_CLOSED_REQUEST)
