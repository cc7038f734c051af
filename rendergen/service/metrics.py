"""What every service process counts, in Prometheus' form. One registry a process, made by whoever wires it."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class ServiceMetrics:
    """The metrics of requests; a service adds its own to ``registry``."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self.requests = Counter(
            "rendergen_requests",
            "Requests answered, by route and HTTP status.",
            ("method", "route", "status"),
            registry=self.registry,
        )
        self.seconds = Histogram(
            "rendergen_request_seconds",
            "Time from a request's head to the last byte of its answer, in seconds.",
            ("method", "route"),
            buckets=SECONDS,
            registry=self.registry,
        )
        self.in_flight = Gauge("rendergen_requests_in_flight", "Requests being served.", registry=self.registry)
        self.body_bytes = Counter(
            "rendergen_body_bytes",
            "Bytes of request bodies taken in and of answer bodies given out.",
            ("direction",),
            registry=self.registry,
        )
        self.pod_ready = Gauge(
            "rendergen_pod_ready", "1 while the pod's last health probe succeeded.", ("pod",), registry=self.registry
        )
        self.pod_frames = Gauge(
            "rendergen_pod_frames",
            "1 if the pod takes and gives payloads in frames, 0 if in JSON only; for pods that were asked.",
            ("pod",),
            registry=self.registry,
        )

    def exposition(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self.registry)
