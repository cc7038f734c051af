"""Where a medium is, by the beginning of the string that names it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

HEAD_BYTES = 1024
"""How much of a string is looked at: the longest scheme, host and port, three times over."""

_WHOLE_ESCAPES = re.compile(rb'(?:[^\\]|\\(?:["\\/bfnrt]|u[0-9A-Fa-f]{4}))*+')
# Far narrower than what URL parsers take, and read alike by all of them: no userinfo, backslash, blank, percent sign or
# letter beyond ASCII. (Without ASCII, ignoring case takes U+017F for an s and U+212A for a k.)
_PLAIN_URL = re.compile(r"https?://([a-z0-9_.-]+)(?::[0-9]{1,5})?(?=[/?#]|\Z)", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Location:
    """What a string that names a medium says of it.

    Attributes:
        inline: the medium is in the string: a ``data:`` URL, as vLLM tells it (the first five characters, in any case).
        host: of an http or https URL of the plainest form, its host in lower case. None for any other string.
    """

    inline: bool
    host: str | None = None


def located(head: bytes, *, whole: bool) -> Location:
    """Where the medium is that a JSON string names.

    Args:
        head: the raw string between its quotes, or at least its first ``HEAD_BYTES``.
        whole: nothing of the string is missing.
    """
    if head[:5].lower() == b"data:":
        return Location(inline=True)
    text, whole = _decoded(head, whole)
    if text[:5].lower() == "data:":
        return Location(inline=True)
    url = _PLAIN_URL.match(text)
    if url is None or (url.end() == len(text) and not whole):
        return Location(inline=False)
    return Location(inline=False, host=url[1].lower())


def _decoded(head: bytes, whole: bool) -> tuple[str, bool]:
    """As `json` decodes it, without an escape that is cut or is none; and whether that is still the whole string."""
    if b"\\" not in head:
        return head.decode("utf-8", "replace"), whole
    escapes = _WHOLE_ESCAPES.match(head)
    complete = escapes[0] if escapes else b""
    text = json.loads('"' + complete.decode("utf-8", "replace") + '"', strict=False)
    assert isinstance(text, str)
    return text, whole and len(complete) == len(head)
