"""The payload on its way from a render pod to a generate pod, in either encoding: set in passing, never held."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from typing import Protocol

from rendergen.payload import (
    FrameSplicer,
    PayloadError,
    Piece,
    SamplingParamsEdit,
    SamplingParamsSplicer,
    read_token_ids,
)
from rendergen.payload.frames import (
    MEDIA_TYPE as FRAMES_MEDIA_TYPE,
)
from rendergen.service.errors import PodFailed
from rendergen.service.pods import PodAnswer
from router.derender import Prompt

# What `max_tokens` means where the rendered sampling params lack it: render leaves out what equals vLLM's default, and
# generate would take the absence for all that is left of the context.
VLLM_DEFAULT_MAX_TOKENS = 16


class Splicer(Protocol):
    """Sets the sampling params of a payload in passing."""

    def feed(self, chunk: bytes, /) -> list[Piece]: ...

    def finish(self) -> list[Piece]: ...


class Payload(ABC):
    """A payload, made of what a render pod answers. See :func:`payload_of`.

    Attributes:
        encoding: its name in metrics.
        media_type: its ``Content-Type``.
    """

    encoding: str
    media_type: str

    def __init__(self, splicer: Splicer, rendered: PodAnswer, growth: int) -> None:
        self._splicer = splicer
        self._rendered = rendered
        self._growth = growth
        self.size = 0
        """How many bytes have come from the render pod."""

    def headers(self) -> dict[str, str]:
        """What :meth:`pieces` will give: its type and length. With no length, aiohttp would send it in HTTP chunks."""
        headers = {"Content-Type": self.media_type}
        if self._rendered.content_length is not None:
            headers["Content-Length"] = str(self._rendered.content_length + self._growth)
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
            self._splicer.finish()
        except PayloadError as error:
            raise PodFailed(f"The render pod's answer is no payload: {error}.") from error

    @abstractmethod
    def prompt(self) -> Prompt:
        """The prompt's length and end, once the payload has passed.

        Raises:
            PodFailed: it has none.
        """


class JsonPayload(Payload):
    """vLLM's own encoding."""

    encoding = "json"
    media_type = "application/json"

    def __init__(self, rendered: PodAnswer, edit: SamplingParamsEdit) -> None:
        growth = edit.most_growth()
        self._json = SamplingParamsSplicer(edit, capture=("token_ids",), grow_by=growth)
        super().__init__(self._json, rendered, growth)

    def prompt(self) -> Prompt:
        token_ids = self._json.captured.get("token_ids", b"")
        if not token_ids.startswith(b"["):
            raise PodFailed("The render pod's answer is no payload: it has no list of `token_ids`.")
        return Prompt.of_json(token_ids)


class FramesPayload(Payload):
    """The encoding of our plugin: see ``docs/payload-format.md``."""

    encoding = "frames"
    media_type = FRAMES_MEDIA_TYPE

    def __init__(self, rendered: PodAnswer, edit: SamplingParamsEdit) -> None:
        growth = edit.most_growth()
        self._frames = FrameSplicer(edit, grow_by=growth)
        super().__init__(self._frames, rendered, growth)

    def prompt(self) -> Prompt:
        try:
            return Prompt.of_frames(read_token_ids(self._frames.head or b""))
        except PayloadError as error:
            raise PodFailed(f"The render pod's answer is no payload: {error}.") from error


def payload_of(rendered: PodAnswer, overrides: Mapping[str, bytes]) -> Payload:
    """The payload that a render pod answers with, in the encoding that the answer says it is in.

    Args:
        rendered: the answer, of which nothing has been read.
        overrides: the caller's sampling params, raw JSON by name.
    """
    edit = SamplingParamsEdit(overrides, default_max_tokens=VLLM_DEFAULT_MAX_TOKENS)
    media_type = rendered.content_type.partition(";")[0].strip().lower()
    kind = FramesPayload if media_type == FRAMES_MEDIA_TYPE else JsonPayload
    return kind(rendered, edit)
