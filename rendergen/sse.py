"""Server-sent events: one parser and one writer for the services, the router and the plugin in vLLM.

The format is WHATWG HTML's (9.2.6, "Interpreting an event stream"), in bytes: nothing here decodes UTF-8, and a text's
U+2028, U+0085, vertical tab or form feed ends no line. Lines end with CR, LF or both.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

COMMENT_KEEP_ALIVE = b": keep-alive\n\n"
DONE = b"data: [DONE]\n\n"

_BOM = b"\xef\xbb\xbf"
_LINE_END = re.compile(rb"\r\n|\n|\r")

# The end of an empty line, which is a line end that comes right after another.
#
#   after LF, an LF          after LF, a CR, and the LF if it is half of a CRLF      after a lone CR, a CR
#
# A CR after an LF at the end of what there is has to wait for the next byte. One after a lone CR has not: an LF that
# follows is taken for the beginning of what comes next, where an empty line means nothing.
_EMPTY_LINE = re.compile(rb"\n(?<=\n\n)|\r(?<=\n\r)(?:\n|(?=[^\n]))|\r(?<=\r\r)")


class EventTooLarge(Exception):
    """An event, or the beginning of one, has more bytes than are held for one.

    Attributes:
        limit: the most bytes of one event, its line ends included.
    """

    def __init__(self, limit: int) -> None:
        super().__init__(f"an event of the stream is over the limit of {limit} bytes")
        self.limit = limit


@dataclass(frozen=True, slots=True)
class Event:
    """What stands before one empty line: an event, or comments alone, or nothing.

    Whoever looks for events takes those whose ``data`` is not empty. The others (keep-alive comments, fields without
    data, surplus empty lines) are there so that all the bytes can be passed on. A single empty data line, for which a
    browser would report an event, is counted among them: none of the APIs has it.

    Attributes:
        name: what ``event:`` says, empty without one. The last one counts.
        data: the data lines, joined by LF.
        raw: the bytes as they came, the empty line included, and a byte order mark at the stream's beginning.
    """

    name: bytes
    data: bytes
    raw: bytes


class EventReader:
    """Reads events out of bytes that are cut anywhere.

    What it gives does not depend on how they were cut. All ``raw`` joined, and :meth:`finish` after them, are the bytes
    that were fed. Work is linear in these.

    Args:
        max_event_bytes: most bytes of one event, its line ends and comments included.
    """

    def __init__(self, max_event_bytes: int) -> None:
        self._max_event_bytes = max_event_bytes
        self._held = bytearray()  # the event that has not ended
        self._last = b"\n"  # the last two bytes: what an empty line is depends on them; a stream begins with a line
        self._at_start = True  # no event has been read, so that the next may begin with a byte order mark
        self._is_too_large = False

    def feed(self, chunk: bytes) -> list[Event]:
        """Take the next bytes; returns the events that end in them, in order.

        Raises:
            EventTooLarge: an event is over the limit. All before it have been returned by then; the bytes from its
                beginning on are what :meth:`finish` returns.
        """
        if self._is_too_large:
            self._held += chunk
            raise EventTooLarge(self._max_event_bytes)
        events = None if self._held else self._plain(chunk)
        if events is None:
            events = self._read(chunk)
        if self._is_too_large and not events:
            raise EventTooLarge(self._max_event_bytes)
        return events

    def finish(self) -> bytes:
        """The stream has ended; returns what is left of it, which is no event."""
        return bytes(self._held)

    def _plain(self, chunk: bytes) -> list[Event] | None:
        """The events of what is nearly every chunk: whole ones of one data line each. None if it is anything else."""
        if not (chunk.startswith(b"data: ") and chunk.endswith(b"\n\n")) or b"\r" in chunk:
            return None
        lines = chunk[:-2].split(b"\n\n")
        if chunk.count(b"\n") != 2 * len(lines):
            return None
        if not all(line.startswith(b"data: ") and len(line) + 2 <= self._max_event_bytes for line in lines):
            return None
        self._last = b"\n\n"
        self._at_start = False
        if len(lines) == 1:
            return [Event(b"", lines[0][6:], chunk)]
        return [Event(b"", line[6:], line + b"\n\n") for line in lines]

    def _read(self, chunk: bytes) -> list[Event]:
        before = len(self._last)
        text = self._last + chunk
        # A CR that had to wait is looked at once more; what else is before the chunk has been.
        look_from = before - 1 if self._last.endswith(b"\n\r") else before
        events: list[Event] = []
        start = before
        for match in _EMPTY_LINE.finditer(text, look_from):
            end = match.end()
            if len(self._held) + end - start > self._max_event_bytes:
                break
            events.append(self._event(text[start:end]))
            start = end
        self._held += text[start:]
        self._last = text[-2:]
        self._is_too_large = len(self._held) > self._max_event_bytes
        return events

    def _event(self, rest: bytes) -> Event:
        raw = rest
        if self._held:
            raw = bytes(self._held) + rest
            self._held.clear()
        lines = raw.removeprefix(_BOM) if self._at_start else raw
        self._at_start = False
        name = b""
        data: list[bytes] = []
        # Of bytes, unlike of str, this breaks at CR, LF and CRLF alone.
        for line in lines.splitlines():
            if line.startswith(b"data:"):
                data.append(line[6:] if line.startswith(b" ", 5) else line[5:])
            elif line == b"data":
                data.append(b"")
            elif line.startswith(b"event:"):
                name = line[7:] if line.startswith(b" ", 6) else line[6:]
            elif line == b"event":
                name = b""
        return Event(name, b"\n".join(data), raw)


def written(data: bytes, name: bytes = b"") -> bytes:
    """One event.

    Args:
        data: its data, in UTF-8. A CR or CRLF in it reads as LF, for the format has no other line end in data.
        name: of the event, in one line; without one it is the format's default, ``message``.

    Raises:
        ValueError: ``name`` has a line end in it.
    """
    if b"\n" in name or b"\r" in name:
        raise ValueError("an event's name is one line")
    head = b"event: %b\n" % name if name else b""
    if b"\n" in data or b"\r" in data:
        return head + b"".join(b"data: %b\n" % line for line in _LINE_END.split(data)) + b"\n"
    return b"%bdata: %b\n\n" % (head, data)
