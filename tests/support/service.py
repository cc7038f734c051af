"""A service in this process, on a free loopback port, with limits that suit tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from pydantic_settings import SettingsConfigDict

from rendergen.service.app import Handler, make_app
from rendergen.service.metrics import ServiceMetrics
from rendergen.service.process import serving
from rendergen.service.settings import ServiceSettings

QUICK = {"probe_interval_s": 0.02, "probe_timeout_s": 10.0, "drain_timeout_s": 0.1}


class PlainSettings(ServiceSettings):
    """The settings of a service that has none of its own."""

    model_config = SettingsConfigDict(env_prefix="RENDERGEN_PLAIN__", cli_prog_name="plain")


@asynccontextmanager
async def handler_served(handler: Handler, settings: ServiceSettings | None = None) -> AsyncIterator[str]:
    """A service whose ``/path`` is ``handler``; gives its address."""
    app = make_app(ServiceMetrics(), lambda: True)
    app.router.add_route("*", "/path", handler)
    async with app_served(app, settings or PlainSettings(**QUICK)) as url:
        yield url


@asynccontextmanager
async def app_served(app: web.Application, settings: ServiceSettings) -> AsyncIterator[str]:
    """``app``, served; gives its address."""
    async with serving(app, settings) as url:
        yield url
