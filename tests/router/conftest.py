import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.api_keys import FILE
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


@pytest.fixture
def keys_file(tmp_path: Path) -> Path:
    """The good keys: alice's ``A`` and bob's ``B``."""
    path = tmp_path / "secret-place"
    path.write_text(FILE)
    path.chmod(0o600)
    return path


@pytest.fixture
def pod_key_file(tmp_path: Path) -> Path:
    """The pods' key, ``of-the-pods``."""
    path = tmp_path / "secret-place-too"
    path.write_text("of-the-pods\n")
    path.chmod(0o600)
    return path


@pytest.fixture
def everything_logged(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.DEBUG):
        yield caplog
