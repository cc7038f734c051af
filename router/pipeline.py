"""A chat request's way: render → choose → forward → derender → answer.

The payload is sent on to the generate pod while it still arrives from the render pod, and is never held: this process
has a window of it (the reads in flight), its sampling params, and its token ids.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TypeVar

from rendergen.payload import (
    PayloadError,
    Piece,
    SamplingParamsEdit,
    SamplingParamsSplicer,
)
from rendergen.service import request_id
from rendergen.service.errors import BadRequest, PodFailed, PodRefusal
from rendergen.service.pods import PodAnswer
from router.chat_request import ChatRequest
from router.derender import Generated, completion, derender_request
from router.metrics import RouterMetrics
from router.pool import Pool
from router.settings import RouterSettings

RENDER = "/v1/chat/completions/render"
GENERATE = "/inference/v1/generate"
DERENDER = "/v1/chat/completions/derender"

# What `max_tokens` means where the rendered sampling params lack it: render leaves out what equals vLLM's default, and
# generate would take the absence for all that is left of the context.
VLLM_DEFAULT_MAX_TOKENS = 16


# Above this, reading an answer leaves the event loop: it takes about 10 ms a megabyte.
LARGE_ANSWER_BYTES = 128 * 1024

# With these a pod speaks of the request that it was sent by us (method, pauses), not of the caller's.
_OURS = frozenset({405, 408})

T = TypeVar("T")


class ChatPipeline:
    """Answers chat requests.

    Args:
        render: pods that render.
        generate: pods that generate.
        derender: pods that derender.
        settings: the budget of each stage.
        metrics: where the time of each stage is recorded.
    """

    def __init__(
        self, render: Pool, generate: Pool, derender: Pool, settings: RouterSettings, metrics: RouterMetrics
    ) -> None:
        self._render = render
        self._generate = generate
        self._derender = derender
        self._settings = settings
        self._metrics = metrics

    async def answer(self, chat: ChatRequest) -> list[Piece]:
        """The chat completion for ``chat``, as pieces of JSON.

        Raises:
            ServiceError: what went wrong, for the caller.
        """
        try:
            return await self._answer(chat)
        except PodRefusal as error:
            if error.status not in _OURS:
                raise
            raise PodFailed("A pod did not take what it was sent for this request.") from error

    async def _answer(self, chat: ChatRequest) -> list[Piece]:
        self._generate.ready()  # nothing is rendered that nothing can generate from
        stages = self._metrics.stages()
        settings = self._settings
        payload = _Payload(chat.sampling_overrides)
        async with self._render.choose().request(
            "POST", RENDER, headers=_headers(chat), body=chat.body, timeout_s=settings.render_timeout_s
        ) as rendered:
            stages.end("render")
            async with self._generate.choose().request(
                "POST",
                GENERATE,
                headers={**_headers(chat), **payload.length(rendered)},
                body=payload.pieces(rendered),
                timeout_s=settings.generate_timeout_s,
            ) as generating:
                tokens = await generating.read(settings.max_body_bytes)
        stages.end("generate")
        context, generated = await _off_loop(len(tokens), "generate pod", self._context, chat, payload, tokens)
        answer = await self._derendered(chat, context)
        stages.end("derender")
        completion_id = f"chatcmpl-{request_id.current.get()}"
        return await _off_loop(len(answer), "render pod", completion, chat, answer, generated, completion_id)

    @staticmethod
    def _context(chat: ChatRequest, payload: _Payload, tokens: bytes) -> tuple[tuple[bytes, ...], Generated]:
        generated = Generated.read(tokens)
        return derender_request(chat, payload.token_ids, generated), generated

    async def _derendered(self, chat: ChatRequest, context: tuple[bytes, ...]) -> bytes:
        timeout_s = self._settings.derender_timeout_s
        try:
            async with self._derender.choose().request(
                "POST", DERENDER, headers=_headers(chat), body=context, timeout_s=timeout_s
            ) as derendering:
                return await derendering.read(self._settings.max_body_bytes)
        except (PodRefusal, BadRequest) as error:
            if error.status != BadRequest.status:
                raise
            # The caller's request has been rendered, so what cannot be derendered is generate's answer.
            raise PodFailed("The generate pod's answer is none that can be derendered.") from error


class _Payload:
    """The payload on its way from the render pod to the generate pod."""

    def __init__(self, overrides: Mapping[str, bytes]) -> None:
        edit = SamplingParamsEdit(overrides, default_max_tokens=VLLM_DEFAULT_MAX_TOKENS)
        self._growth = edit.most_growth()
        self._splicer = SamplingParamsSplicer(edit, capture=("token_ids",), grow_by=self._growth)

    def length(self, rendered: PodAnswer) -> dict[str, str]:
        """``Content-Length`` of what :meth:`pieces` will give. With none, aiohttp would send it in HTTP chunks."""
        if rendered.content_length is None:
            return {}
        return {"Content-Length": str(rendered.content_length + self._growth)}

    async def pieces(self, rendered: PodAnswer) -> AsyncIterator[Piece]:
        """What arrives, with the sampling params set and every other byte as it was."""
        try:
            async for chunk in rendered.chunks():
                pieces = self._splicer.feed(chunk)
                if pieces:
                    # More than one only where the sampling params are. One copy there costs less than three writes.
                    yield pieces[0] if len(pieces) == 1 else b"".join(pieces)
            self._splicer.finish()
        except PayloadError as error:
            raise PodFailed(f"The render pod's answer is no payload: {error}.") from error

    @property
    def token_ids(self) -> bytes:
        """The prompt, a raw JSON list, once the payload has passed."""
        token_ids = self._splicer.captured.get("token_ids", b"")
        if not token_ids.startswith(b"["):
            raise PodFailed("The render pod's answer is no payload: it has no list of `token_ids`.")
        return token_ids


def _headers(chat: ChatRequest) -> dict[str, str]:
    # On vLLM each step has an id of its own: aborting an id there aborts every request that shares it.
    return {**chat.headers, request_id.HEADER: request_id.derived()}


async def _off_loop(size: int, role: str, work: Callable[..., T], *args: object) -> T:
    """``work(*args)`` on an answer of ``size`` bytes of a ``role``; in a thread where it takes more than a moment.

    Log probabilities make megabytes, and other callers' requests wait for the event loop.
    """
    try:
        return work(*args) if size < LARGE_ANSWER_BYTES else await asyncio.to_thread(work, *args)
    except PayloadError as error:
        raise PodFailed(f"The {role}'s answer cannot be read: {error}.") from error
