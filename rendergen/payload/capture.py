"""Keeping the bytes of a few members while a document passes."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from rendergen.payload.errors import MemberTooLarge
from rendergen.payload.scanner import Event, ValueEnded, ValueStarted


class MemberCapture:
    """Collects the raw values of the top-level members `names`, as a `MemberScanner` finds them.

    Holds at most `limit` bytes over all of them, and raises `MemberTooLarge` on the member that would take it beyond.
    """

    def __init__(self, names: Collection[str], limit: int) -> None:
        self.captured: dict[str, bytes] = {}
        """The values that have ended."""
        self._names = frozenset(names)
        self._limit = limit
        self._free = limit
        self._open: str | None = None
        self._held = bytearray()

    def feed(self, chunk: bytes, offset: int, events: Iterable[Event]) -> None:
        """Take what is wanted of `chunk`, which is at `offset` in the document and in which `events` were found."""
        start = offset
        for event in events:
            if isinstance(event, ValueStarted) and event.name in self._names:
                self._open, start = event.name, event.start
            elif isinstance(event, ValueEnded) and event.name == self._open:
                self._hold(event.name, chunk[start - offset : event.span.end - offset])
                self.captured[event.name] = bytes(self._held)
                self._open, self._held = None, bytearray()
        if self._open is not None:
            self._hold(self._open, chunk[start - offset :])

    def _hold(self, name: str, part: bytes) -> None:
        self._free -= len(part)
        if self._free < 0:
            raise MemberTooLarge(name, self._limit)
        self._held += part
