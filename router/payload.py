"""The payload on its way from a render pod to a generate pod, in either encoding: set in passing, never held."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from typing import Protocol

from rendergen.payload import (
    FrameSplicer,
    MalformedJson,
    PayloadError,
    Piece,
    PromptOutline,
    SamplingParamsEdit,
    SamplingParamsSplicer,
    read_prompt,
)
from rendergen.payload.frames import (
    MEDIA_TYPE as FRAMES_MEDIA_TYPE,
)
from rendergen.service.errors import PodFailed
from rendergen.service.pods import PodAnswer, PodClient
from router.prompt import Prompt

# What `max_tokens` means where the rendered sampling params lack it: render leaves out what equals vLLM's default, and
# generate would take the absence for all that is left of the context.
VLLM_DEFAULT_MAX_TOKENS = 16


class Splicer(Protocol):
    """Sets the sampling params of a payload in passing."""

    @property
    def sampling_params(self) -> bytes | None: ...

    def feed(self, chunk: bytes, /) -> list[Piece]: ...

    def finish(self) -> list[Piece]: ...


class Unlisted:
    """Takes a list of one payload for that payload, which is how vLLM renders completions in JSON.

    The brackets become blanks, so that no length changes. A list of several is malformed.
    """

    _OUTER = b" \t\r\n]"

    def __init__(self, splicer: Splicer) -> None:
        self._splicer = splicer
        self._begun = False
        self._listed = False
        self._held = b""

    @property
    def sampling_params(self) -> bytes | None:
        return self._splicer.sampling_params

    def feed(self, chunk: bytes) -> list[Piece]:
        """Take the next bytes. The brackets and blanks that end a chunk are held back: one may be the list's own."""
        if not self._begun and (start := chunk.lstrip()):
            self._begun = True
            if start.startswith(b"["):
                self._listed = True
                chunk = chunk.replace(b"[", b" ", 1)
        if not self._listed:
            return self._splicer.feed(chunk)
        whole = chunk.rstrip(self._OUTER)
        if not whole:
            self._held += chunk
            return []
        held, self._held = self._held, chunk[len(whole) :]
        pieces = self._splicer.feed(held) if held else []
        return pieces + self._splicer.feed(whole)

    def finish(self) -> list[Piece]:
        """The payload has ended: the list's bracket must be there, and is not given out."""
        pieces: list[Piece] = []
        if self._listed:
            if self._held.strip() != b"]":
                raise MalformedJson(0, "it is no list of one payload")
            pieces = self._splicer.feed(self._held.replace(b"]", b" "))
        return pieces + self._splicer.finish()


class Payload(ABC):
    """A payload, made of what a render pod answers. See :func:`payload_of`.

    Attributes:
        encoding: its name in metrics.
        media_type: its ``Content-Type``.
    """

    encoding: str
    media_type: str

    def __init__(self, splicer: Splicer, rendered: PodAnswer, growth: int, rendered_by: PodClient) -> None:
        self._splicer = splicer
        self._rendered = rendered
        self._growth = growth
        self.rendered_by = rendered_by
        """The render pod."""
        self.size = 0
        """How many bytes have come from it."""

    @property
    def length(self) -> int | None:
        """How many bytes :meth:`pieces` will give, where the render pod has said how many its answer has."""
        length = self._rendered.content_length
        return None if length is None else length + self._growth

    def headers(self) -> dict[str, str]:
        """What :meth:`pieces` will give: its type and length. With no length, aiohttp would send it in HTTP chunks."""
        headers = {"Content-Type": self.media_type}
        if self.length is not None:
            headers["Content-Length"] = str(self.length)
        return headers

    async def pieces(self) -> AsyncIterator[Piece]:
        """What arrives, with the sampling params set and every other byte as it was.

        Raises:
            PodFailed: what arrives is no payload; or what :meth:`PodAnswer.chunks` raises.
        """
        try:
            async for chunk in self._rendered.chunks():
                self.size += len(chunk)
                pieces = self._splicer.feed(chunk)
                if pieces:
                    # More than one only where the sampling params are. One copy there costs less than three writes.
                    yield pieces[0] if len(pieces) == 1 else b"".join(pieces)
            if pieces := self._splicer.finish():
                yield b"".join(pieces)
        except PayloadError as error:
            raise PodFailed(f"The render pod's answer is no payload: {error}.") from error

    @property
    def sampling_params(self) -> bytes:
        """What generate is given, a raw JSON object, once the payload has passed."""
        return self._splicer.sampling_params or b"{}"

    def placeholders(self) -> bytes | None:
        """Where the media are in the prompt, as derender takes it, raw JSON; None where that is not at hand."""
        return None

    @abstractmethod
    def prompt(self) -> Prompt:
        """The prompt's token ids, once the payload has passed.

        Raises:
            PodFailed: it has none.
        """


class JsonPayload(Payload):
    """vLLM's own encoding."""

    encoding = "json"
    media_type = "application/json"

    def __init__(self, rendered: PodAnswer, edit: SamplingParamsEdit, rendered_by: PodClient) -> None:
        growth = edit.most_growth()
        self._json = SamplingParamsSplicer(edit, capture=("token_ids",), grow_by=growth)
        super().__init__(Unlisted(self._json), rendered, growth, rendered_by)

    def prompt(self) -> Prompt:
        token_ids = self._json.captured.get("token_ids", b"")
        if not token_ids.startswith(b"["):
            raise PodFailed("The render pod's answer is no payload: it has no list of `token_ids`.")
        return Prompt.of_json(token_ids)


class FramesPayload(Payload):
    """The encoding of our plugin: see ``docs/payload-format.md``."""

    encoding = "frames"
    media_type = FRAMES_MEDIA_TYPE

    def __init__(self, rendered: PodAnswer, edit: SamplingParamsEdit, rendered_by: PodClient) -> None:
        growth = edit.most_growth()
        self._frames = FrameSplicer(edit, grow_by=growth)
        super().__init__(self._frames, rendered, growth, rendered_by)

    def prompt(self) -> Prompt:
        return Prompt.of_frames(self._outline().token_ids)

    def placeholders(self) -> bytes | None:
        placed: dict[str, list[dict[str, int]]] = {}
        for each in self._outline().placeholders:
            placed.setdefault(each.modality, []).append({"offset": each.offset, "length": each.length})
        return json.dumps(placed).encode() if placed else None

    def _outline(self) -> PromptOutline:
        try:
            return read_prompt(self._frames.head or b"")
        except PayloadError as error:
            raise PodFailed(f"The render pod's answer is no payload: {error}.") from error


def payload_of(rendered: PodAnswer, overrides: Mapping[str, bytes], rendered_by: PodClient) -> Payload:
    """The payload that a render pod answers with, in the encoding that the answer says it is in.

    Args:
        rendered: the answer, of which nothing has been read.
        overrides: the caller's sampling params, raw JSON by name.
        rendered_by: that pod.
    """
    edit = SamplingParamsEdit(overrides, default_max_tokens=VLLM_DEFAULT_MAX_TOKENS)
    media_type = rendered.content_type.partition(";")[0].strip().lower()
    kind = FramesPayload if media_type == FRAMES_MEDIA_TYPE else JsonPayload
    return kind(rendered, edit, rendered_by)
