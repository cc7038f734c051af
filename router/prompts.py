"""Completions of several prompts: each is a request of its own through the pipeline, and the answers are put together.

vLLM numbers the choices prompt by prompt, and counts their tokens together.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import Any

from rendergen import sse
from rendergen.payload import Document, Limits, PayloadError, Span, set_members, split_list
from rendergen.service.deadline import Deadline
from rendergen.service.errors import BadRequest, PodFailed, TooLarge
from router.answer import Answer, StreamedAnswer, WholeAnswer
from router.api_request import ApiRequest
from router.apis import COMPLETIONS
from router.generated import DONE, MAX_EVENT_BYTES
from router.metrics import Stages
from router.pipeline import Pipeline
from router.upstream_asked import whole_number

PROMPT = "prompt"
# Each prompt's request has all other members of the caller's; so much they may take together.
MAX_COPIED_BYTES = 32 * 1024 * 1024
# So many of one request's prompts are between their render and their first token at a time; the others wait here. All
# at once would be more than a pod's queue takes (the plugin's render: 132), however idle the pod is.
MAX_BEGINNING = 32
# Above this, taking the prompts apart leaves the event loop: the worst that a caller can send takes 0.2 s a megabyte.
_LARGE_BYTES = 16 * 1024
_COUNTS = ("prompt_tokens", "completion_tokens", "total_tokens")


async def requests_of(request: ApiRequest, max_prompts: int) -> list[ApiRequest]:
    """One request for each prompt; the request itself where it has one.

    Raises:
        BadRequest: there are more than ``max_prompts``.
        TooLarge: what they have in common is too large to be sent with each.
    """
    prompts = await _prompts(request, max_prompts)
    if len(prompts) < 2:
        return [request]
    common_bytes = request.document.size - _length(request.spans[PROMPT])
    if common_bytes * len(prompts) > MAX_COPIED_BYTES:
        raise TooLarge(
            f"With {len(prompts)} prompts, all else in the request may have {MAX_COPIED_BYTES // len(prompts)} bytes, "
            f"since it is sent with each of them; it has {common_bytes}."
        )
    return [_with_prompt(request, prompt) for prompt in prompts]


async def _prompts(request: ApiRequest, max_prompts: int) -> Sequence[bytes]:
    """The prompts, raw, if they are a list of several; a list of token ids is one prompt."""
    raw = request.raw(PROMPT) if request.api is COMPLETIONS else None
    if raw is None or raw[:1] != b"[" or raw[1:].lstrip()[:1] not in (b'"', b"["):
        return ()
    limits = Limits(members=max_prompts)
    try:
        large = len(raw) > _LARGE_BYTES
        spans = await asyncio.to_thread(split_list, raw, limits) if large else split_list(raw, limits)
    except PayloadError as error:
        raise BadRequest(f"`prompt` cannot be taken apart: {error}.", param=PROMPT) from error
    if len({raw[span.start] for span in spans}) > 1:
        return ()  # text and token ids: vLLM takes them one way or the other, and says so
    return [raw[span.start : span.end] for span in spans]


def _with_prompt(request: ApiRequest, prompt: bytes) -> ApiRequest:
    """The request with one prompt. Where its members are follows from where they were: it is not read again."""
    document, replaced = request.document, request.spans[PROMPT]
    longer = len(prompt) - _length(replaced)

    def moved(place: int) -> int:
        return place + longer if place >= replaced.end else place

    spans = {name: Span(moved(span.start), moved(span.end)) for name, span in document.spans.items()}
    body = b"".join(request.body_with({PROMPT: prompt}))
    return replace(request, document=Document((body,), spans, moved(document.brace)))


def _length(span: Span) -> int:
    return span.end - span.start


@asynccontextmanager
async def answer_all(pipeline: Pipeline, requests: Sequence[ApiRequest], deadline: Deadline) -> AsyncIterator[Answer]:
    """The answer to all of ``requests``, made at the same time, as one. See :meth:`Pipeline.answer`."""
    if len(requests) == 1:
        async with pipeline.answer(requests[0], deadline) as answer:
            yield answer
        return
    slots = asyncio.Semaphore(MAX_BEGINNING)
    parts = [_Part(pipeline, request, deadline, slots) for request in requests]
    tasks = [asyncio.create_task(part.run()) for part in parts]
    try:
        answers = await _all_begun(parts)
        stages = Stages.slowest_of([answer.stages for answer in answers])
        documents = [answer for answer in answers if isinstance(answer, WholeAnswer)]
        if len(documents) == len(answers):
            yield WholeAnswer((await asyncio.to_thread(_merged, documents),), stages)
        else:
            async with aclosing(_merged_events(parts)) as events:
                yield StreamedAnswer(events, stages)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


class _Part:
    """One prompt's way. ``begun`` is its answer, or what it failed with; the events of a stream come by ``events``."""

    def __init__(self, pipeline: Pipeline, request: ApiRequest, deadline: Deadline, slots: asyncio.Semaphore) -> None:
        self._pipeline = pipeline
        self.request = request
        self._deadline = deadline
        self._slots = slots
        self.begun: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        # Of one: a caller that does not read holds up all prompts.
        self.events: asyncio.Queue[bytes | Exception | None] = asyncio.Queue(1)

    async def run(self) -> None:
        try:
            await self._slots.acquire()
            # As soon as it has begun, not when it has ended: no stream is told before all have begun.
            self.begun.add_done_callback(lambda _: self._slots.release())
            async with self._pipeline.answer(self.request, self._deadline) as answer:
                self.begun.set_result(answer)
                if isinstance(answer, StreamedAnswer):
                    async for events in answer.events:
                        await self.events.put(events)
            await self.events.put(None)
        except Exception as error:  # whatever it is, it is raised where this part is waited for
            if self.begun.done():
                await self.events.put(error)
            else:
                self.begun.set_exception(error)
        finally:
            self.begun.cancel()


async def _all_begun(parts: Sequence[_Part]) -> list[Answer]:
    begun = [part.begun for part in parts]
    done, _ = await asyncio.wait(begun, return_when=asyncio.FIRST_EXCEPTION)
    failures = [error for future in done if (error := future.exception()) is not None]
    if failures:
        raise failures[0]
    return [future.result() for future in begun]


def _merged(documents: Sequence[WholeAnswer]) -> bytes:
    """One completion out of those of the prompts, in their order."""
    wholes = [b"".join(document.pieces) for document in documents]
    try:
        answers = [json.loads(whole) for whole in wholes]
        choices: list[Any] = []
        for answer in answers:
            choices += [{**choice, "index": len(choices) + at} for at, choice in enumerate(answer["choices"])]
        usage = _added([answer["usage"] for answer in answers])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise PodFailed("The render pod's answer is no completion.") from error
    return b"".join(set_members(wholes[0], {"choices": _dumped(choices), "usage": _dumped(usage)}))


async def _merged_events(parts: Sequence[_Part]) -> AsyncGenerator[bytes, None]:
    """The events of all prompts as they come, then their usage together, then the end."""
    usages: list[Any] = []
    last: Any = None
    streams = [_renumbered(part, number) for number, part in enumerate(parts)]
    async with aclosing(_as_they_come(streams)) as events:
        async for event in events:
            if "error" in event:
                yield sse.written(_dumped(event)) + sse.DONE
                return
            if event["choices"]:
                yield sse.written(_dumped(event))
            elif event.get("usage"):
                usages.append(event["usage"])
                last = event
    if last is not None:
        yield sse.written(_dumped({**last, "usage": _added(usages)}))
    yield sse.DONE


async def _renumbered(part: _Part, number: int) -> AsyncIterator[Any]:
    """The events of one prompt as objects, their choices numbered among all."""
    first = number * _choices_of(part.request)
    reader = sse.EventReader(MAX_EVENT_BYTES)
    while (item := await part.events.get()) is not None:
        if isinstance(item, Exception):
            raise item
        for event in reader.feed(item):
            if not event.data or event.data == DONE:
                continue
            try:
                read = json.loads(event.data)
                read.setdefault("choices", ())
                for choice in read.get("choices", ()):
                    choice["index"] += first
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                raise PodFailed("The render pod's answer is no completion.") from error
            yield read


async def _as_they_come(streams: Sequence[AsyncIterator[Any]]) -> AsyncGenerator[Any, None]:
    waiting = {asyncio.ensure_future(anext(stream, None)): stream for stream in streams}
    try:
        while waiting:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                stream = waiting.pop(task)
                if (item := task.result()) is not None:
                    waiting[asyncio.ensure_future(anext(stream, None))] = stream
                    yield item
    finally:
        for task in waiting:
            task.cancel()
        if waiting:
            await asyncio.wait(waiting)


def _choices_of(request: ApiRequest) -> int:
    return whole_number(request.given("n")) or 1


def _added(usages: Sequence[Any]) -> Any:
    """The tokens of all; what else there is, as the first has it."""
    return {**usages[0], **{name: sum(usage[name] for usage in usages) for name in _COUNTS}}


def _dumped(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
