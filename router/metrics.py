"""What the router counts beyond what every service does."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

from prometheus_client import Counter, Histogram

from rendergen.service.metrics import SECONDS, ServiceMetrics


class RouterMetrics(ServiceMetrics):
    """Adds the time that each stage of a request takes, and what its payload is."""

    def __init__(self) -> None:
        super().__init__()
        self.stage_seconds = Histogram(
            "rendergen_router_stage_seconds",
            "Time of each stage of a request, in seconds: render (to the payload's first byte), generate and derender "
            "(to the answer's last byte, or a stream's first event; generate has the payload's transfer in it). What "
            "is tried again counts each time.",
            ("stage",),
            buckets=SECONDS,
            registry=self.registry,
        )
        self.payloads = Counter(
            "rendergen_router_payloads",
            "Payloads of requests that were carried to a generate pod and answered, by encoding: json, frames.",
            ("encoding",),
            registry=self.registry,
        )
        self.payload_bytes = Counter(
            "rendergen_router_payload_bytes",
            "Bytes of those payloads, as render pods gave them.",
            ("encoding",),
            registry=self.registry,
        )

    def carried(self, encoding: str, size: int) -> None:
        """A payload of ``size`` bytes has been carried."""
        self.payloads.labels(encoding).inc()
        self.payload_bytes.labels(encoding).inc(size)

    def stages(self) -> Stages:
        """A clock for one request's stages, running from now."""
        return Stages(self.stage_seconds)


class Stages:
    """Times stages that follow one another. A stage that fails is not recorded."""

    def __init__(self, seconds: Histogram) -> None:
        self._seconds = seconds
        self._since = perf_counter()
        self._ended: dict[str, float] = {}

    def begin(self) -> None:
        """What was since the last stage's end belongs to none: the next begins now."""
        self._since = perf_counter()

    def end(self, stage: str) -> None:
        """``stage`` has ended, and the next begins."""
        now = perf_counter()
        self._seconds.labels(stage).observe(now - self._since)
        self._ended[stage] = now - self._since
        self._since = now

    @classmethod
    def slowest_of(cls, many: Sequence[Stages]) -> Stages:
        """Of requests that were served at the same time: for each stage the longest."""
        slowest = cls(many[0]._seconds)
        for stages in many:
            for stage, seconds in stages._ended.items():
                slowest._ended[stage] = max(seconds, slowest._ended.get(stage, 0.0))
        return slowest

    def server_timing(self) -> str:
        """The stages that have ended, as the value of ``Server-Timing``: names and milliseconds."""
        return ", ".join(f"{stage};dur={1000 * seconds:.1f}" for stage, seconds in self._ended.items())
