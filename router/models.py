"""``GET /v1/models``: what the pods serve, out of what they last said, so that it answers while any of them lives."""

from __future__ import annotations

from collections.abc import Sequence

from aiohttp import web

from rendergen.service.app import Handler
from rendergen.service.errors import Unavailable
from rendergen.service.served_models import ServedModel
from router.pool import Pool


def models_handler(pools: Sequence[Pool]) -> Handler:
    """Answers with the models of the ready pods of ``pools``, each id once: the first pool's object, unchanged.

    Raises (when called):
        Unavailable: no pod of any pool is ready.
    """

    async def models(_: web.Request) -> web.Response:
        if not any(pool.any_ready() for pool in pools):
            raise Unavailable("No pod is ready. Try again shortly.")
        found: dict[str, ServedModel] = {}
        for pool in pools:
            for name, model in pool.models().items():
                found.setdefault(name, model)
        listed = b",".join(model.raw for model in found.values())
        return web.Response(body=b'{"object":"list","data":[%b]}' % listed, content_type="application/json")

    return models
