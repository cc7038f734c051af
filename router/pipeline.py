"""A request's way: render → choose → forward → derender → answer.

The payload is sent on to the generate pod while it still arrives from the render pod, and is never held: this process
has a window of it (the reads in flight), its sampling params, and its token ids.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from rendergen.payload import Piece
from rendergen.service.deadline import Deadline
from rendergen.service.errors import PodFailed, PodRefusal, ServiceError, Unavailable
from rendergen.service.pods import PodAnswer, PodClient
from router import plugin_derender
from router.answer import Answer
from router.api_request import ApiRequest
from router.course import Course, of_ours
from router.derendering import Derendering, Generated
from router.fleet import Fleet
from router.generated import GeneratedStream
from router.metrics import RouterMetrics
from router.payload import FramesPayload, JsonPayload, Payload, payload_of
from router.pool import Taken, Wanted
from router.retry import Retry
from router.settings import RouterSettings

GENERATE = "/inference/v1/generate"
EVENT_STREAM = "text/event-stream"

log = logging.getLogger(__name__)

# With these the generate pod speaks of the payload, which is the render pod's: its signature, its features.
_OF_THE_PAYLOAD = frozenset({403, 412})


class Pipeline:
    """Answers requests.

    Args:
        fleet: the pods.
        settings: the budget of each stage.
        metrics: where the time of each stage is recorded.
        retry: when to try again.
    """

    def __init__(self, fleet: Fleet, settings: RouterSettings, metrics: RouterMetrics, retry: Retry) -> None:
        self._render = fleet.render
        self._generate = fleet.generate
        self._derendering = Derendering(fleet.derender, settings, retry)
        self._settings = settings
        self._metrics = metrics
        self._retry = retry

    @asynccontextmanager
    async def answer(self, request: ApiRequest, deadline: Deadline) -> AsyncIterator[Answer]:
        """The answer to ``request``, which is read within the context. Leaving it stops the work on the pods.

        Raises:
            ServiceError: what went wrong, for the caller.
        """
        course = Course(request, deadline, self._metrics.stages(), int(time.time()))
        async with AsyncExitStack() as held:
            yield await self._tried(course, held)

    async def _tried(self, course: Course, held: AsyncExitStack) -> Answer:
        """The first try that works; what it needs until the answer has been read is left in ``held``."""
        while True:
            try:
                async with AsyncExitStack() as attempt:
                    answer = await self._try(course, attempt)
                    await held.enter_async_context(attempt.pop_all())
                    return answer
            except ServiceError as error:
                self._leave_out(course)
                if not self._may_try_again(course, error):
                    raise
                log.info("trying again on another pod", extra={"error": error.message})

    def _leave_out(self, course: Course) -> None:
        """Pods that refuse connections get no other request until they have been asked whether they live."""
        for pod, error in course.failures.items():
            if isinstance(error, Unavailable):
                self._render.failed(pod)  # as good as any other pool: readiness is the same for all

    def _may_try_again(self, course: Course, error: ServiceError) -> bool:
        if error not in course.failures.values():  # no pod's doing, so that another would not do better
            return False
        if not self._retry.again(error, course.tries(), course.deadline.left_s()):
            return False
        wanted = Wanted(course.request.model, avoid=course.failed)
        return all(pool.can_take(wanted) for pool in (self._render, self._generate))

    async def _try(self, course: Course, held: AsyncExitStack) -> Answer:
        request = course.request
        by_plugin = self._derendering.is_by_plugin(request)
        async with AsyncExitStack() as rendering:
            payload, render = await self._rendered(course, rendering, by_plugin)
            generating, pod = await self._generating(course, held, payload, render)
        self._metrics.carried(payload.encoding, payload.size)
        generated: bytes | GeneratedStream
        with course.on(pod):
            if generating.content_type.startswith(EVENT_STREAM):
                generated = GeneratedStream(pod.pod.role, generating)
                await generated.begin()
            else:
                generated = await generating.read(self._settings.max_body_bytes)
        course.stages.end("generate")
        derender = self._derendering.by_plugin if by_plugin else self._derendering.by_upstream
        return await derender(course, held, payload, Generated(generated, pod))

    async def _rendered(self, course: Course, rendering: AsyncExitStack, by_plugin: bool) -> tuple[Payload, Taken]:
        """The payload, of which nothing has been read; it can be for as long as ``rendering`` lasts. And the pod."""
        request, settings = course.request, self._settings
        wanted = Wanted(request.model, avoid=course.failed)
        able = self._generate.ready(wanted)  # nothing is rendered that nothing can generate from
        taken = rendering.enter_context(self._render.take(wanted))
        frames = self._render.speaks_frames(taken.pod) and all(map(self._generate.speaks_frames, able))
        if not frames:
            self._render.refuse_unsafe_over_json(request.model, request.media.inline + request.media.remote)
        changes = plugin_derender.render_changes(request) if by_plugin else {}
        body = request.body_with(changes) if changes else request.pieces
        budget_s = course.deadline.within(settings.render_timeout_s)
        accept = FramesPayload.media_type if frames else JsonPayload.media_type
        course.stages.begin()
        with course.on(taken.pod), of_ours():
            rendered = await rendering.enter_async_context(
                taken.pod.request(
                    "POST",
                    request.api.render,
                    headers={**course.headers(budget_s), "Accept": accept},
                    body=body,
                    timeout_s=budget_s,
                )
            )
        taken.carry(rendered.content_length or 0)
        course.stages.end("render")
        overrides = {**plugin_derender.sampling_changes(request), **request.sampling_overrides}
        return payload_of(rendered, overrides, taken.pod), taken

    async def _generating(
        self, course: Course, held: AsyncExitStack, payload: Payload, render: Taken
    ) -> tuple[PodAnswer, PodClient]:
        """Generate's answer to ``payload``, which is carried to a pod that takes its encoding."""
        wanted = Wanted(course.request.model, frames=isinstance(payload, FramesPayload), avoid=course.failed)
        taken: Taken = held.enter_context(self._generate.take(wanted))
        taken.carry(payload.length or 0)
        budget_s = course.deadline.within(self._settings.generate_timeout_s)
        headers = {**course.headers(budget_s), **payload.headers()}
        pieces = _passed(course.from_pod(payload.rendered_by, payload.pieces()), render)
        with course.on(taken.pod), of_ours():
            try:
                answer = await held.enter_async_context(
                    taken.pod.request("POST", GENERATE, headers=headers, body=pieces, timeout_s=budget_s)
                )
            except PodRefusal as error:
                if error.status not in _OF_THE_PAYLOAD:
                    error.param = _callers_param(error.param)
                    raise
                extra = {"pod": taken.pod.pod.url, "status": error.status, "error": error.message}
                log.error("payload refused", extra=extra)
                raise PodFailed(
                    f"The generate pod does not accept the render pod's payload (status {error.status}). Their "
                    "settings do not fit together: whoever runs them finds the reason in the router's log."
                ) from error
        return answer, taken.pod


def _callers_param(param: str | None) -> str | None:
    """What the caller knows a member of the payload as. It has not written the token ids."""
    if param == "token_ids":
        return None
    return param if param is None else param.removeprefix("sampling_params.")


async def _passed(pieces: AsyncIterator[Piece], render: Taken) -> AsyncIterator[Piece]:
    """``pieces``; when the last has passed, the render pod has nothing more to do with the request."""
    async for piece in pieces:
        yield piece
    render.give_back()
