"""How busy each pod is, for the metrics: read from the pools when asked for, so that none is shown that is gone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from router.pool import Pool


class PodMetrics(Collector):
    """The requests and payload bytes in flight on each pod of ``pools``, whatever parts it plays."""

    def __init__(self, pools: Sequence[Pool]) -> None:
        self._pools = pools

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """One sample of each for every pod that is known now."""
        requests: Counter[str] = Counter()
        payload_bytes: Counter[str] = Counter()
        for pool in self._pools:
            for pod, load in pool.loads().items():
                requests[pod.pod.url] += load.requests
                payload_bytes[pod.pod.url] += load.payload_bytes
        yield _gauge("rendergen_router_pod_requests_in_flight", "Requests in flight on the pod.", requests)
        yield _gauge(
            "rendergen_router_pod_payload_bytes_in_flight",
            "Payload bytes on their way to or from the pod.",
            payload_bytes,
        )


def _gauge(name: str, documentation: str, by_pod: Counter[str]) -> GaugeMetricFamily:
    gauge = GaugeMetricFamily(name, documentation, labels=("pod",))
    for url, value in by_pod.items():
        gauge.add_metric((url,), value)
    return gauge
