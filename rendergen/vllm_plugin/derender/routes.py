"""The routes of derender in a stream."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from starlette.responses import Response

from rendergen.vllm_plugin.derender.answer import DerenderAnswer
from rendergen.vllm_plugin.derender.dialects import DIALECTS, Dialect
from rendergen.vllm_plugin.derender.limits import DerenderLimits
from rendergen.vllm_plugin.derender.servings import make_servings

_SERVINGS = "rendergen_derender_servings"
_LIMITS = "rendergen_derender_limits"


def attach(app: FastAPI) -> None:
    """Add a route for each API."""
    router = APIRouter()
    for dialect in DIALECTS:
        router.add_api_route(dialect.path, _endpoint(dialect), methods=["POST"], name=dialect.path)
    app.include_router(router)


def init_state(state: Any, args: Namespace, limits: DerenderLimits) -> None:
    """Make the serving objects, from `app.state` as vLLM has made it. A model that generates nothing has none."""
    setattr(state, _LIMITS, limits)
    if getattr(state, "openai_serving_chat", True) is None:  # of the render server's state it is no part
        return
    setattr(state, _SERVINGS, make_servings(state, args))


def _endpoint(dialect: Dialect) -> Callable[[Request], Awaitable[Response]]:
    async def derender_stream(raw_request: Request) -> Response:
        state = raw_request.app.state
        limits = getattr(state, _LIMITS, None) or DerenderLimits()
        return DerenderAnswer(dialect, getattr(state, _SERVINGS, None), limits)

    # FastAPI reads annotations by their names in the module, where a closure's are strings.
    derender_stream.__annotations__ = {"raw_request": Request, "return": Response}
    return derender_stream
