"""The members of a whole JSON document, and setting some of them."""

from __future__ import annotations

import json
from collections.abc import Mapping

from rendergen.payload.errors import LimitExceeded, MalformedJson, TruncatedJson
from rendergen.payload.limits import DEFAULT_LIMITS, Limits
from rendergen.payload.scanner import MemberScanner, ObjectEnded, Span, ValueEnded, skip_space
from rendergen.payload.small import small_elements, small_members
from rendergen.payload.values import ValueScanner

Piece = bytes | memoryview

_VIEW_PIECE = 256 * 1024


def index_members(data: bytes | bytearray | memoryview, limits: Limits = DEFAULT_LIMITS) -> dict[str, Span]:
    """Where the value of each top-level member is, by decoded key, in the order of the document.

    What is checked and raised is as for `MemberScanner`; a document that ends too early raises `TruncatedJson`, a
    `MalformedJson`. Nothing of `data` is kept; a memoryview is read through copies of 256 KiB.
    """
    return index_object(data, limits)[0]


def index_object(data: bytes | bytearray | memoryview, limits: Limits = DEFAULT_LIMITS) -> tuple[dict[str, Span], int]:
    """As `index_members`, and where the closing brace is."""
    if not isinstance(data, memoryview) and limits is DEFAULT_LIMITS:
        small = small_members(data)
        if small is not None:
            members, brace = small
            return {name: Span(*ends) for name, ends in members.items()}, brace
    scanner = MemberScanner(limits)
    if isinstance(data, memoryview):
        # A view has no search of its own.
        view = data.cast("B")
        chunks = (bytes(view[start : start + _VIEW_PIECE]) for start in range(0, len(view), _VIEW_PIECE))
        events = [event for chunk in chunks for event in scanner.feed(chunk)]
    else:
        events = scanner.feed(data)
    scanner.finish()
    values = {event.name: event.span for event in events if isinstance(event, ValueEnded)}
    [brace] = (event.brace for event in events if isinstance(event, ObjectEnded))
    return values, brace


def set_members(data: bytes, values: Mapping[str, bytes], limits: Limits = DEFAULT_LIMITS) -> list[Piece]:
    """The object `data` with the members `values` (raw JSON by decoded key) set, as pieces to be written in order.

    A member that is present keeps its place and key, and gets the new value; the others are appended right before
    the closing brace, in the order of `values`. All other bytes stay the same, and are views of `data`, not copies.

    Raises what `index_members` does for `data`, and `MalformedJson` for a value that is not one JSON value.
    """
    for value in values.values():
        require_value(value, limits)
    spans, brace = index_object(data, limits)
    view = memoryview(data)
    pieces: list[Piece] = []
    kept_until = 0
    for name, span in spans.items():
        if name in values:
            pieces += (view[kept_until : span.start], values[name])
            kept_until = span.end
    added = {name: value for name, value in values.items() if name not in spans}
    pieces += (view[kept_until:brace], written_members(added, after_others=bool(spans)))
    pieces.append(view[brace:])
    return [piece for piece in pieces if piece]


def written_members(values: Mapping[str, bytes], *, after_others: bool) -> bytes:
    """The members `values` as written inside an object's braces, `after_others` or as its first."""
    written = b",".join(json.dumps(name).encode() + b":" + value for name, value in values.items())
    return b"," + written if written and after_others else written


def require_value(data: bytes, limits: Limits = DEFAULT_LIMITS) -> None:
    """Raise `MalformedJson` unless `data` is one JSON value, checked as far as `ValueScanner` does."""
    ended = data + b" "  # a number has no end of its own
    after = _pass_value(ended, skip_space(ended, 0), ValueScanner(limits))
    if skip_space(ended, after) < len(ended):
        raise MalformedJson(after, "something follows the value")


def split_list(data: bytes, limits: Limits = DEFAULT_LIMITS) -> list[Span]:
    """Where each element of a top-level JSON list is.

    As strict as `index_members`; `limits.members` bounds the number of elements.
    """
    if limits is DEFAULT_LIMITS:
        elements = small_elements(data)
        if elements is not None:
            return [Span(*ends) for ends in elements]
    pos = skip_space(data, 0)
    if data[pos : pos + 1] != b"[":
        raise MalformedJson(pos, "the top level is not a list") if pos < len(data) else TruncatedJson(pos)
    scanner = ValueScanner(limits)
    spans: list[Span] = []
    pos = skip_space(data, pos + 1)
    if data[pos : pos + 1] != b"]":
        while True:
            if len(spans) >= limits.members:
                raise LimitExceeded("elements of the list", limits.members)
            after = _pass_value(data, pos, scanner)
            spans.append(Span(pos, after))
            pos = skip_space(data, after)
            if data[pos : pos + 1] != b",":
                break
            pos = skip_space(data, pos + 1)
    if pos == len(data):
        raise TruncatedJson(pos)
    if data[pos : pos + 1] != b"]":
        raise MalformedJson(pos, "a comma or the closing bracket should follow the element")
    pos = skip_space(data, pos + 1)
    if pos < len(data):
        raise MalformedJson(pos, "something follows the document")
    return spans


def _pass_value(data: bytes, start: int, scanner: ValueScanner) -> int:
    """The end of the value at `start`, where whitespace has been passed; `data` must go on after it."""
    if start == len(data):
        raise TruncatedJson(start)
    after = scanner.advance(data, scanner.begin(data, start, 0), 0)
    if not scanner.ended:
        raise TruncatedJson(after)
    return after
