"""One stack of real vLLM processes for all tests here, started once, by the first test that asks for it.

All these tests share one event loop, because the stack and the HTTP client live in it.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Generator
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from rendergen.launcher import LaunchSettings, Stack
from tests.e2e.service_process import assert_no_traceback
from tests.e2e.tapped_stack import TappedStack, tapped_stack

HERE = Path(__file__).parent

# The first test's time has the start of vLLM in it.
TEST_TIMEOUT_S = 300
REQUEST_TIMEOUT_S = 60

# A name that no resolver knows (RFC 2606), and the only host that images may be fetched from.
UNRESOLVABLE_HOST = "no-such-host.invalid"

# What a model's generation_config.json would say. At temperature 0, which most tests use, it makes no difference.
GENERATION_DEFAULTS = {"top_k": 7}

session_async = pytest_asyncio.fixture(scope="session", loop_scope="session")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what is in this folder; without the plugin leave out what is about it."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.e2e)
            item.add_marker(pytest.mark.timeout(TEST_TIMEOUT_S))
            if pytest_asyncio.is_async_test(item):
                item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)
    if config.getoption("--no-plugin"):
        of_plugin = [item for item in items if item.get_closest_marker("plugin")]
        config.hook.pytest_deselected(items=of_plugin)
        items[:] = [item for item in items if item not in of_plugin]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Say with a failure where the processes' logs are."""
    report = yield
    stack = getattr(item, "funcargs", {}).get("stack")
    if report.failed and stack is not None:
        report.sections.append(("logs of the stack", str(stack.log_dir)))
    return report


@session_async
async def stack(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stack]:
    """The whole stack with the tiny model, on free ports. Whatever the tests do to it, it is whole in the end."""
    settings = LaunchSettings(
        port=0,
        plugin=not request.config.getoption("--no-plugin"),
        log_dir=tmp_path_factory.mktemp("stack") / "logs",
        allowed_media_domains=(UNRESOLVABLE_HOST,),
        vllm_args=("--override-generation-config", json.dumps(GENERATION_DEFAULTS)),
    )
    async with Stack(settings) as running:
        yield running
        assert [process.spec.name for process in running.processes if not process.is_running()] == []
        for process in running.processes:
            if not process.spec.role.is_vllm:
                assert_no_traceback(process.log.path.read_text())


@session_async
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    """A caller. Connections are not kept: vLLM closes them after some errors, which would show as one's own."""
    timeout = aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_S)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True), timeout=timeout) as session:
        yield session


@session_async
async def tapped(stack: Stack) -> AsyncIterator[TappedStack]:
    """A second router and second services in front of the same vLLM, with what vLLM is sent and answers recorded.

    Payloads go as JSON.
    """
    async with tapped_stack(stack, frames=False) as running:
        yield running


@session_async
async def framed(stack: Stack) -> AsyncIterator[TappedStack]:
    """The same, with payloads in frames."""
    async with tapped_stack(stack, frames=True) as running:
        yield running
