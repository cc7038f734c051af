"""What the tests of the services share. A folder's ``conftest.py`` takes these names over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import aiohttp
import pytest
import uvloop

from tests.support.polling import LONGEST_S


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The services run on uvloop, and so do their tests: the two loops differ in what they report of a connection."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
async def caller() -> AsyncIterator[aiohttp.ClientSession]:
    """A caller of services, that waits no longer than is reasonable."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=LONGEST_S)) as session:
        yield session
