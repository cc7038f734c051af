"""A JSON object of megabytes, held in the pieces in which it came, and edited without copying them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate

from rendergen.payload.members import Piece, index_object, written_members
from rendergen.payload.scanner import Span

_GATHERED_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True)
class Document:
    """An object whose top level has been indexed.

    Attributes:
        pieces: its bytes, never joined.
        spans: where the value of each member is, by decoded key, in the order of the document.
        brace: where its closing brace is.
    """

    pieces: tuple[bytes, ...]
    spans: Mapping[str, Span]
    brace: int
    _starts: tuple[int, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_starts", (0, *accumulate(map(len, self.pieces))))

    @classmethod
    def of(cls, data: bytes) -> Document:
        """The document that is all in one piece, indexed, which is quick for small ones.

        Raises what `index_members` does.
        """
        spans, brace = index_object(data)
        return cls((data,), spans, brace)

    @property
    def size(self) -> int:
        """How many bytes it has."""
        return self._starts[-1]

    def value(self, name: str) -> bytes:
        """A copy of the raw value of the member ``name``, which must be there."""
        span = self.spans[name]
        return b"".join(self._between(span.start, span.end))

    def edited(self, edits: Iterable[tuple[Span, bytes]]) -> Iterator[Piece]:
        """The document with other bytes in the place of each span, in pieces to be written in order.

        Args:
            edits: the spans in order, which may be empty but do not overlap, and what stands there instead.
        """
        return _gathered(self._edited(edits))

    def with_members(self, values: Mapping[str, bytes]) -> tuple[Piece, ...]:
        """The document with the members ``values`` (raw JSON by decoded key) set, in pieces to be written in order.

        A member that is present keeps its place and key; the others are appended right before the closing brace, in
        the order of ``values``, which are not checked. All other bytes stay the same, and megabytes are not copied.
        """
        edits = [(span, values[name]) for name, span in self.spans.items() if name in values]
        added = {name: value for name, value in values.items() if name not in self.spans}
        end = Span(self.brace, self.brace)
        return tuple(self.edited([*edits, (end, written_members(added, after_others=bool(self.spans)))]))

    def _edited(self, edits: Iterable[tuple[Span, bytes]]) -> Iterator[Piece]:
        kept_from = 0
        for span, instead in edits:
            yield from self._between(kept_from, span.start)
            yield instead
            kept_from = span.end
        yield from self._between(kept_from, self.size)

    def _between(self, start: int, end: int) -> Iterator[Piece]:
        """The bytes from ``start`` to before ``end``: whole pieces as they are, and views of what was cut."""
        number = bisect_right(self._starts, start) - 1
        while start < end:
            piece, first = self.pieces[number], self._starts[number]
            stop = min(end, first + len(piece))
            whole = stop - start == len(piece)
            yield piece if whole else memoryview(piece)[start - first : stop - first]
            start, number = stop, number + 1


def _gathered(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """The same bytes with small pieces put together, so that ten thousand edits are not twenty thousand writes."""
    held = bytearray()
    for piece in pieces:
        if len(piece) >= _GATHERED_BYTES:
            if held:
                yield bytes(held)
                held.clear()
            yield piece
        else:
            held += piece
            if len(held) >= _GATHERED_BYTES:
                yield bytes(held)
                held.clear()
    if held:
        yield bytes(held)
