"""Where the members of a JSON object are, by Python's own decoder: nothing of rendergen decides what is compared."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass

_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()


def member_spans(document: bytes) -> dict[str, tuple[int, int]]:
    """The byte range of each top-level member's value."""
    # One character a byte: positions in the text are positions in the bytes, and JSON's own signs are all ASCII.
    text = document.decode("latin-1")
    spans: dict[str, tuple[int, int]] = {}
    position = _after_sign(text, 0, "{")
    while text[position] != "}":
        if spans:
            position = _after_sign(text, position, ",")
        name, position = _DECODER.raw_decode(text, position)
        start = _after_sign(text, position, ":")
        _, end = _DECODER.raw_decode(text, start)
        assert name not in spans, f"member {name!r} is there twice"
        spans[name] = (start, end)
        position = _after_space(text, end)
    assert _after_space(text, position + 1) == len(text), "something follows the object"
    return spans


@dataclass(frozen=True, slots=True)
class Outside:
    """What stands before and behind a member's value: SHA-256 of each, and the number of bytes of both."""

    before: str
    behind: str
    bytes: int


def outside(document: bytes, name: str) -> Outside:
    """All of ``document`` but the value of its top-level member ``name``."""
    start, end = member_spans(document)[name]
    return Outside(digest(document[:start]), digest(document[end:]), len(document) - (end - start))


def digest(data: bytes) -> str:
    """SHA-256 in hex."""
    return hashlib.sha256(data).hexdigest()


def _after_sign(text: str, position: int, sign: str) -> int:
    position = _after_space(text, position)
    assert text[position] == sign, f"{sign!r} should be at byte {position}"
    return _after_space(text, position + 1)


def _after_space(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    assert match is not None
    return match.end()
