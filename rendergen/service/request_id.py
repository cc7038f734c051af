"""The request id: taken from the caller where it is harmless, made here where not, known to every log line."""

from __future__ import annotations

import re
import uuid
from contextvars import ContextVar

from multidict import CIMultiDictProxy

HEADER = "X-Request-Id"
MAX_CHARS = 128

# Ids go into headers, log lines and vLLM's own ids: only characters that are inert in all three.
_HARMLESS = re.compile(rf"[A-Za-z0-9._:\-]{{1,{MAX_CHARS}}}")

current: ContextVar[str] = ContextVar("request_id", default="")


def new() -> str:
    """A fresh id: 32 hex digits."""
    return uuid.uuid4().hex


def given_in(headers: CIMultiDictProxy[str]) -> str | None:
    """The caller's id, if it sent exactly one harmless one (at most 128 of ``A-Z a-z 0-9 . _ : -``)."""
    values = headers.getall(HEADER, [])
    return values[0] if len(values) == 1 and _HARMLESS.fullmatch(values[0]) else None


def derived() -> str:
    """An id for one step of the current request: the request's own, and eight hex digits that tell it from others.

    It is as harmless as the request's: the end of a very long one gives way.
    """
    return f"{current.get()[: MAX_CHARS - 9]}-{uuid.uuid4().hex[:8]}"
