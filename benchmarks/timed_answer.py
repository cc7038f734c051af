"""A chat request whose answer is timed, and checked to be a right one."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import aiohttp

from benchmarks.client import RequestFailed
from rendergen.sse import EventReader

CHAT = "/v1/chat/completions"

_MAX_EVENT_BYTES = 1 << 20
_STAGE = re.compile(r"([\w-]+);dur=([0-9.]+)")
_TEXTS = ("content", "reasoning", "reasoning_content")


@dataclass(frozen=True, slots=True)
class Timed:
    """One answer. Times are in milliseconds, from just before the request was sent.

    Attributes:
        total_ms: until the answer's last byte.
        first_token_ms: until the first text of a stream; None of an answer that was not streamed.
        gaps_ms: of a stream, between the arrival of one text and of the next.
        stages: those that the answer's `Server-Timing` names; a server that is no router of ours gives none.
    """

    total_ms: float
    first_token_ms: float | None
    gaps_ms: Sequence[float]
    stages: Mapping[str, float]

    @property
    def began_ms(self) -> float:
        """Until the stages had ended: a stream's first text, or the answer's end."""
        return self.total_ms if self.first_token_ms is None else self.first_token_ms


async def ask(session: aiohttp.ClientSession, url: str, body: bytes, *, streamed: bool, tokens: int) -> Timed:
    """Send a chat request to the server at ``url`` and read its answer, of which ``tokens`` tokens are expected.

    Raises:
        RequestFailed: the answer is not 200, not whole, or not of that many tokens; or none came.
    """
    headers = {"Content-Type": "application/json"}
    arrived: list[tuple[float, bytes]] = []
    started = time.perf_counter()
    try:
        async with session.post(url + CHAT, data=body, headers=headers) as answer:
            async for chunk in answer.content.iter_any():
                arrived.append((1000 * (time.perf_counter() - started), chunk))
            total_ms = 1000 * (time.perf_counter() - started)
            status, timing = answer.status, answer.headers.get("Server-Timing", "")
    except (aiohttp.ClientError, TimeoutError) as error:
        raise RequestFailed(f"no answer, or no whole one: {type(error).__name__} {error}") from error
    # What came is read only now, so that the reading of one answer takes nothing from the timing of its events.
    if status != 200:
        raise RequestFailed(
            f"status {status}: {b''.join(chunk for _, chunk in arrived)[:500].decode(errors='replace')}"
        )
    if not streamed:
        check_completion(b"".join(chunk for _, chunk in arrived), tokens)
        return Timed(total_ms, None, (), read_stages(timing))
    first_ms, gaps_ms = read_stream(arrived, tokens)
    return Timed(total_ms, first_ms, gaps_ms, read_stages(timing))


def read_stages(server_timing: str) -> dict[str, float]:
    """The milliseconds of each stage in the value of a `Server-Timing` header."""
    return {name: float(duration) for name, duration in _STAGE.findall(server_timing)}


def check_completion(document: bytes, tokens: int) -> None:
    """Raises: RequestFailed: this is no chat completion of one choice that has text and ``tokens`` tokens."""
    try:
        answer = json.loads(document)
        (choice,) = answer["choices"]
        counted = answer["usage"]["completion_tokens"]
        has_text = _has_text(choice["message"])
    except (ValueError, KeyError, TypeError) as error:
        raise RequestFailed(f"no chat completion: {document[:500].decode(errors='replace')}") from error
    if not has_text:
        raise RequestFailed("a completion without text")
    _check_count(counted, tokens)


def read_stream(arrived: Sequence[tuple[float, bytes]], tokens: int) -> tuple[float, list[float]]:
    """When the first text of a streamed completion came, and the time from each arrival of text to the next, in ms.

    Args:
        arrived: the stream's bytes, cut anywhere, each piece with when it came in milliseconds.
        tokens: how many there have to be, by the usage at the stream's end.

    Raises:
        RequestFailed: there is an error in it, no text, not as many tokens, or `[DONE]` is not the last event.
    """
    reader = EventReader(_MAX_EVENT_BYTES)
    events = [(ms, event.data) for ms, chunk in arrived for event in reader.feed(chunk) if event.data]
    if not events or events[-1][1] != b"[DONE]" or reader.finish():
        end = events[-1][1][:500].decode(errors="replace") if events else "nothing"
        raise RequestFailed(f"a stream that does not end in [DONE], but in {end}")
    texts: list[float] = []
    counted = None
    for ms, data in events[:-1]:
        chunk = _chunk(data)
        counted = (chunk.get("usage") or {}).get("completion_tokens", counted)
        # What came together is one text to whoever reads it.
        if any(_has_text(choice["delta"]) for choice in chunk["choices"]) and ms not in texts[-1:]:
            texts.append(ms)
    if not texts:
        raise RequestFailed("a stream without text")
    _check_count(counted, tokens)
    return texts[0], [later - earlier for earlier, later in pairwise(texts)]


def _chunk(data: bytes) -> dict[str, Any]:
    try:
        chunk: dict[str, Any] = json.loads(data)
        if "error" not in chunk and all("delta" in choice for choice in chunk["choices"]):
            return chunk
    except (ValueError, KeyError, TypeError):
        pass
    raise RequestFailed(f"no chunk of a chat completion: {data[:500].decode(errors='replace')}")


def _has_text(message: Mapping[str, Any]) -> bool:
    return any(message.get(name) for name in _TEXTS)


def _check_count(counted: object, tokens: int) -> None:
    if counted != tokens:
        raise RequestFailed(f"{counted} tokens where {tokens} were asked for")
