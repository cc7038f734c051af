"""A service that carries requests to a pod, in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from rendergen.service.forward import forward
from rendergen.service.pods import Pod, PodClient, open_session
from tests.support.service import QUICK, PlainSettings, handler_served


@asynccontextmanager
async def carried_to(pod_url: str, timeout_s: float = 15.0, **settings: float) -> AsyncIterator[str]:
    """A service that carries ``/path`` to ``/there`` on the pod; gives its path's address."""
    chosen = PlainSettings(**QUICK | settings)
    async with open_session(chosen) as session:
        pod = PodClient(session, Pod("engine", pod_url))

        async def carry(request: web.Request) -> web.StreamResponse:
            return await forward(request, pod, "/there", chosen, timeout_s)

        async with handler_served(carry, chosen) as url:
            yield url + "/path"
