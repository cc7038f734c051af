"""Finding where a JSON value ends."""

import re
from collections.abc import Callable

from rendergen.payload.errors import LimitExceeded, MalformedJson
from rendergen.payload.limits import Limits
from rendergen.payload.strings import FIRST_WINDOW, LARGEST_WINDOW, StringScanner, without_escapes

_QUOTE = ord('"')
_OPENING = b"[{"
_TO_CLOSING = 2  # `]` follows `[`, and `}` follows `{`, by two in ASCII
_SCALAR_START = b"-0123456789tfnNI"
_SCALAR_RUN = re.compile(rb"[-+.0-9A-Za-z]*")
_SCALAR = re.compile(
    rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|true|false|null|NaN|-?Infinity",
)
_NOT_BRACKETS = bytes(sorted(set(range(256)) - set(b"[]{}")))


class ValueScanner:
    """Passes over one value, given chunk by chunk, and keeps none of it.

    Checked: strings end; brackets close in the order and by the kind they were opened, at most `limits.depth` deep;
    no backslash stands outside a string; a value that is a number or literal is written as Python's `json` reads it
    (NaN, Infinity and -Infinity included). Not checked: what is inside strings, and, inside lists and objects, the
    commas, colons, keys, numbers and literals.
    """

    __slots__ = ("_closing", "_in_string", "_limits", "_scalar", "_step", "_string", "_window", "ended")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._string = StringScanner()
        self._step: _Step = ValueScanner._pass_scalar
        self._closing: list[int] = []
        self._in_string = False
        self._scalar = bytearray()
        self._window = FIRST_WINDOW
        self.ended = False

    @property
    def inside_string(self) -> bool:
        """The next byte is inside a string."""
        nested = self._step is ValueScanner._pass_nested
        return not self.ended and (self._in_string if nested else self._step is ValueScanner._pass_string)

    def begin(self, data: bytes | bytearray, pos: int, base: int) -> int:
        """Begin with the value whose first byte is at `pos`; `base` is the offset of `data` in the document."""
        first = data[pos]
        self.ended = False
        if first == _QUOTE:
            self._string.open(escaped=False)
            self._step = ValueScanner._pass_string
            return pos + 1
        if first in _OPENING:
            self._closing = [first + _TO_CLOSING]
            self._in_string = False
            self._window = FIRST_WINDOW
            self._step = ValueScanner._pass_nested
            return pos + 1
        if first in _SCALAR_START:
            self._scalar.clear()
            self._step = ValueScanner._pass_scalar
            return pos
        raise MalformedJson(base + pos, "a value should start here")

    def advance(self, data: bytes | bytearray, pos: int, base: int) -> int:
        """Read from `pos` on. Returns the position after the value if it `ended`, or else the end of `data`."""
        return self._step(self, data, pos, base)

    def _pass_string(self, data: bytes | bytearray, pos: int, base: int) -> int:
        pos = self._string.advance(data, pos)
        self.ended = self._string.closed
        return pos

    def _pass_scalar(self, data: bytes | bytearray, pos: int, base: int) -> int:
        run = _SCALAR_RUN.match(data, pos)
        stop = run.end() if run else pos
        if len(self._scalar) + stop - pos > self._limits.scalar_bytes:
            raise LimitExceeded("bytes of a number", self._limits.scalar_bytes)
        self._scalar += data[pos:stop]
        if stop < len(data):
            self._end_scalar(base + stop)
        return stop

    def _end_scalar(self, offset: int) -> None:
        if not _SCALAR.fullmatch(self._scalar):
            raise MalformedJson(offset - len(self._scalar), "neither a number nor true, false, null")
        self.ended = True

    def _pass_nested(self, data: bytes | bytearray, pos: int, base: int) -> int:
        """The rest of a list or object, in windows that grow.

        A window is read by a few calls that each cost about a nanosecond a byte, and only brackets are looked at
        one by one. Growing keeps what is read beyond the end of the value below what was read of it.
        """
        while pos < len(data):
            if self._in_string:
                pos = self._string.advance(data, pos)
                self._in_string = not self._string.closed
                continue
            text = without_escapes(bytes(data[pos : pos + self._window]))
            parts = text.split(b'"')
            outside = b"".join(parts[::2])
            last = self._balance(outside.translate(None, _NOT_BRACKETS), parts, base + pos)
            after = len(text) if last is None else _bracket_position(parts, last) + 1
            if b"\\" in text:
                _refuse_backslash(parts, after, base + pos)
            if last is not None:
                self.ended = True
                return pos + after
            pos += len(text)
            self._in_string = len(parts) % 2 == 0
            self._string.open(escaped=self._in_string and text.endswith(b"\\"))
            self._window = min(2 * self._window, LARGEST_WINDOW)
        return pos

    def _balance(self, brackets: bytes, parts: list[bytes], offset: int) -> int | None:
        """Close what was opened. Returns the index of the bracket that closes the value, if it is among these."""
        closing, deepest = self._closing, self._limits.depth
        for index, bracket in enumerate(brackets):
            if bracket in _OPENING:
                if len(closing) >= deepest:
                    raise LimitExceeded("lists and objects inside one another", deepest)
                closing.append(bracket + _TO_CLOSING)
            elif closing.pop() != bracket:
                raise MalformedJson(offset + _bracket_position(parts, index), "a bracket of the wrong kind")
            elif not closing:
                return index
        return None


_Step = Callable[[ValueScanner, bytes | bytearray, int, int], int]


def _bracket_position(parts: list[bytes], index: int) -> int:
    """Where bracket number `index` outside strings is in the text that was split at its quotes."""
    position = 0
    for number, part in enumerate(parts):
        if number % 2 == 0:
            count = len(part.translate(None, _NOT_BRACKETS))
            if index < count:
                return position + _bracket_in(part, index)
            index -= count
        position += len(part) + len(b'"')
    raise IndexError(index)


def _bracket_in(part: bytes, index: int) -> int:
    """Where bracket number `index` is in `part`, found by halving: time is linear in bytes, not in brackets."""
    low, high = 0, len(part)
    while high - low > 1:
        middle = (low + high) // 2
        count = len(part[low:middle].translate(None, _NOT_BRACKETS))
        if index < count:
            high = middle
        else:
            index -= count
            low = middle
    return low


def _refuse_backslash(parts: list[bytes], end: int, offset: int) -> None:
    """Raise if a backslash stands outside strings in the first `end` bytes of the text that was split at its quotes."""
    position = 0
    for number, part in enumerate(parts):
        backslash = part.find(b"\\") if number % 2 == 0 else -1
        if 0 <= backslash < end - position:
            raise MalformedJson(offset + position + backslash, "a backslash outside a string")
        position += len(part) + len(b'"')
