import pytest

from tests.support.fixtures import caller, pytest_asyncio_loop_factories
from tests.support.router import generate_pod, render_pod
from tests.support.scripted_pod import ScriptedPod

__all__ = ["caller", "pytest_asyncio_loop_factories"]


@pytest.fixture
async def render() -> ScriptedPod:
    async with render_pod() as pod:
        yield pod


@pytest.fixture
async def generate() -> ScriptedPod:
    async with generate_pod() as pod:
        yield pod
