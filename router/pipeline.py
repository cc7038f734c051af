"""A chat request's way: render → choose → forward → derender → answer.

The payload is sent on to the generate pod while it still arrives from the render pod, and is never held: this process
has a window of it (the reads in flight), its sampling params, and its token ids.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TypeVar

from rendergen.payload import PayloadError, Piece
from rendergen.service import deadline, request_id
from rendergen.service.errors import BadRequest, PodFailed, PodRefusal
from rendergen.service.pods import PodClient
from router.chat_request import ChatRequest
from router.derender import Generated, completion, derender_request
from router.metrics import RouterMetrics
from router.payload import FramesPayload, JsonPayload, Payload, payload_of
from router.pool import Pool
from router.settings import RouterSettings

RENDER = "/v1/chat/completions/render"
GENERATE = "/inference/v1/generate"
DERENDER = "/v1/chat/completions/derender"

log = logging.getLogger(__name__)

# Above this, reading an answer leaves the event loop: it takes about 10 ms a megabyte.
LARGE_ANSWER_BYTES = 128 * 1024

# With these a pod speaks of the request that it was sent by us (method, pauses), not of the caller's.
_OURS = frozenset({405, 408})
# With these the generate pod speaks of the payload, which is the render pod's: its signature, its features.
_OF_THE_PAYLOAD = frozenset({403, 412})

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
        render = self._render.choose()
        headers = {**_headers(chat, settings.render_timeout_s), "Accept": self._media_type_for(render)}
        async with render.request(
            "POST", RENDER, headers=headers, body=chat.body, timeout_s=settings.render_timeout_s
        ) as rendered:
            stages.end("render")
            payload = payload_of(rendered, chat.sampling_overrides)
            tokens = await self._generated(chat, payload)
        stages.end("generate")
        self._metrics.carried(payload.encoding, payload.size)
        context, generated = await _off_loop(len(tokens), "generate pod", self._context, chat, payload, tokens)
        answer = await self._derendered(chat, context, render)
        stages.end("derender")
        completion_id = f"chatcmpl-{request_id.current.get()}"
        return await _off_loop(len(answer), "render pod", completion, chat, answer, generated, completion_id)

    def _media_type_for(self, render: PodClient) -> str:
        """What to ask ``render`` for: frames only where whichever generate pod is chosen takes them."""
        generate = self._generate
        frames = self._render.speaks_frames(render) and all(map(generate.speaks_frames, generate.ready()))
        return FramesPayload.media_type if frames else JsonPayload.media_type

    async def _generated(self, chat: ChatRequest, payload: Payload) -> bytes:
        """Generate's answer to ``payload``, which is carried to a pod that takes its encoding."""
        timeout_s = self._settings.generate_timeout_s
        pod = self._generate.choose(frames=isinstance(payload, FramesPayload))
        headers = {**_headers(chat, timeout_s), **payload.headers()}
        try:
            async with pod.request(
                "POST", GENERATE, headers=headers, body=payload.pieces(), timeout_s=timeout_s
            ) as generating:
                return await generating.read(self._settings.max_body_bytes)
        except PodRefusal as error:
            if error.status not in _OF_THE_PAYLOAD:
                raise
            log.error("payload refused", extra={"pod": pod.pod.url, "status": error.status, "error": error.message})
            raise PodFailed(
                f"The generate pod does not accept the render pod's payload (status {error.status}). Their settings do "
                "not fit together: whoever runs them finds the reason in the router's log."
            ) from error

    @staticmethod
    def _context(chat: ChatRequest, payload: Payload, tokens: bytes) -> tuple[tuple[bytes, ...], Generated]:
        generated = Generated.read(tokens)
        return derender_request(chat, payload.prompt(), generated), generated

    def _derenderer(self, rendered_by: PodClient) -> PodClient:
        """A pod to derender on. With none ready it is the one that rendered: what was generated is not to be lost."""
        return self._derender.choose() if self._derender.any_ready() else rendered_by

    async def _derendered(self, chat: ChatRequest, context: tuple[bytes, ...], rendered_by: PodClient) -> bytes:
        timeout_s = self._settings.derender_timeout_s
        try:
            async with self._derenderer(rendered_by).request(
                "POST", DERENDER, headers=_headers(chat, timeout_s), body=context, timeout_s=timeout_s
            ) as derendering:
                return await derendering.read(self._settings.max_body_bytes)
        except (PodRefusal, BadRequest) as error:
            if error.status != BadRequest.status:
                raise
            # The caller's request has been rendered, so what cannot be derendered is generate's answer.
            raise PodFailed("The generate pod's answer is none that can be derendered.") from error


def _headers(chat: ChatRequest, budget_s: float) -> dict[str, str]:
    # On vLLM each step has an id of its own: aborting an id there aborts every request that shares it.
    return {**chat.headers, request_id.HEADER: request_id.derived(), **deadline.left(budget_s)}


async def _off_loop(size: int, role: str, work: Callable[..., T], *args: object) -> T:
    """``work(*args)`` on an answer of ``size`` bytes of a ``role``; in a thread where it takes more than a moment.

    Log probabilities make megabytes, and other callers' requests wait for the event loop.
    """
    try:
        return work(*args) if size < LARGE_ANSWER_BYTES else await asyncio.to_thread(work, *args)
    except PayloadError as error:
        raise PodFailed(f"The {role}'s answer cannot be read: {error}.") from error
