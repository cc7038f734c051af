"""The plugin's routes, and the state behind them."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from fastapi import FastAPI

from rendergen.vllm_plugin import derender


def attach(app: FastAPI) -> None:
    """Add all routes to vLLM's app."""
    derender.attach(app)


async def init_state(engine_client: Any, state: Any, args: Namespace) -> None:
    """Called once vLLM's own state is made."""
    derender.init_state(state, args)
