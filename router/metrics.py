"""What the router counts beyond what every service does."""

from __future__ import annotations

from time import perf_counter

from prometheus_client import Histogram

from rendergen.service.metrics import SECONDS, ServiceMetrics


class RouterMetrics(ServiceMetrics):
    """Adds the time that each stage of a chat request takes."""

    def __init__(self) -> None:
        super().__init__()
        self.stage_seconds = Histogram(
            "rendergen_router_stage_seconds",
            "Time of each stage of a chat request: render (to the payload's first byte), generate (to the last byte of "
            "its answer, the payload's transfer included), derender. In seconds.",
            ("stage",),
            buckets=SECONDS,
            registry=self.registry,
        )

    def stages(self) -> Stages:
        """A clock for one request's stages, running from now."""
        return Stages(self.stage_seconds)


class Stages:
    """Times stages that follow one another. A stage that fails is not recorded."""

    def __init__(self, seconds: Histogram) -> None:
        self._seconds = seconds
        self._since = perf_counter()

    def end(self, stage: str) -> None:
        """``stage`` has ended, and the next begins."""
        now = perf_counter()
        self._seconds.labels(stage).observe(now - self._since)
        self._since = now
