"""Server-sent events on their way: only whole ones are passed on, so that an error event can follow at any time."""

from __future__ import annotations

import re

# Far above an event with all its log probabilities. A longer one is passed on as it comes.
MAX_HELD_BYTES = 1024 * 1024

# A carriage return that came last may be half of a line end.
_EVENT_END = re.compile(rb"(?:\r\n|\n|\r(?!\n|\Z)){2}")
_END_BYTES = 4


class WholeEvents:
    """Holds back the last event of a stream until its blank line has come. The bytes stay the same."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._is_within = False

    def feed(self, chunk: bytes) -> bytes:
        """Take the next bytes; returns what can be passed on now."""
        searched = max(0, len(self._held) - _END_BYTES)
        self._held += chunk
        end = 0
        for match in _EVENT_END.finditer(self._held, searched):
            end = match.end()
        if end:
            self._is_within = False
        if len(self._held) - end > MAX_HELD_BYTES:
            end, self._is_within = len(self._held), True
        whole = bytes(self._held[:end])
        del self._held[:end]
        return whole

    def finish(self) -> bytes:
        """The stream has ended in order; returns what is left of it, which is no event."""
        return bytes(self._held)

    def followed_by(self, event: bytes) -> bytes:
        """The stream has broken: what is held will never be an event, and ``event`` takes its place as the last."""
        return b"\n\n" + event if self._is_within else event
