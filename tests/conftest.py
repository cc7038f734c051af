"""What holds for every test: the developer's own settings stay out, and the quick tests come first."""

from __future__ import annotations

import os

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--no-plugin``: the end-to-end tests on bare vLLM."""
    parser.addoption("--no-plugin", action="store_true", help="run vLLM without rendergen's plugin in the e2e tests")


def pytest_configure() -> None:
    """Forget the services' settings of this shell: a test gets the defaults, and the settings that it names."""
    for name in [name for name in os.environ if name.startswith("RENDERGEN_")]:
        del os.environ[name]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put what needs vLLM last, so that a plain mistake shows before a minute is spent on starting it."""
    items.sort(key=lambda item: item.get_closest_marker("e2e") is not None)
