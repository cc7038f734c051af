"""The last step: from generate's answer to the caller's, by the plugin's derender or by vLLM's own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

from rendergen.payload import PayloadError, Piece
from rendergen.service.errors import BadRequest, NotSupported, PodFailed, PodRefusal, ServiceError, Unavailable
from rendergen.service.pods import JOINED_BYTES, PodAnswer, PodClient
from rendergen.sse import EventReader, EventTooLarge
from router import plugin_derender, upstream_derender
from router.answer import Answer, StreamedAnswer, WholeAnswer
from router.api_request import ApiRequest
from router.course import Course, of_ours
from router.generated import ERROR, MAX_EVENT_BYTES, GeneratedStream, raise_error_in
from router.payload import Payload
from router.pool import Pool, Wanted
from router.retry import Retry
from router.settings import RouterSettings
from router.upstream_refusals import refuse
from router.upstream_stream import stream as upstream_stream

# Above this, reading an answer leaves the event loop: it takes about 10 ms a megabyte.
LARGE_ANSWER_BYTES = 128 * 1024

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Generated:
    """What a generate pod answers.

    Attributes:
        answer: as a whole, or as a stream that has begun.
        pod: the pod.
    """

    answer: bytes | GeneratedStream
    pod: PodClient


class Derendering:
    """Makes answers of what was generated.

    Args:
        pool: the render pods, as those that derender.
        settings: the budgets.
        retry: when to try again.
    """

    def __init__(self, pool: Pool, settings: RouterSettings, retry: Retry) -> None:
        self._pool = pool
        self._settings = settings
        self._retry = retry

    def is_by_plugin(self, request: ApiRequest) -> bool:
        """Whether a ready pod's plugin makes the answers of this API.

        Raises:
            NotSupported: none does, and upstream's derender does not know this API.
            BadRequest: upstream's derender would answer it wrongly.
        """
        if self._pool.can_take(Wanted(request.model, derenders=request.api.derender_stream)):
            return True
        self._pool.ready(Wanted(request.model))
        if not request.api.upstream_derenders:
            raise NotSupported(
                f"{request.api.path} needs rendergen's plugin on the render pods: vLLM alone renders its requests but "
                "does not derender its answers. Load the plugin (VLLM_PLUGINS=rendergen), or use /v1/chat/completions."
            )
        refuse(request)
        return False

    async def by_plugin(self, course: Course, held: AsyncExitStack, payload: Payload, generated: Generated) -> Answer:
        """The answer by the plugin's derender, in the form that the caller's request asks for.

        Args:
            course: the request's.
            held: what is needed until the answer has been read is left here.
            payload: what it was generated from.
            generated: what was.
        """
        request, prompt = course.request, payload.prompt()
        context = await _off_loop(
            4 * prompt.tokens + request.bytes_without_media(),
            "render pod",
            plugin_derender.context,
            request,
            payload,
            prompt,
            course.answer_id,
            course.created,
        )
        body: tuple[Piece, ...] | AsyncIterator[Piece]
        if isinstance(generated.answer, bytes):
            body = (*context, generated.answer)
            if not request.streams:
                document = await self._whole_by_plugin(course, payload, body)
                course.stages.end("derender")
                return WholeAnswer((document,), course.stages)
        else:
            body = _joined(context, course.from_pod(generated.pod, generated.answer.chunks()))
        pod = self._derenderer(course, held, payload)
        budget_s = course.deadline.within(self._settings.generate_timeout_s)
        with course.on(pod):
            answer = await held.enter_async_context(_asked_to_derender(course, pod, body, budget_s))
            events = await held.enter_async_context(aclosing(_whole_events(answer)))
            first = await anext(events, None)
            if first is None:
                raise PodFailed("The render pod's answer ended before its first event.")
        course.stages.end("derender")
        return StreamedAnswer(_with_first(first, events), course.stages)

    async def _whole_by_plugin(self, course: Course, payload: Payload, body: tuple[Piece, ...]) -> bytes:
        """A whole answer. What was generated is at hand, and was dear: only this step is tried again."""
        tried = 0
        while True:
            budget_s = course.deadline.within(self._settings.derender_timeout_s)
            try:
                async with AsyncExitStack() as held:
                    pod = self._derenderer(course, held, payload)
                    with course.on(pod):
                        answer = await held.enter_async_context(_asked_to_derender(course, pod, body, budget_s))
                        return await answer.read(self._settings.max_body_bytes)
            except ServiceError as error:
                tried += 1
                if not self._may_ask_another(course, error, tried, course.request.api.derender_stream):
                    raise

    def _may_ask_another(self, course: Course, error: ServiceError, tried: int, path: str) -> bool:
        """Whether to ask another pod for what failed with ``error``."""
        self._leave_out(course)
        others = Wanted(course.request.model, derenders=path, avoid=course.failed)
        return self._retry.again(error, tried, course.deadline.left_s()) and self._pool.can_take(others)

    def _derenderer(self, course: Course, held: AsyncExitStack, payload: Payload, *, plugin: bool = True) -> PodClient:
        """A pod to derender on. With none ready it is the one that rendered: what was generated is not to be lost."""
        request = course.request
        path = request.api.derender_stream if plugin else ""
        wanted = Wanted(request.model, derenders=path, avoid=course.failed)
        pod = payload.rendered_by
        is_able = not path or self._pool.derenders(pod, path)
        if is_able and pod not in course.failures and not self._pool.can_take(wanted):
            return pod
        return held.enter_context(self._pool.take(wanted)).pod

    async def by_upstream(self, course: Course, held: AsyncExitStack, payload: Payload, generated: Generated) -> Answer:
        """The same by vLLM's own derender; of a stream, by one request to it for some of generate's events."""
        request, prompt = course.request, payload.prompt()
        if isinstance(generated.answer, bytes):
            return await self._whole_by_upstream(course, payload, generated.answer)

        async def ask(body: tuple[Piece, ...]) -> bytes:
            return await self._ask_upstream(course, payload, body)

        events = course.from_pod(generated.pod, generated.answer.data())
        streamed = upstream_stream(request, prompt, events, ask, course.answer_id)
        await held.enter_async_context(aclosing(streamed))
        first = await anext(streamed)
        course.stages.end("derender")
        return StreamedAnswer(_with_first(first, streamed), course.stages)

    async def _whole_by_upstream(self, course: Course, payload: Payload, generated: bytes) -> WholeAnswer:
        request, prompt = course.request, payload.prompt()
        size = len(generated) + request.document.size
        read = await _off_loop(size, "generate pod", upstream_derender.Generated.read, generated)
        body = await _off_loop(size, "generate pod", upstream_derender.derender_request, request, prompt, read)
        answer = await self._ask_upstream(course, payload, body)
        course.stages.end("derender")
        pieces = await _off_loop(
            size, "render pod", upstream_derender.completion, request, prompt, answer, read, course.answer_id
        )
        return WholeAnswer(pieces, course.stages)

    async def _ask_upstream(self, course: Course, payload: Payload, body: tuple[Piece, ...]) -> bytes:
        """What vLLM's derender answers. Its state is in the request: another pod will do as well as the last one."""
        tried = 0
        while True:
            try:
                return await self._ask_one_upstream(course, payload, body)
            except ServiceError as error:
                tried += 1
                if not self._may_ask_another(course, error, tried, ""):
                    raise

    async def _ask_one_upstream(self, course: Course, payload: Payload, body: tuple[Piece, ...]) -> bytes:
        budget_s = course.deadline.within(self._settings.derender_timeout_s)
        path, headers = course.request.api.derender, course.headers(budget_s)
        async with AsyncExitStack() as held:
            pod = self._derenderer(course, held, payload, plugin=False)
            with course.on(pod), of_ours():
                try:
                    async with pod.request("POST", path, headers=headers, body=body, timeout_s=budget_s) as answer:
                        return await answer.read(self._settings.max_body_bytes)
                except (PodRefusal, BadRequest) as error:
                    if error.status != BadRequest.status:
                        raise
                    # The caller's request has been rendered, so what cannot be derendered is generate's answer.
                    raise PodFailed("The generate pod's answer is none that can be derendered.") from error

    def _leave_out(self, course: Course) -> None:
        """Pods that refuse connections get no other request until they have been asked whether they live."""
        for pod, error in course.failures.items():
            if isinstance(error, Unavailable):
                self._pool.failed(pod)


@asynccontextmanager
async def _asked_to_derender(
    course: Course, pod: PodClient, body: tuple[Piece, ...] | AsyncIterator[Piece], budget_s: float
) -> AsyncIterator[PodAnswer]:
    path, headers = course.request.api.derender_stream, course.headers(budget_s)
    with of_ours():
        async with pod.request("POST", path, headers=headers, body=body, timeout_s=budget_s) as answer:
            yield answer


async def _joined(head: tuple[Piece, ...], rest: AsyncIterator[Piece]) -> AsyncIterator[Piece]:
    if sum(map(len, head)) <= JOINED_BYTES:
        head = (b"".join(head),)
    for piece in head:
        yield piece
    async for piece in rest:
        yield piece


async def _with_first(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for item in rest:
        yield item


async def _whole_events(answer: PodAnswer) -> AsyncGenerator[bytes, None]:
    """Only whole events, so that an error event can follow at any time.

    One in OpenAI's form is not passed on but raised: it may come from the service before the pod, which knows neither
    the API's form nor its end of a stream.
    """
    reader = EventReader(MAX_EVENT_BYTES)
    async for chunk in answer.chunks():
        try:
            events = reader.feed(chunk)
        except EventTooLarge as error:
            raise PodFailed(f"The render pod sent an event of more than {MAX_EVENT_BYTES} bytes.") from error
        for number, event in enumerate(events):
            if not event.name and event.data.startswith(ERROR):
                if number:
                    yield b"".join([each.raw for each in events[:number]])
                raise_error_in(event.data, "render pod")
        if events:
            yield b"".join([event.raw for event in events])
    if reader.finish():
        raise PodFailed("The render pod's answer ended within an event.")


async def _off_loop(size: int, role: str, work: Callable[..., T], *args: object) -> T:
    """``work(*args)`` on an answer of ``size`` bytes of a ``role``; in a thread where it takes more than a moment.

    Log probabilities make megabytes, and other callers' requests wait for the event loop.
    """
    try:
        return work(*args) if size < LARGE_ANSWER_BYTES else await asyncio.to_thread(work, *args)
    except PayloadError as error:
        raise PodFailed(f"The {role}'s answer cannot be read: {error}.") from error
