from __future__ import annotations

import importlib
import pkgutil

import pytest

import rendergen.launcher

MODULES = sorted(module.name for module in pkgutil.iter_modules(rendergen.launcher.__path__) if not module.ispkg)


@pytest.mark.parametrize("name", ["", *(f".{name}" for name in MODULES if name != "guard")])
def test_all_is_true(name: str) -> None:
    """Every name in `__all__` is there, in order, and every module has one."""
    module = importlib.import_module(f"rendergen.launcher{name}")
    assert all(hasattr(module, public) for public in module.__all__)
    assert module.__all__ == sorted(module.__all__)
