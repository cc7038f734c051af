"""What vLLM loads: the entry point `rendergen` of the group `vllm.endpoint_plugins`."""

from __future__ import annotations

import os
from argparse import Namespace
from typing import TYPE_CHECKING, Any

from rendergen.vllm_plugin.internals import VllmInternalsError, check
from rendergen.vllm_plugin.needs import NEEDS
from rendergen.vllm_plugin.settings import ENVIRONMENT_PREFIX

if TYPE_CHECKING:
    from fastapi import FastAPI


class RendergenPlugin:
    """vLLM's `EndpointPlugin`, in the render server and in the engine's API server.

    Raises VllmInternalsError when made, if this vLLM is not what it was written for: vLLM then logs it and serves
    without the plugin, which its callers see by `GET /inference/v1/rendergen`. Where any of the plugin's settings is in
    the environment, the process ends instead.
    """

    name = "rendergen"
    required_tasks = None

    def __init__(self) -> None:
        try:
            check(NEEDS)
        except VllmInternalsError as error:
            if any(name.startswith(ENVIRONMENT_PREFIX) for name in os.environ):
                # vLLM would go on without what it was set up to have, a signing key for one.
                raise SystemExit(str(error)) from error
            raise

    def attach_router(self, app: FastAPI) -> None:
        """Add the routes. Those with a core route's path and method take its place."""
        from rendergen.vllm_plugin import routes

        routes.attach(app)

    async def init_state(self, engine_client: Any, state: Any, args: Namespace) -> None:
        """Make what the routes stand on. `engine_client` is None in the render server."""
        from rendergen.vllm_plugin import routes

        await routes.init_state(engine_client, state, args)
