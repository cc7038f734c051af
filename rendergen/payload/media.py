"""Finding the media in a conversation, chunk by chunk.

vLLM 0.32 reads media out of content parts of three APIs, by a part's type, by its members where it has no type, and by
its members whatever its type where it has a ``uuid``. Here a string is a medium by *where* it stands, whatever types
say: what vLLM could take for one in any of these ways is one. Text, tool calls and everything else may hold any URL.
"""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from rendergen.payload.errors import LimitExceeded, TooManyMedia
from rendergen.payload.limits import DEFAULT_LIMITS, Limits
from rendergen.payload.media_urls import HEAD_BYTES, Location, located
from rendergen.payload.scanner import Span
from rendergen.payload.strings import StringScanner
from rendergen.payload.values import ValueScanner

MAX_MEDIA = 10_000

_QUOTE = ord('"')
_COMMA = ord(",")
_OPENING = b"[{"
_CLOSING = b"]}"
_BRACE = ord("{")
_TO_TOKEN_IN_OBJECT = re.compile(rb'[^"\[\]{},]*+')
_TO_TOKEN_IN_LIST = re.compile(rb'[^"\[\]{}]*+')
_PLAIN_KEY = re.compile(rb'([^"\\]{0,64}+)"')
_PLAIN_TEXT = re.compile(rb'[^"\\]{0,256}+"')
# No key that matters has more than 12 characters, of at most 6 bytes each.
_KEY_BYTES = 12 * 6


class _Holds(enum.Enum):
    """What a string is, where it stands."""

    TEXT = enum.auto()
    URL = enum.auto()
    BASE64 = enum.auto()
    HANDLE = enum.auto()
    """Given to an image processor as it is, which may fetch it from anywhere."""


@dataclass(frozen=True, slots=True, eq=False)
class _Place:
    """A place in the conversation: what a string there is, and which place each member of an object there is.

    The elements of a list are where the list is.
    """

    string: _Holds = _Holds.TEXT
    members: dict[bytes, _Place] = field(default_factory=dict)
    others: _Place | None = None
    """The members that are not named; None where nothing under them matters."""

    def member(self, key: bytes) -> _Place | None:
        """The place of the member whose raw key is ``key``; None if nothing in it matters."""
        place = self.members.get(key)
        if place is None and b"\\" in key:
            place = self.members.get(_unescaped(key))
        return place or self.others


def _unescaped(key: bytes) -> bytes:
    try:
        decoded = json.loads('"' + key.decode("utf-8", "replace") + '"')
    except ValueError:
        return key
    assert isinstance(decoded, str)
    return decoded.encode("utf-8", "replace")


_base64 = _Place(_Holds.BASE64)
_url = _Place(_Holds.URL)
_url.members[b"url"] = _url
_handle = _Place(_Holds.HANDLE, others=_Place(_Holds.HANDLE))
_embeds = _Place(_Holds.BASE64, others=_base64)
_source = _Place(members={b"url": _url, b"data": _base64})  # Anthropic's
_content = _Place(
    members={
        b"image_url": _url,
        b"audio_url": _url,
        b"video_url": _url,
        b"image_pil": _handle,
        b"input_audio": _Place(members={b"data": _base64}),
        b"image_embeds": _embeds,
        b"audio_embeds": _embeds,
        b"video_embeds": _embeds,
        b"source": _source,
    }
)
# A message and a content part are one kind of place: parts are in a message's `content`, or in the `output` of a
# function (responses), and again in the `content` of a tool's result (messages).
_content.members.update({b"content": _content, b"output": _content})

_KEY_ENDINGS = (b'_url"', b'_pil"', b'_audio"', b'_embeds"', b'source"')


def surely_has_no_media(document: bytes) -> bool:
    r"""Whether no key that leads to a medium stands in ``document``; by ``\u`` alone could one be written otherwise."""
    return rb"\u" not in document and not any(ending in document for ending in _KEY_ENDINGS)


@dataclass(frozen=True, slots=True)
class Medium:
    """A string, not empty, that holds or names a medium.

    Attributes:
        span: the bytes between its quotes, from the start of the document.
        inline: the medium is in the string itself. Else it is somewhere else, whatever the scheme.
        host: where it would be fetched from, in lower case, if the URL is http or https and as plain as can be. None
            for all others, which no list of hosts should allow.
    """

    span: Span
    inline: bool
    host: str | None = None


class MediaScanner:
    """Finds the media in a conversation that arrives in chunks: the value of one member, without blanks before it.

    A document that `json.loads` accepts is judged as what it makes of it, but that media under a key that is given
    twice are found under both. Of others nothing is promised, but that the scan ends, where the brackets do.

    Memory is constant but for what was found: strings are not kept, apart from the beginning of a URL. Long strings
    are crossed by one search, what cannot hold media is passed as `ValueScanner` does, and the rest takes about half
    a microsecond a token.

    Raises `LimitExceeded`, of which `TooManyMedia` is one.
    """

    __slots__ = (
        "_base",
        "_held",
        "_limits",
        "_max_media",
        "_object",
        "_place",
        "_skipped",
        "_stack",
        "_start",
        "_step",
        "_string",
        "_value",
        "ended",
        "found",
    )

    def __init__(self, limits: Limits = DEFAULT_LIMITS, max_media: int = MAX_MEDIA) -> None:
        self.found: list[Medium] = []
        self.ended = False
        """The conversation has been passed."""
        self._limits = limits
        self._max_media = max_media
        self._step: _Step = MediaScanner._before_conversation
        self._string = StringScanner()
        self._skipped = ValueScanner(limits)
        self._held = bytearray()
        self._base = 0
        self._start = 0
        # The innermost open bracket: its place, whether it is an object, and the place of the value that comes next.
        # An object has none between a comma and the next key. The outermost is no bracket, but what the value is in.
        self._place = _content
        self._object = False
        self._value: _Place | None = None
        self._stack: list[tuple[_Place, bool]] = []

    def feed(self, data: bytes, start: int, base: int) -> None:
        """Read `data` from `start` on, as far as the conversation goes; `base` is its offset in the document."""
        self._base = base
        pos, end = start, len(data)
        while pos < end and not self.ended:
            pos = self._step(self, data, pos)

    def _before_conversation(self, data: bytes, pos: int) -> int:
        self._step = MediaScanner._in_brackets
        # Plain text, or nothing that vLLM takes.
        self.ended = data[pos] not in _OPENING
        return pos

    def _in_brackets(self, data: bytes, pos: int) -> int:
        while True:
            rest = (_TO_TOKEN_IN_OBJECT if self._object else _TO_TOKEN_IN_LIST).match(data, pos)
            pos = rest.end() if rest else pos
            if pos == len(data):
                return pos
            token = data[pos]
            if token == _COMMA:
                self._value = None
                pos += 1
            elif token == _QUOTE and self._object and self._value is None:
                key = _PLAIN_KEY.match(data, pos + 1)
                if key is None:
                    return self._begin_string(pos, MediaScanner._in_key)
                self._value = self._place.member(key[1]) or _nothing
                pos = key.end()
            elif token == _QUOTE:
                place = self._value if self._object else self._place
                if place is None or place.string is _Holds.TEXT:
                    text = _PLAIN_TEXT.match(data, pos + 1)
                    if text is None:
                        return self._begin_string(pos, MediaScanner._in_text)
                    pos = text.end()
                else:
                    return self._begin_string(pos, MediaScanner._in_medium)
            elif token in _CLOSING:
                self._place, self._object = self._stack.pop()
                self._value = _nothing
                pos += 1
                if not self._stack:
                    self.ended = True
                    return pos
            else:
                place = self._value if self._object else self._place
                if place is None or place is _nothing:
                    self._step = MediaScanner._in_skipped
                    return self._skipped.begin(data, pos, self._base)
                self._open(place, token == _BRACE)
                pos += 1

    def _open(self, place: _Place, is_object: bool) -> None:
        if len(self._stack) >= self._limits.depth:
            raise LimitExceeded("lists and objects inside one another", self._limits.depth)
        self._stack.append((self._place, self._object))
        self._place, self._object, self._value = place, is_object, None

    def _in_skipped(self, data: bytes, pos: int) -> int:
        pos = self._skipped.advance(data, pos, self._base)
        if self._skipped.ended:
            self._step = MediaScanner._in_brackets
        return pos

    def _begin_string(self, quote: int, step: _Step) -> int:
        self._string.open(escaped=False)
        self._held.clear()
        self._step = step
        self._start = self._base + quote + 1
        return quote + 1

    def _in_text(self, data: bytes, pos: int) -> int:
        pos = self._string.advance(data, pos)
        if self._string.closed:
            self._step = MediaScanner._in_brackets
        return pos

    def _in_key(self, data: bytes, pos: int) -> int:
        pos = self._held_until_closed(data, pos, _KEY_BYTES)
        if self._string.closed:
            length = self._base + pos - 1 - self._start
            key = bytes(self._held[:length]) if length <= _KEY_BYTES else b""
            self._value = self._place.member(key) or _nothing
        return pos

    def _in_medium(self, data: bytes, pos: int) -> int:
        pos = self._held_until_closed(data, pos, HEAD_BYTES)
        if self._string.closed:
            self._end_medium(Span(self._start, self._base + pos - 1))
        return pos

    def _held_until_closed(self, data: bytes, pos: int, most: int) -> int:
        after = self._in_text(data, pos)
        self._held += data[pos : min(after, pos + most - len(self._held))]
        return after

    def _end_medium(self, span: Span) -> None:
        length = span.end - span.start
        if not length:
            return
        if len(self.found) >= self._max_media:
            raise TooManyMedia(self._max_media)
        place = self._value if self._object else self._place
        assert place is not None
        match place.string:
            case _Holds.BASE64:
                location = Location(inline=True)
            case _Holds.URL:
                location = located(bytes(self._held[:length]), whole=length <= HEAD_BYTES)
            case _:
                location = Location(inline=False)
        self.found.append(Medium(span, location.inline, location.host))


_nothing = _Place()
_Step = Callable[[MediaScanner, bytes, int], int]
