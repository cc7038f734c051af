"""The index of small documents, by the C code of Python's `json`.

It is several times quicker on them than `MemberScanner`, which is made for megabytes. It gives up on whatever it does
not take for plain, and leaves it to the scanner to say what is wrong with it, if anything is.
"""

from __future__ import annotations

from json.decoder import JSONDecoder, scanstring  # type: ignore[attr-defined]  # public, but not in the stubs

from rendergen.payload.limits import DEFAULT_LIMITS

SMALL_BYTES = 16 * 1024

_scan = JSONDecoder(strict=False).scan_once  # type: ignore[attr-defined]
_SPACE = " \t\n\r"


def small_members(data: bytes | bytearray) -> tuple[dict[str, tuple[int, int]], int] | None:
    """Start and end of each member's value by key, and where the closing brace is; None if `data` is not plain."""
    text = _plain_text(data)
    try:
        if text is None or text[pos := _skip(text, 0)] != "{":
            return None
        members: dict[str, tuple[int, int]] = {}
        pos = _skip(text, pos + 1)
        if text[pos] != "}":
            while True:
                if text[pos] != '"':
                    return None
                name, after = scanstring(text, pos + 1, True)
                if name in members or after - pos - 2 > DEFAULT_LIMITS.key_bytes or not name.isascii():
                    return None
                after = _skip(text, after)
                if text[after] != ":":
                    return None
                start = _skip(text, after + 1)
                _, end = _scan(text, start)
                members[name] = start, end
                pos = _skip(text, end)
                if text[pos] != ",":
                    break
                pos = _skip(text, pos + 1)
            if text[pos] != "}" or len(members) > DEFAULT_LIMITS.members:
                return None
        return (members, pos) if _skip(text, pos + 1) == len(text) else None
    except (ValueError, IndexError, StopIteration):
        return None


def small_elements(data: bytes | bytearray) -> list[tuple[int, int]] | None:
    """Start and end of each element of a list; None if `data` is not plain."""
    text = _plain_text(data)
    try:
        if text is None or text[pos := _skip(text, 0)] != "[":
            return None
        elements: list[tuple[int, int]] = []
        pos = _skip(text, pos + 1)
        if text[pos] != "]":
            while True:
                _, end = _scan(text, pos)
                elements.append((pos, end))
                pos = _skip(text, end)
                if text[pos] != ",":
                    break
                pos = _skip(text, pos + 1)
            if text[pos] != "]" or len(elements) > DEFAULT_LIMITS.members:
                return None
        return elements if _skip(text, pos + 1) == len(text) else None
    except (ValueError, IndexError, StopIteration):
        return None


def _plain_text(data: bytes | bytearray) -> str | None:
    """`data` with a character for each byte, so that positions stay; None if it is large or may be deep."""
    if len(data) > SMALL_BYTES or data.count(b"[") + data.count(b"{") > DEFAULT_LIMITS.depth:
        return None
    return data.decode("latin-1")


def _skip(text: str, pos: int) -> int:
    while pos < len(text) and text[pos] in _SPACE:
        pos += 1
    return pos
