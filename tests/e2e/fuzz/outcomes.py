"""What may be answered to a payload that was tampered with, and whether that is what came."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tests.e2e.calls import Reply


class Expect(Enum):
    """What may come of it. A 4xx must be typed, and no 5xx may come of anything."""

    REFUSED = "a 4xx"
    RIGHT = "a 4xx, or the answer that belongs to the pixels"
    ANY = "a 4xx, or any answer: prompt, pixels or sampling params are others now"


@dataclass(frozen=True, slots=True)
class Verdict:
    """How it went.

    Attributes:
        label: a short word for the table: a status, or `error in stream`.
        fault: what is wrong with it; None: nothing.
    """

    label: str
    fault: str | None


def verdict(reply: Reply, expect: Expect, right: str | None, decode: Callable[[list[int]], str]) -> Verdict:
    """Judge an answer.

    Args:
        reply: the answer.
        expect: what may come.
        right: what must be said of the pixels; None where that is not known.
        decode: from token ids to text, without special tokens.
    """
    if 400 <= reply.status < 500:
        return Verdict(str(reply.status), _fault_of_error(reply))
    if reply.status != 200:
        return Verdict(str(reply.status), f"{reply.status}: {reply.text()[:300]}")
    tokens, errors = _said(reply)
    if errors:
        return Verdict("error in stream", f"an error after 200: {errors[0]}")
    if expect is Expect.REFUSED:
        return Verdict("200", f"it was served: {decode(tokens)!r}")
    if expect is Expect.RIGHT and decode(tokens) != right:
        return Verdict("200", f"the pixels are {right!r}, and the answer was {decode(tokens)!r}")
    return Verdict("200", None)


def _fault_of_error(reply: Reply) -> str | None:
    try:
        document = reply.json()
    except ValueError:
        return f"an error that is no JSON: {reply.text()[:300]}"
    error = document.get("error") if isinstance(document, dict) else None
    if not isinstance(error, dict) or set(error) != {"message", "type", "param", "code"}:
        return f"an error of another shape: {reply.text()[:300]}"
    if error["code"] != reply.status or not isinstance(error["code"], int):
        return f"an error of status {reply.status} and code {error['code']!r}"
    if not str(error["message"]).strip() or not error["type"]:
        return f"an error without words: {error}"
    return None


def _said(reply: Reply) -> tuple[list[int], list[dict[str, Any]]]:
    """The first choice's tokens, and the errors that came among the events of a stream."""
    if not reply.headers["Content-Type"].startswith("text/event-stream"):
        return list(reply.json()["choices"][0]["token_ids"]), []
    tokens: list[int] = []
    errors = []
    for line in reply.text().splitlines():
        if not line.startswith("data: ") or line == "data: [DONE]":
            continue
        event = json.loads(line.removeprefix("data: "))
        if "error" in event:
            errors.append(event)
        for choice in event.get("choices", ()):
            if choice["index"] == 0:
                tokens += choice["token_ids"]
    return tokens, errors
