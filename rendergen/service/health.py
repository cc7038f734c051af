"""Whether the pods behind this process can serve, what they can do, and which models they serve.

All of it is asked in the background, so that no probe of ours, and no request, ever waits for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from rendergen.service.capabilities import JSON_ONLY, Capabilities, ask_capabilities
from rendergen.service.errors import DeadlineExceeded, ServiceError
from rendergen.service.metrics import ServiceMetrics
from rendergen.service.pods import PodClient
from rendergen.service.served_models import Models, ask_models
from rendergen.service.settings import ServiceSettings

log = logging.getLogger(__name__)

# So many names of models are logged, each up to so many characters: a pod may list hundreds.
_LOGGED_MODELS = 20
_LOGGED_CHARACTERS = 100


@dataclass(slots=True)
class _Watched:
    """What is known of the pod at one address.

    Attributes:
        pod: whom to ask.
        ready: the last probe succeeded, or the last few were only late.
        late: how many probes in a row were.
        is_known: what it can do has been asked since it was last away.
        capabilities: what it can do; None until it was asked.
        asked_models: it was asked for its models, and answered something, or failed to, while it was ready.
        models: the models that it last said it serves; None if it has said none.
        models_due: when to ask for them again, by the event loop's clock.
        failures: how often a request found that it refuses connections. A probe that began before counts for nothing.
        wake: ends the pause before the next probe.
    """

    pod: PodClient
    ready: bool = False
    late: int = 0
    is_known: bool = False
    capabilities: Capabilities | None = None
    asked_models: bool = False
    models: Models | None = None
    models_due: float = 0.0
    failures: int = 0
    wake: asyncio.Event = field(default_factory=asyncio.Event)


class PodWatch:
    """Keeps the last known readiness of some pods, what they can do, and which models they serve.

    A pod is known by its address: one that plays two parts is asked once for both.

    Args:
        pods: whom to ask; see :meth:`follow`.
        settings: how often, and how long to wait.
        metrics: where readiness is shown.
        asks_capabilities: whether to ask the pods what they can do.
        models_interval_s: how often to ask them which models they serve, in seconds; None: never.
    """

    def __init__(
        self,
        pods: Iterable[PodClient],
        settings: ServiceSettings,
        metrics: ServiceMetrics,
        *,
        asks_capabilities: bool = False,
        models_interval_s: float | None = None,
    ) -> None:
        self._interval_s = settings.probe_interval_s
        self._timeout_s = settings.probe_timeout_s
        self._failures = settings.probe_failures
        self._metrics = metrics
        self._asks_capabilities = asks_capabilities
        self._models_interval_s = models_interval_s
        self._watched: dict[str, _Watched] = {}
        self._running: asyncio.TaskGroup | None = None
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.follow(pods)

    def follow(self, pods: Iterable[PodClient]) -> None:
        """Watch ``pods`` from now on, and no others: what is known of those that are gone is forgotten."""
        wanted: dict[str, PodClient] = {}
        for pod in pods:
            wanted.setdefault(pod.pod.url, pod)
        for url in self._watched.keys() - wanted.keys():
            self._forget(url)
        for url, pod in wanted.items():
            if url not in self._watched:
                self._watched[url] = _Watched(pod)
                self._start(url)

    def is_ready(self, pod: PodClient) -> bool:
        """Whether the pod's last probe succeeded, or the last few were only late. False before the first."""
        watched = self._watched.get(pod.pod.url)
        return watched is not None and watched.ready

    def any_ready(self, pods: Iterable[PodClient] | None = None) -> bool:
        """Whether at least one of ``pods`` (default: of all) is ready."""
        if pods is None:
            return any(watched.ready for watched in self._watched.values())
        return any(map(self.is_ready, pods))

    def capabilities(self, pod: PodClient) -> Capabilities:
        """What the pod can do: asked before it is taken for ready, and again whenever it comes back."""
        watched = self._watched.get(pod.pod.url)
        return (watched.capabilities if watched is not None else None) or JSON_ONLY

    def models(self, pod: PodClient) -> Models | None:
        """The models that the pod serves, or served when it was last ready; None if it has not said so."""
        watched = self._watched.get(pod.pod.url)
        return None if watched is None else watched.models

    def was_asked_for_models(self, pod: PodClient) -> bool:
        """Whether the pod has had its chance to say which models it serves. Not so one that was never ready."""
        watched = self._watched.get(pod.pod.url)
        return watched is not None and watched.asked_models

    def failed(self, pod: PodClient) -> None:
        """A request found that the pod refuses connections: it is not ready until its next probe, made at once."""
        watched = self._watched.get(pod.pod.url)
        if watched is None:
            return
        watched.failures += 1
        self._set_ready(watched, False)
        watched.is_known = False
        watched.wake.set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Probe the pods for as long as the context lasts."""
        async with asyncio.TaskGroup() as self._running:
            for url in self._watched:
                self._start(url)
            try:
                yield
            finally:
                for task in self._tasks.values():
                    task.cancel()
                self._tasks.clear()
                self._running = None

    def _start(self, url: str) -> None:
        if self._running is not None:
            self._tasks[url] = self._running.create_task(self._watch(self._watched[url]))

    def _forget(self, url: str) -> None:
        del self._watched[url]
        if (task := self._tasks.pop(url, None)) is not None:
            task.cancel()
        for gauge in (self._metrics.pod_ready, self._metrics.pod_frames):
            with suppress(KeyError):  # older versions of the library raise it where there is none
                gauge.remove(url)

    async def _watch(self, watched: _Watched) -> None:
        while True:
            watched.wake.clear()
            failures = watched.failures
            ready = await self._probe(watched)
            if watched.failures == failures:
                self._set_ready(watched, ready)
            else:  # the probe began before the request that failed, and what it found may be no longer so
                watched.is_known = False
            await self._pause(watched)

    async def _pause(self, watched: _Watched) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._interval_s):
                await watched.wake.wait()

    def _set_ready(self, watched: _Watched, ready: bool) -> None:
        url = watched.pod.pod.url
        if ready != watched.ready:
            log.info("pod is ready" if ready else "pod is not ready", extra={"pod": url})
        watched.ready = ready
        self._metrics.pod_ready.labels(url).set(ready)

    async def _probe(self, watched: _Watched) -> bool:
        """Whether the pod is to be taken for ready now."""
        answered = ready = False
        try:
            answered = ready = await watched.pod.healthy(self._timeout_s)
            watched.late = 0
            if ready and self._asks_capabilities and not watched.is_known:
                watched.is_known = await self._ask_capabilities(watched)
            if ready and self._models_interval_s is not None:
                await self._ask_models(watched, self._models_interval_s)
        except DeadlineExceeded:
            watched.late += 1
            ready = watched.ready and watched.late < self._failures
        except Exception:  # whatever it is, the process serves on, and this pod is asked again
            log.exception("probe failed unexpectedly", extra={"pod": watched.pod.pod.url})
            ready = False
        watched.is_known = watched.is_known and answered  # whatever comes back may be another
        return ready

    async def _ask_capabilities(self, watched: _Watched) -> bool:
        """Learn what the pod can do. Returns whether it is known now; if not, it speaks JSON until it says more."""
        before, url = watched.capabilities, watched.pod.pod.url
        known = True
        try:
            found = await ask_capabilities(watched.pod, self._timeout_s)
        except ServiceError:
            found, known = JSON_ONLY, False
        watched.capabilities = found
        self._metrics.pod_frames.labels(url).set(found.speaks_frames)
        if found != before:
            log.info(
                "pod speaks frames" if found.speaks_frames else "pod speaks JSON only",
                extra={
                    "pod": url,
                    "rendergen": found.rendergen,
                    "vllm": found.vllm,
                    "fingerprint": found.fingerprint,
                },
            )
        return known

    async def _ask_models(self, watched: _Watched, interval_s: float) -> None:
        """Learn which models the pod serves, if it is time to."""
        now = asyncio.get_running_loop().time()
        if watched.ready and now < watched.models_due:
            return
        before, is_new = watched.models, not watched.asked_models
        try:
            found = await ask_models(watched.pod, self._timeout_s)
            watched.models_due = now + interval_s
        except ServiceError:
            # It may be busy: what it said while it was ready holds. One that was away may be another by now.
            found = before if watched.ready else None
        watched.asked_models = True
        watched.models = found
        if is_new or (found and list(found)) != (before and list(before)):
            names = [name[:_LOGGED_CHARACTERS] for name in list(found or ())[:_LOGGED_MODELS]]
            extra = {"pod": watched.pod.pod.url, "models": names, "number": len(found or ())}
            log.info("pod does not say which models it serves" if found is None else "pod serves models", extra=extra)
