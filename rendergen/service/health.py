"""Whether the pods behind this process can serve, and what they can do: asked in the background.

So no probe of ours, and no request, ever waits for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from rendergen.service.capabilities import JSON_ONLY, Capabilities, ask_capabilities
from rendergen.service.errors import DeadlineExceeded, ServiceError
from rendergen.service.metrics import ServiceMetrics
from rendergen.service.pods import PodClient
from rendergen.service.settings import ServiceSettings

log = logging.getLogger(__name__)


class PodWatch:
    """Keeps the last known readiness of some pods, and what they can do.

    Args:
        pods: whom to ask.
        settings: how often, and how long to wait.
        metrics: where readiness is shown.
        asks_capabilities: whether to ask the pods what they can do.
    """

    def __init__(
        self,
        pods: Sequence[PodClient],
        settings: ServiceSettings,
        metrics: ServiceMetrics,
        *,
        asks_capabilities: bool = False,
    ) -> None:
        self._pods = tuple(pods)
        self._interval_s = settings.probe_interval_s
        self._timeout_s = settings.probe_timeout_s
        self._failures = settings.probe_failures
        self._metrics = metrics
        self._asks_capabilities = asks_capabilities
        self._ready: set[PodClient] = set()
        self._capabilities: dict[PodClient, Capabilities] = {}

    def is_ready(self, pod: PodClient) -> bool:
        """Whether the pod's last probe succeeded, or the last few were only late. False before the first."""
        return pod in self._ready

    def any_ready(self, pods: Sequence[PodClient] | None = None) -> bool:
        """Whether at least one of ``pods`` (default: of all) is ready."""
        return any(pod in self._ready for pod in (self._pods if pods is None else pods))

    def capabilities(self, pod: PodClient) -> Capabilities:
        """What the pod can do: asked before it is taken for ready, and again whenever it comes back."""
        return self._capabilities.get(pod, JSON_ONLY)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Probe all pods for as long as the context lasts."""
        async with asyncio.TaskGroup() as tasks:
            watches = [tasks.create_task(self._watch(pod)) for pod in self._pods]
            try:
                yield
            finally:
                for watch in watches:
                    watch.cancel()

    async def _watch(self, pod: PodClient) -> None:
        late = 0
        known = False
        while True:
            answered = ready = False
            try:
                answered = ready = await pod.healthy(self._timeout_s)
                late = 0
                if ready and self._asks_capabilities and not known:
                    known = await self._ask_capabilities(pod)
            except DeadlineExceeded:
                late += 1
                ready = self.is_ready(pod) and late < self._failures
            except Exception:  # whatever it is, the process serves on, and this pod is asked again
                log.exception("probe failed unexpectedly", extra={"pod": pod.pod.url})
                ready = False
            known = known and answered  # whatever comes back may be another
            if ready != self.is_ready(pod):
                log.info("pod is ready" if ready else "pod is not ready", extra={"pod": pod.pod.url})
            (self._ready.add if ready else self._ready.discard)(pod)
            self._metrics.pod_ready.labels(pod.pod.url).set(ready)
            await asyncio.sleep(self._interval_s)

    async def _ask_capabilities(self, pod: PodClient) -> bool:
        """Learn what the pod can do. Returns whether it is known now; if not, it speaks JSON until it says more."""
        before = self._capabilities.get(pod)
        known = True
        try:
            found = await ask_capabilities(pod, self._timeout_s)
        except ServiceError:
            found, known = JSON_ONLY, False
        self._capabilities[pod] = found
        self._metrics.pod_frames.labels(pod.pod.url).set(found.speaks_frames)
        if found != before:
            log.info(
                "pod speaks frames" if found.speaks_frames else "pod speaks JSON only",
                extra={
                    "pod": pod.pod.url,
                    "rendergen": found.rendergen,
                    "vllm": found.vllm,
                    "fingerprint": found.fingerprint,
                },
            )
        return known
