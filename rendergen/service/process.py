"""A service process's life: listen, serve until told to stop, drain, exit."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import uvloop
from aiohttp import web

from rendergen.service import logs
from rendergen.service.app import LIFECYCLE
from rendergen.service.memory import keep_freed_memory
from rendergen.service.settings import ServiceSettings

log = logging.getLogger(__name__)

# Above the usual idle time of load balancers and clients (60 s), so that they, not we, close idle connections.
KEEPALIVE_TIMEOUT_S = 75.0

# For cancelled requests to end: they have connections to close, nothing more.
CLOSE_TIMEOUT_S = 1.0


class CannotListen(Exception):
    """The address that a service was told to listen on cannot be listened on."""


def run(name: str, settings: ServiceSettings, make_app: Callable[[], Awaitable[web.Application]]) -> int:
    """Run a service until SIGTERM or SIGINT.

    Args:
        name: of the service, for its logs.
        settings: where to listen, and how to drain.
        make_app: makes the application, inside the event loop.

    Returns:
        The process's exit code: 0 after a drain, 1 if it could not listen.
    """
    logs.configure(name, settings.log_level)
    keep_freed_memory()

    async def main() -> int:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        try:
            async with serving(await make_app(), settings):
                await stop.wait()
        except CannotListen as error:
            print(f"{name}: {error}", file=sys.stderr)
            return 1
        return 0

    return uvloop.run(main())


@asynccontextmanager
async def serving(app: web.Application, settings: ServiceSettings) -> AsyncIterator[str]:
    """Serve ``app`` while the context lasts; on leaving it, drain.

    Draining is: readiness off; ``drain_delay_s`` in which requests are still taken; then no new connection, idle ones
    closed, requests in flight given ``drain_timeout_s`` to end; what is left then is cancelled.

    Yields:
        The base URL.

    Raises:
        CannotListen: the address is taken, or is none of this machine's.
    """

    async def drain(app: web.Application) -> None:
        await app[LIFECYCLE].drain(settings.drain_timeout_s)

    app.on_shutdown.append(drain)
    runner = web.AppRunner(
        app,
        access_log=None,
        handler_cancellation=True,  # a caller that leaves stops the work on the pods
        keepalive_timeout=KEEPALIVE_TIMEOUT_S,
        auto_decompress=False,
        shutdown_timeout=CLOSE_TIMEOUT_S,  # of aiohttp's own drain, which is after ours, and would wait twice as long
    )
    try:
        await runner.setup()
        try:
            await web.TCPSite(runner, settings.host, settings.port).start()
        except OSError as error:
            raise CannotListen(f"cannot listen on {settings.host}:{settings.port}: {error.strerror}") from error
        host, port = runner.addresses[0][:2]
        url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        log.info("listening", extra={"url": url})
        yield url
        app[LIFECYCLE].draining = True
        log.info("draining", extra={"delay_s": settings.drain_delay_s, "timeout_s": settings.drain_timeout_s})
        await asyncio.sleep(settings.drain_delay_s)
    finally:
        await runner.cleanup()
    log.info("stopped")
