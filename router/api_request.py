"""A request to one of the APIs as the router needs it: its bytes, where its members are, and the media in it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pydantic import TypeAdapter, ValidationError

from rendergen.payload import (
    Document,
    MediaScanner,
    Medium,
    MemberScanner,
    ObjectEnded,
    PayloadError,
    Piece,
    Span,
    TooManyMedia,
    ValueEnded,
    ValueStarted,
    index_members,
    surely_has_no_media,
)
from rendergen.service.bodies import RequestBody
from rendergen.service.errors import BadRequest, TooLarge
from router.apis import Api
from router.media import Media, admitted

SAMPLING = "sampling_params"

# More than enough for a member that decides something; sampling_params may hold a grammar.
MAX_MEMBER_BYTES = 4 * 1024 * 1024
# Those that are decoded at once.
MAX_NAME_BYTES = 64 * 1024
# The longest spelling of a truth value, with escapes.
_MAX_TRUTH_BYTES = 64

# Smaller pieces of a body are put together.
MIN_PIECE_BYTES = 16 * 1024

# What is read without looking at the clock. Of this size, the worst that a caller can send takes two milliseconds.
_STRETCH_BYTES = 4 * 1024
_TURN_S = 0.001

_TRUTH: TypeAdapter[bool | None] = TypeAdapter(bool | None)
_LINE_ENDS_TO_SPACES = bytes.maketrans(b"\r\n", b"  ")


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """A request to one of the APIs. What of it is wrong for vLLM is left to vLLM to say.

    Attributes:
        api: which API.
        headers: what of the caller's headers goes on to pods.
        document: the caller's bytes, and where the members are.
        media: what media the conversation has: those that are to be fetched may be.
        model: the ``model`` member; None if it is absent or null.
        sampling_overrides: members of the ``sampling_params`` member, raw JSON by name: merged into the rendered ones.
    """

    api: Api
    headers: Mapping[str, str]
    document: Document
    media: Media
    model: str | None
    sampling_overrides: Mapping[str, bytes]

    @property
    def pieces(self) -> tuple[bytes, ...]:
        """The body as it came, small pieces put together; never joined, as that would hold up everyone's tokens."""
        return self.document.pieces

    @property
    def spans(self) -> Mapping[str, Span]:
        """Where the value of each top-level member is."""
        return self.document.spans

    @property
    def streams(self) -> bool:
        """A streamed answer is asked for."""
        return self.is_true("stream")

    def bytes_without_media(self) -> int:
        """How many bytes of the body are no media."""
        return self.document.size - sum(span.end - span.start for span in self.media.spans)

    def raw(self, name: str) -> bytes | None:
        """The member ``name``, raw JSON; None if it is absent.

        Raises:
            TooLarge: it is larger than ``MAX_MEMBER_BYTES``.
        """
        return _raw(self.document, name, MAX_MEMBER_BYTES)

    def given(self, name: str) -> bytes | None:
        """As :meth:`raw`, but null counts as absent."""
        value = self.raw(name)
        return None if value == b"null" else value

    def is_true(self, name: str) -> bool:
        """Whether vLLM takes the member ``name`` for true: it does so with 1 and "yes", too."""
        span = self.spans.get(name)
        if span is None or span.end - span.start > _MAX_TRUTH_BYTES:
            return False
        try:
            return _TRUTH.validate_python(json.loads(self.document.value(name))) is True
        except (ValueError, ValidationError):
            return False

    def body_with(self, values: Mapping[str, bytes]) -> tuple[Piece, ...]:
        """The body with these top-level members (raw JSON by name) set where they stand, or appended.

        Every other byte stays the same, and megabytes are not copied.
        """
        return self.document.with_members(values)

    def blanked(self) -> Iterator[Piece]:
        """The body on one line, the string of each medium empty, in pieces that are made as they are taken."""
        for piece in self.document.edited((span, b"") for span in self.media.spans):
            data = bytes(piece) if isinstance(piece, memoryview) else piece
            yield data.translate(_LINE_ENDS_TO_SPACES) if b"\n" in data or b"\r" in data else data


async def read_api_request(
    body: RequestBody, headers: Mapping[str, str], api: Api, allowed_media_domains: Sequence[str]
) -> ApiRequest:
    """Read a request, indexing its top level and looking for media while it arrives.

    Args:
        body: the request's body.
        headers: what of the caller's headers goes on to pods.
        api: which API it is for.
        allowed_media_domains: the hosts, in lower case, from which media may be fetched.

    Raises:
        BadRequest: it is no JSON object, a member is given twice, ``model`` is no string, ``sampling_params`` no
            object or one with ``n``, or a medium would have to be fetched from elsewhere.
        TooLarge: a member that decides something is too large.
        ServiceError: the body could not be read (see :meth:`RequestBody.chunks`).
    """
    turn = _Turn()
    reading = _Reading(api.conversation)
    pieces: list[bytes] = []
    small: Document | None = None
    with _bad_request(api):
        async for piece in _at_least(MIN_PIECE_BYTES, body.chunks()):
            # A piece that is not long enough is the last.
            if not pieces and len(piece) < MIN_PIECE_BYTES and surely_has_no_media(piece):
                small = Document.of(piece)
                continue
            pieces.append(piece)
            for part in reading.parts_of(piece):
                reading.feed(part)
                await turn.shared()
        document = small or reading.document(pieces)
    return ApiRequest(
        api=api,
        headers=headers,
        document=document,
        media=admitted(reading.media, allowed_media_domains, api.conversation),
        model=_model(_raw(document, "model", MAX_NAME_BYTES)),
        sampling_overrides=_without_choices(await _overrides(_raw(document, SAMPLING, MAX_MEMBER_BYTES), turn)),
    )


async def without_remote_media(
    chunks: AsyncIterator[bytes], api: Api, allowed_media_domains: Sequence[str]
) -> AsyncIterator[bytes]:
    """The body of a request, in the same chunks, each when it has been looked through for media.

    For bodies that are carried and not held. One with media that would have to be fetched from elsewhere never reaches
    its end, and so is never acted on.

    Raises:
        BadRequest: as :func:`read_api_request` does.
        ServiceError: what ``chunks`` raises.
    """
    turn = _Turn()
    reading = _Reading(api.conversation)
    admitted_media = 0
    async for chunk in chunks:
        with _bad_request(api):
            for part in reading.parts_of(chunk):
                reading.feed(part)
                await turn.shared()
        if len(reading.media) > admitted_media:
            admitted(reading.media, allowed_media_domains, api.conversation)
            admitted_media = len(reading.media)
        yield chunk


@contextmanager
def _bad_request(api: Api) -> Iterator[None]:
    try:
        yield
    except TooManyMedia as error:
        raise BadRequest(f"`{api.conversation}` cannot be used: {error}.", param=api.conversation) from error
    except PayloadError as error:
        raise BadRequest(f"The request body is not a JSON object that can be used: {error}.") from error


class _Turn:
    """Sees to it that nobody waits for long while a large body is read."""

    def __init__(self) -> None:
        self._until = time.perf_counter() + _TURN_S

    async def shared(self) -> None:
        """Let others run, if this has been running for some time."""
        if time.perf_counter() >= self._until:
            await asyncio.sleep(0)
            self._until = time.perf_counter() + _TURN_S


class _Reading:
    """The index of a body, and the media in its member ``conversation``, as far as it has come."""

    def __init__(self, conversation: str) -> None:
        self._conversation = conversation
        self._scanner = MemberScanner()
        self._media: MediaScanner | None = None
        self._spans: dict[str, Span] = {}
        self._brace = 0

    @property
    def media(self) -> Sequence[Medium]:
        """The media found."""
        return self._media.found if self._media else ()

    def parts_of(self, piece: bytes) -> Iterator[bytes]:
        """``piece`` in parts, each to be fed before the next is taken: short ones, but where a long string goes on."""
        start = 0
        while start < len(piece):
            stop = start + _STRETCH_BYTES
            if self._scanner.inside_string:
                quote = piece.find(b'"', start)
                stop = max(stop, len(piece) if quote < 0 else quote)
            yield piece if start == 0 and stop >= len(piece) else piece[start:stop]
            start = stop

    def feed(self, part: bytes) -> None:
        """Read on. Raises `PayloadError`."""
        offset = self._scanner.position
        start = 0
        for event in self._scanner.feed(part):
            match event:
                case ValueStarted(name=name) if name and name == self._conversation:
                    self._media, start = MediaScanner(), event.start - offset
                case ValueEnded():
                    self._spans[event.name] = event.span
                case ObjectEnded():
                    self._brace = event.brace
        if self._media is not None and not self._media.ended:
            self._media.feed(part, start, offset)

    def document(self, pieces: Iterable[bytes]) -> Document:
        """What was read, which came in ``pieces``. Raises `PayloadError` if it is not whole."""
        self._scanner.finish()
        return Document(tuple(pieces), self._spans, self._brace)


async def _at_least(size: int, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The same bytes with small chunks put together: a body in a million pieces would be held as a million objects."""
    held = bytearray()
    async for chunk in chunks:
        if not held and len(chunk) >= size:
            yield chunk
            continue
        held += chunk
        if len(held) >= size:
            yield bytes(held)
            held.clear()
    if held:
        yield bytes(held)


def _raw(document: Document, name: str, limit: int) -> bytes | None:
    span = document.spans.get(name)
    if span is None:
        return None
    if span.end - span.start > limit:
        raise TooLarge(f"`{name}` is over the limit of {limit} bytes.", param=name)
    return document.value(name)


def _model(raw: bytes | None) -> str | None:
    try:
        model = None if raw is None else json.loads(raw)
    except ValueError as error:
        raise BadRequest("`model` is not a valid string.", param="model") from error
    if model is not None and not isinstance(model, str):
        raise BadRequest("`model` must be the name of a model: a string.", param="model")
    return model


async def _overrides(raw: bytes | None, turn: _Turn) -> dict[str, bytes]:
    """The members of the raw JSON object ``raw``, raw, by name; none for ``null``."""
    if raw is None or raw == b"null":
        return {}
    try:
        if len(raw) < MIN_PIECE_BYTES:
            return {name: raw[span.start : span.end] for name, span in index_members(raw).items()}
        reading = _Reading("")
        for part in reading.parts_of(raw):
            reading.feed(part)
            await turn.shared()
        document = reading.document([raw])
    except PayloadError as error:
        raise BadRequest(f"`sampling_params` is not an object that can be used: {error}.", param=SAMPLING) from error
    return {name: document.value(name) for name in document.spans}


def _without_choices(overrides: dict[str, bytes]) -> dict[str, bytes]:
    """``overrides``, which may not say how many choices there are: derender has that of the request alone."""
    if "n" in overrides:
        raise BadRequest("`sampling_params` cannot have `n`: give `n` beside it.", param=SAMPLING)
    return overrides
