"""Setting the sampling params of a payload in frames while it passes. The format: docs/payload-format.md."""

from __future__ import annotations

from enum import Enum, auto

from rendergen.payload.errors import LimitExceeded, MalformedJson, MemberTooLarge, SeveralPayloads
from rendergen.payload.frames import (
    LENGTH,
    MAX_HEAD_BYTES,
    MAX_PARAMS_BYTES,
    PREAMBLE,
    MalformedFrames,
    Preamble,
    padded,
    tail,
)
from rendergen.payload.members import Piece
from rendergen.payload.sampling_params import SAMPLING_PARAMS, SamplingParamsEdit, merge_sampling_params


class _Section(Enum):
    """The sections of a payload, in order."""

    PREAMBLE = auto()
    HEAD = auto()
    PADDING = auto()
    TENSORS = auto()
    PARAMS_LENGTH = auto()
    PARAMS = auto()
    END = auto()


# What is not given out before it is whole.
_HELD_BACK = frozenset({_Section.PREAMBLE, _Section.PARAMS_LENGTH, _Section.PARAMS})


class FrameSplicer:
    """Takes a payload in chunks, and gives out the same bytes but for the tail: the sampling params and their length.

    Bytes are given out as soon as they are read, as views of the chunk they came in. Held are the preamble until it is
    whole, a copy of the head (up to `max_head_bytes`), and the tail (up to `max_sampling_params_bytes`). The tensors
    are counted, and never looked at.

    With `grow_by`, at least the edit's `most_growth()`, the payload grows by exactly so many bytes, so that its length
    is known before its sampling params have come: they get spaces before their closing brace.

    An answer of several payloads (completions of several prompts) is refused before anything of it is given out: each
    would be a request of its own.

    Raises `MalformedFrames` for what is no payload, or one of another version, or goes on after its end;
    `SeveralPayloads`; `LimitExceeded` beyond the limits; and for the sampling params `NotAnObject` or what
    `index_members` does, with offsets in the payload. What was given out before an error is the beginning of a payload
    that must not be completed.
    """

    def __init__(
        self,
        edit: SamplingParamsEdit,
        *,
        max_head_bytes: int = MAX_HEAD_BYTES,
        max_sampling_params_bytes: int = MAX_PARAMS_BYTES,
        grow_by: int | None = None,
    ) -> None:
        self._edit = edit
        self._grow_by = grow_by
        self._max_head_bytes = max_head_bytes
        self._max_params_bytes = max_sampling_params_bytes
        self._section = _Section.PREAMBLE
        self._left = PREAMBLE.size
        self._position = 0
        self._held = bytearray()
        self._preamble: Preamble | None = None
        self.head: bytes | None = None
        """The head, a msgpack map as received, once it has passed."""
        self.sampling_params: bytes | None = None
        """The raw object given out as sampling params, once it has been."""

    def feed(self, chunk: bytes) -> list[Piece]:
        """Take the next bytes of the payload. Returns what can be sent on now, in order."""
        if self._section is _Section.TENSORS and len(chunk) < self._left:
            self._left -= len(chunk)
            self._position += len(chunk)
            return [chunk] if chunk else []
        pieces: list[Piece] = []
        rest = memoryview(chunk)
        while rest or not self._left:
            if self._section is _Section.END:
                if rest:
                    raise MalformedFrames(f"something follows the payload, after its {self._position} bytes")
                break
            part, rest = rest[: self._left], rest[self._left :]
            self._left -= len(part)
            self._position += len(part)
            if self._section is not _Section.TENSORS:
                self._held += part
            if self._section not in _HELD_BACK:
                pieces.append(part)
            if not self._left:
                pieces.append(self._end_section())
        return [piece for piece in pieces if piece]

    def finish(self) -> list[Piece]:
        """The payload has ended. Raises `MalformedFrames` if it has come only in part."""
        if self._section is not _Section.END:
            raise MalformedFrames(f"the payload ends too early, after {self._position} bytes")
        return []

    def _end_section(self) -> bytes:
        """The section has come as a whole: begin the next. Returns what was held back of it and can go out now."""
        held = bytes(self._held)
        self._held.clear()
        match self._section:
            case _Section.PREAMBLE:
                self._preamble = self._read_preamble(held)
                self._begin(_Section.HEAD, self._preamble.head_bytes)
                return held
            case _Section.HEAD:
                self.head = held
                self._begin(_Section.PADDING, padded(self._position) - self._position)
            case _Section.PADDING:
                assert self._preamble is not None
                if any(held):
                    raise MalformedFrames("the head's padding is not all zeros")
                self._begin(_Section.TENSORS, self._preamble.tensor_bytes)
            case _Section.TENSORS:
                self._begin(_Section.PARAMS_LENGTH, LENGTH.size)
            case _Section.PARAMS_LENGTH:
                [size] = LENGTH.unpack(held)
                if size > self._max_params_bytes:
                    raise MemberTooLarge(SAMPLING_PARAMS, self._max_params_bytes)
                self._begin(_Section.PARAMS, size)
            case _Section.PARAMS:
                params = self._merged(held)
                self._begin(_Section.END, 0)
                return tail(params)
        return b""

    def _begin(self, section: _Section, size: int) -> None:
        self._section, self._left = section, size

    def _read_preamble(self, data: bytes) -> Preamble:
        preamble = Preamble.read(data)
        if preamble.count > 1:
            raise SeveralPayloads(preamble.count)
        if preamble.head_bytes > self._max_head_bytes:
            raise LimitExceeded("bytes of the head", self._max_head_bytes)
        return preamble

    def _merged(self, rendered: bytes) -> bytes:
        try:
            params = merge_sampling_params(rendered, self._edit)
        except MalformedJson as error:
            # As bytes of the payload, like every other offset.
            raise MalformedJson(self._position - len(rendered) + error.offset, error.reason) from error
        self.sampling_params = params
        if self._grow_by is None:
            return params
        return params[:-1].ljust(self._grow_by + len(rendered) - 1) + params[-1:]
