"""A chat request as the router needs it: its bytes, and the few members that decide where they go."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass

from rendergen.payload import MemberCapture, MemberScanner, PayloadError, ValueEnded, index_members
from rendergen.service.bodies import RequestBody
from rendergen.service.errors import BadRequest, NotSupported

# More than enough for those members; sampling_params may hold a grammar.
MAX_CAPTURED_BYTES = 4 * 1024 * 1024

SAMPLING = "sampling_params"
_KEEP_STOP = "include_stop_str_in_output"
_DECIDING = ("model", "stream", "stop", "tool_choice", _KEEP_STOP, SAMPLING)

# Smaller pieces of a body are put together.
MIN_PIECE_BYTES = 16 * 1024

_NO_STOP = re.compile(rb'null|\[[ \t\r\n]*\]|""')


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A request to ``POST /v1/chat/completions``.

    Attributes:
        body: the caller's bytes, in the pieces in which they came. They are never joined: a body with images is
            megabytes, and joining them would hold up everyone else's tokens.
        headers: what of the caller's headers goes on to pods.
        model: the ``model`` member, raw JSON.
        keeps_stop_tokens: the token that ends the generation is to be part of the text.
        tool_choice: the ``tool_choice`` member, raw JSON; empty where there is none.
        sampling_overrides: members of the ``sampling_params`` member, raw JSON by name: merged into the rendered ones.
    """

    body: tuple[bytes, ...]
    headers: Mapping[str, str]
    model: bytes
    tool_choice: bytes
    keeps_stop_tokens: bool
    sampling_overrides: Mapping[str, bytes]


async def read_chat_request(body: RequestBody, headers: Mapping[str, str]) -> ChatRequest:
    """Read a chat request, indexing its top level while it arrives.

    Raises:
        BadRequest: it is no JSON object, a member is given twice, or ``model`` or ``messages`` is missing.
        NotSupported: it asks for a stream, or for stop strings.
        ServiceError: the body could not be read (see :meth:`RequestBody.chunks`).
    """
    scanner = MemberScanner()
    capture = MemberCapture(_DECIDING, MAX_CAPTURED_BYTES)
    names: set[str] = set()
    pieces: list[bytes] = []
    try:
        async for chunk in _at_least(MIN_PIECE_BYTES, body.chunks()):
            offset = scanner.position
            events = scanner.feed(chunk)
            capture.feed(chunk, offset, events)
            names.update(event.name for event in events if isinstance(event, ValueEnded))
            pieces.append(chunk)
        scanner.finish()
    except PayloadError as error:
        raise BadRequest(f"The request body is not a JSON object that can be used: {error}.") from error
    found = capture.captured
    for name in ("model", "messages"):
        if name not in names:
            raise BadRequest(f"The request has no `{name}`.", param=name)
    if not found["model"].startswith(b'"'):
        raise BadRequest("`model` must be the name of a model: a string.", param="model")
    overrides = _overrides(found.get(SAMPLING, b"null"))
    _refuse_what_is_not_built(found.get("stream"), (found.get("stop"), overrides.get("stop")))
    return ChatRequest(
        body=tuple(pieces),
        headers=headers,
        model=found["model"],
        tool_choice=found.get("tool_choice", b""),
        keeps_stop_tokens=overrides.get(_KEEP_STOP, found.get(_KEEP_STOP)) == b"true",
        sampling_overrides=overrides,
    )


async def _at_least(size: int, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The same bytes with small chunks put together: a body in a million pieces would be held as a million objects."""
    held = bytearray()
    async for chunk in chunks:
        if not held and len(chunk) >= size:
            yield chunk
            continue
        held += chunk
        if len(held) >= size:
            yield bytes(held)
            held.clear()
    if held:
        yield bytes(held)


def _refuse_what_is_not_built(stream: bytes | None, stops: Iterable[bytes | None]) -> None:
    if stream not in (None, b"null", b"false"):
        raise NotSupported("Streamed answers are not built yet: send the request without `stream`.", param="stream")
    # vLLM's derender leaves the stop string, and what came with its last token, in the text: a wrong answer.
    if any(stop is not None and not _NO_STOP.fullmatch(stop) for stop in stops):
        raise NotSupported("Stop strings are not built yet: use `stop_token_ids`, or cut the text.", param="stop")


def _overrides(value: bytes) -> dict[str, bytes]:
    """The members of the raw JSON object ``value``, raw, by name; none for ``null``."""
    if value == b"null":
        return {}
    try:
        return {name: value[span.start : span.end] for name, span in index_members(value).items()}
    except PayloadError as error:
        raise BadRequest(f"`sampling_params` is not an object that can be used: {error}.", param=SAMPLING) from error
