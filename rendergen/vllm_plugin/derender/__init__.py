"""Derender in a stream: generate's events in, the answer that one vLLM server would give out, over one connection.

The protocol is in `docs/derender-stream.md`. Nothing here imports vLLM before `attach` is called.
"""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING, Any

from rendergen.vllm_plugin.derender.limits import DerenderLimits
from rendergen.vllm_plugin.derender.needs import NEEDS

if TYPE_CHECKING:
    from fastapi import FastAPI

__all__ = ["NEEDS", "DerenderLimits", "attach", "init_state"]


def attach(app: FastAPI) -> None:
    """Add the routes. They answer 503 until `init_state` was called."""
    from rendergen.vllm_plugin.derender import routes

    routes.attach(app)


def init_state(state: Any, args: Namespace, limits: DerenderLimits | None = None) -> None:
    """Make what the routes stand on, once vLLM's own state is made: in the render server and in the engine's."""
    from rendergen.vllm_plugin.derender import routes

    routes.init_state(state, args, limits or DerenderLimits())
