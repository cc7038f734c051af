"""Whether the pods behind this process can serve, asked in the background so that no probe of ours ever waits."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from rendergen.service.errors import DeadlineExceeded
from rendergen.service.metrics import ServiceMetrics
from rendergen.service.pods import PodClient
from rendergen.service.settings import ServiceSettings

log = logging.getLogger(__name__)


class PodWatch:
    """Keeps the last known readiness of some pods.

    Args:
        pods: whom to ask.
        settings: how often, and how long to wait.
        metrics: where readiness is shown.
    """

    def __init__(self, pods: Sequence[PodClient], settings: ServiceSettings, metrics: ServiceMetrics) -> None:
        self._pods = tuple(pods)
        self._interval_s = settings.probe_interval_s
        self._timeout_s = settings.probe_timeout_s
        self._failures = settings.probe_failures
        self._metrics = metrics
        self._ready: set[PodClient] = set()

    def is_ready(self, pod: PodClient) -> bool:
        """Whether the pod's last probe succeeded, or the last few were only late. False before the first."""
        return pod in self._ready

    def any_ready(self, pods: Sequence[PodClient] | None = None) -> bool:
        """Whether at least one of ``pods`` (default: of all) is ready."""
        return any(pod in self._ready for pod in (self._pods if pods is None else pods))

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
        while True:
            try:
                ready = await pod.healthy(self._timeout_s)
                late = 0
            except DeadlineExceeded:
                late += 1
                ready = self.is_ready(pod) and late < self._failures
            except Exception:  # whatever it is, the process serves on, and this pod is asked again
                log.exception("probe failed unexpectedly", extra={"pod": pod.pod.url})
                ready = False
            if ready != self.is_ready(pod):
                log.info("pod is ready" if ready else "pod is not ready", extra={"pod": pod.pod.url})
            (self._ready.add if ready else self._ready.discard)(pod)
            self._metrics.pod_ready.labels(pod.pod.url).set(ready)
            await asyncio.sleep(self._interval_s)
