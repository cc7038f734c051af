"""The index of an object's members, made chunk by chunk."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass

from rendergen.payload.errors import DuplicateMember, LimitExceeded, MalformedJson, TruncatedJson
from rendergen.payload.limits import DEFAULT_LIMITS, Limits
from rendergen.payload.strings import StringScanner
from rendergen.payload.values import ValueScanner

_SPACE = re.compile(rb"[ \t\n\r]*")
_LAST_SPACE = 0x20
# A whole member with what follows it, where key and value are short and plain: what most members are. One match is
# quicker than the steps it takes instead, and what it does not match takes the steps. Nothing in it is tried twice.
_PLAIN_MEMBER = re.compile(
    rb'[ \t\n\r]*+"([ !#-\[\]-~]{0,64}+)"[ \t\n\r]*+:[ \t\n\r]*+'
    rb'("[ !#-\[\]-~]{0,256}+"|true|false|null|-?+(?:0|[1-9][0-9]{0,17}+)(?:\.[0-9]{1,20}+)?+)[ \t\n\r]*+([,}])'
)
# The longest key and number among them.
_PLAIN_BYTES = 64
_QUOTE = ord('"')
_COLON = ord(":")
_COMMA = ord(",")
_OPENING_BRACE = ord("{")
_CLOSING_BRACE = ord("}")


@dataclass(frozen=True, slots=True)
class Span:
    """The bytes of a value, from `start` to before `end`, without the whitespace around it."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class ValueStarted:
    """The value of the top-level member `name` starts at `start`."""

    name: str
    start: int


@dataclass(frozen=True, slots=True)
class ValueEnded:
    """The value of the top-level member `name` has been passed."""

    name: str
    span: Span


@dataclass(frozen=True, slots=True)
class ObjectEnded:
    """The top-level object closes with the brace at `brace`, after `members` members."""

    brace: int
    members: int


Event = ValueStarted | ValueEnded | ObjectEnded


class MemberScanner:
    """Finds the members of the top-level object of a document that arrives in chunks.

    All positions are bytes from the start of the document. Memory is constant: values are not kept, and the keys
    seen (to find duplicates), the brackets open and the key or number being read are within `limits`. Time is linear
    in the bytes, however they are cut.

    The top level is checked in full: one object, keys that `json` can decode, each once, colons, commas, whitespace,
    nothing else after the closing brace. A byte order mark is refused. Of values only the structure is checked: see
    `ValueScanner`. A document that `json.loads` accepts is accepted, duplicates and limits aside, and means the same.

    Raises `MalformedJson`, `DuplicateMember` or `LimitExceeded`, after which the scanner takes no more.
    """

    __slots__ = (
        "_base",
        "_events",
        "_key",
        "_limits",
        "_name",
        "_names",
        "_start",
        "_step",
        "_string",
        "_takes_plain",
        "_value",
    )

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        self._limits = limits
        self._takes_plain = min(limits.key_bytes, limits.scalar_bytes) >= _PLAIN_BYTES
        self._base = 0
        self._events: list[Event] = []
        self._step: _Step = MemberScanner._before_object
        self._string = StringScanner()
        self._value = ValueScanner(limits)
        self._key = bytearray()
        self._names: set[str] = set()
        self._name = ""
        self._start = 0

    @property
    def position(self) -> int:
        """How many bytes of the document have been read."""
        return self._base

    @property
    def inside_string(self) -> bool:
        """The next byte is inside a string that is, or is in, a member's value: all up to the next quote is."""
        return self._value.inside_string

    def feed(self, chunk: bytes | bytearray) -> list[Event]:
        """Read the next bytes of the document, and return what was found in them, in order."""
        # Held apart while reading, so that an error leaves the scanner refusing rather than halfway.
        step, self._step = self._step, MemberScanner._refuse
        events: list[Event] = []
        self._events = events
        pos, end = 0, len(chunk)
        while pos < end:
            pos, step = step(self, chunk, pos)
        self._base += end
        self._step = step
        return events

    def finish(self) -> None:
        """The document has ended. Raises `TruncatedJson` if its object has not."""
        if self._step is not MemberScanner._after_object:
            raise TruncatedJson(self._base)

    # Each step reads from `pos`, and returns where it stopped and the step that goes on from there.

    def _before_object(self, chunk: bytes | bytearray, pos: int) -> _Progress:
        pos = skip_space(chunk, pos)
        if pos == len(chunk):
            return pos, MemberScanner._before_object
        if chunk[pos] != _OPENING_BRACE:
            raise MalformedJson(self._base + pos, "the top level is not an object")
        return pos + 1, MemberScanner._before_first_key

    def _before_first_key(self, chunk: bytes | bytearray, pos: int) -> _Progress:
        pos = skip_space(chunk, pos)
        if pos == len(chunk):
            return pos, MemberScanner._before_first_key
        if chunk[pos] == _CLOSING_BRACE:
            return self._end_object(pos)
        return self._before_key(chunk, pos)

    def _before_key(self, chunk: bytes | bytearray, pos: int) -> _Progress:
        if self._takes_plain and (member := _PLAIN_MEMBER.match(chunk, pos)):
            return self._plain_member(member)
        pos = skip_space(chunk, pos)
        if pos == len(chunk):
            return pos, MemberScanner._before_key
        if chunk[pos] != _QUOTE:
            raise MalformedJson(self._base + pos, "a key should start here")
        if len(self._names) >= self._limits.members:
            raise LimitExceeded("members of the object", self._limits.members)
        self._key.clear()
        self._string.open(escaped=False)
        return pos + 1, MemberScanner._in_key

    def _plain_member(self, member: re.Match[bytes]) -> _Progress:
        if len(self._names) >= self._limits.members:
            raise LimitExceeded("members of the object", self._limits.members)
        self._name = member[1].decode("ascii")
        if self._name in self._names:
            raise DuplicateMember(self._name)
        self._names.add(self._name)
        span = Span(self._base + member.start(2), self._base + member.end(2))
        self._events += (ValueStarted(self._name, span.start), ValueEnded(self._name, span))
        if member[3] == b"}":
            return self._end_object(member.start(3))
        return member.end(), MemberScanner._before_key

    def _in_key(self, chunk: bytes | bytearray, pos: int) -> _Progress:
        stop = self._string.advance(chunk, pos)
        most = self._limits.key_bytes
        if len(self._key) + stop - pos > most + self._string.closed:
            raise LimitExceeded("bytes of a key", most)
        self._key += chunk[pos:stop]
        if not self._string.closed:
            return stop, MemberScanner._in_key
        self._name = self._decoded_key(self._base + stop)
        if self._name in self._names:
            raise DuplicateMember(self._name)
        self._names.add(self._name)
        return stop, MemberScanner._before_colon

    def _decoded_key(self, end: int) -> str:
        plain = bytes(self._key[:-1])
        if b"\\" not in plain and plain.isascii() and (text := plain.decode("ascii")).isprintable():
            return text
        try:
            # As `json.loads` decodes bytes, but never as UTF-16, which it would guess from zero bytes.
            name = json.loads('"' + self._key.decode("utf-8", "surrogatepass"))
        except ValueError as error:
            raise MalformedJson(end - len(self._key) - 1, "a key is not a valid string") from error
        assert isinstance(name, str)
        return name

    def _before_colon(self, chunk: bytes | bytearray, pos: int) -> _Progress:
        pos = skip_space(chunk, pos)
        if pos == len(chunk):
            return pos, MemberScanner._before_colon
        if chunk[pos] != _COLON:
            raise MalformedJson(self._base + pos, "a colon should follow the key")
        return pos + 1, MemberScanner._before_value

    def _before_value(self, chunk: bytes | bytearray, pos: int) -> _Progress:
        pos = skip_space(chunk, pos)
        if pos == len(chunk):
            return pos, MemberScanner._before_value
        self._start = self._base + pos
        pos = self._value.begin(chunk, pos, self._base)
        self._events.append(ValueStarted(self._name, self._start))
        return pos, MemberScanner._in_value

    def _in_value(self, chunk: bytes | bytearray, pos: int) -> _Progress:
        pos = self._value.advance(chunk, pos, self._base)
        if not self._value.ended:
            return pos, MemberScanner._in_value
        self._events.append(ValueEnded(self._name, Span(self._start, self._base + pos)))
        return pos, MemberScanner._after_value

    def _after_value(self, chunk: bytes | bytearray, pos: int) -> _Progress:
        pos = skip_space(chunk, pos)
        if pos == len(chunk):
            return pos, MemberScanner._after_value
        if chunk[pos] == _COMMA:
            return pos + 1, MemberScanner._before_key
        if chunk[pos] == _CLOSING_BRACE:
            return self._end_object(pos)
        raise MalformedJson(self._base + pos, "a comma or the closing brace should follow the value")

    def _end_object(self, pos: int) -> _Progress:
        self._events.append(ObjectEnded(self._base + pos, len(self._names)))
        return pos + 1, MemberScanner._after_object

    def _after_object(self, chunk: bytes | bytearray, pos: int) -> _Progress:
        pos = skip_space(chunk, pos)
        if pos < len(chunk):
            raise MalformedJson(self._base + pos, "something follows the document")
        return pos, MemberScanner._after_object

    def _refuse(self, chunk: bytes | bytearray, pos: int) -> _Progress:
        raise MalformedJson(self._base, "bytes after an error in the document")


_Progress = tuple[int, "_Step"]
_Step = Callable[[MemberScanner, bytes | bytearray, int], _Progress]


def skip_space(data: bytes | bytearray, pos: int) -> int:
    """The position of the first byte from `pos` on that is not JSON whitespace, or the end of `data`."""
    if pos < len(data) and data[pos] > _LAST_SPACE:
        return pos
    run = _SPACE.match(data, pos)
    return run.end() if run else pos
