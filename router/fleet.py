"""The pods behind the router, put together: found, watched, and in pools by what they are asked to do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import aiohttp

from rendergen.service.health import PodWatch
from rendergen.service.metrics import ServiceMetrics
from router.discovery import Discovery, Resolve, system_addresses
from router.pod_metrics import PodMetrics
from router.pool import Pool
from router.settings import RouterSettings

RENDER, GENERATE = "render pod", "generate pod"


class Fleet:
    """All pods.

    Attributes:
        render: the pods that render.
        derender: the same pods as those that derender: what they are busy with is counted, and their turn taken, apart.
            A derender in a stream lasts for as long as its generation and costs little; were it counted with the
            renders, a pod that comes anew would get all of those until it had as many streams as the others.
        generate: the pods that generate.

    Args:
        session: the process's HTTP client.
        settings: which pods, and how often they are asked.
        metrics: where they are shown.
        resolve: gives a name's addresses.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        settings: RouterSettings,
        metrics: ServiceMetrics,
        resolve: Resolve = system_addresses,
    ) -> None:
        self._watch = PodWatch(
            (), settings, metrics, asks_capabilities=True, models_interval_s=settings.models_interval_s
        )
        self._discovery = Discovery(
            session,
            {RENDER: settings.render_pods, GENERATE: settings.generate_pods},
            self._watch,
            interval_s=settings.dns_interval_s,
            timeout_s=settings.dns_timeout_s,
            resolve=resolve,
        )
        self.render, self.derender, self.generate = (
            Pool(role, partial(self._discovery.pods, role), self._watch, json_unsafe=settings.json_unsafe_models)
            for role in (RENDER, RENDER, GENERATE)
        )
        metrics.registry.register(PodMetrics((self.render, self.derender, self.generate)))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Find and ask the pods for as long as the context lasts."""
        async with self._watch.running(), self._discovery.running():
            yield

    def any_ready(self) -> bool:
        """Whether a request could be served: a pod of each role is ready."""
        return self.render.any_ready() and self.generate.any_ready()
