"""A prompt as a payload has it: its token ids, of which nothing is made until it is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from rendergen.payload import TokenIds

_SPACE = b" \t\r\n"


@dataclass(frozen=True, slots=True)
class Prompt:
    """The token ids of a prompt.

    Attributes:
        listed: those of a payload in JSON: the list as it stands there.
        packed: those of a payload in frames. Either this counts, where it is given, or ``listed``.
    """

    listed: bytes
    packed: TokenIds | None = None

    @classmethod
    def of_json(cls, token_ids: bytes) -> Self:
        """Of a raw JSON list of numbers."""
        return cls(token_ids)

    @classmethod
    def of_frames(cls, token_ids: TokenIds) -> Self:
        """Of what is in the head of a payload in frames."""
        return cls(b"", token_ids)

    @property
    def tokens(self) -> int:
        """How many there are."""
        if self.packed is not None:
            return len(self.packed)
        # Counted without taking it apart: a prompt may have a hundred thousand.
        return self.listed.count(b",") + 1 if self._numbers() else 0

    def tail(self, count: int) -> bytes:
        """The last ``count`` of them, or all if there are no more: raw JSON numbers with commas between them."""
        if self.packed is not None:
            return b",".join(b"%d" % token for token in self.packed.last(count))
        return b",".join(self._numbers().rsplit(b",", count)[-count:]) if count else b""

    def ids(self) -> bytes:
        """All of them, a raw JSON list."""
        if self.packed is not None:
            return b"[%b]" % self.tail(len(self.packed))
        return self.listed

    def _numbers(self) -> bytes:
        return self.listed.strip(_SPACE)[1:-1].strip(_SPACE)
