"""The router's pods without the router: pools before scripted pods, and what those say they serve."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from rendergen.service.metrics import ServiceMetrics
from rendergen.service.pods import PodClient, open_session
from router.discovery import Resolve, system_addresses
from router.fleet import Fleet
from router.pool import Pool
from router.settings import RouterSettings
from tests.support.polling import eventually
from tests.support.scripted_pod import ScriptedPod
from tests.support.service import QUICK

FRAMES = b'{"payload_versions":[1],"supports":{"derender_stream":["/v1/messages/derender/stream"]}}'


def serving(*names: str) -> bytes:
    """What a pod that serves those models answers to ``/v1/models``."""
    return json.dumps({"object": "list", "data": [{"id": name, "object": "model"} for name in names]}).encode()


@asynccontextmanager
async def fleet(
    render: Sequence[ScriptedPod | str] = (),
    generate: Sequence[ScriptedPod | str] = (),
    *,
    metrics: ServiceMetrics | None = None,
    resolve: Resolve = system_addresses,
    **settings: object,
) -> AsyncIterator[Fleet]:
    """A running fleet of those pods, or of what those entries say. It asks often, and nothing has been asked yet."""
    chosen = RouterSettings(
        render_pods=tuple(entry if isinstance(entry, str) else entry.url for entry in render) or ("http://nobody:1",),
        generate_pods=tuple(entry if isinstance(entry, str) else entry.url for entry in generate)
        or ("http://nobody:1",),
        **QUICK | {"models_interval_s": 0.02, "dns_interval_s": 0.02} | settings,
    )
    async with open_session(chosen) as session:
        made = Fleet(session, chosen, metrics or ServiceMetrics(), resolve)
        async with made.running():
            yield made


async def all_ready(pool: Pool) -> Sequence[PodClient]:
    """The pool's pods, once all of them are ready."""
    await eventually(lambda: pool.can_take() and len(pool.ready()) == len(pool.pods))
    return pool.pods
