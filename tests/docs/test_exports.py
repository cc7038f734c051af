import importlib
import pkgutil
from types import FunctionType, ModuleType

import pytest

PACKAGES = ("rendergen", "router", "render_service", "generate_service")
# Imports vLLM, which the base installation does not have.
NEEDS_VLLM = "rendergen.vllm_plugin"


def packages(root: str) -> list[str]:
    """The package ``root`` and those within it."""
    path = importlib.import_module(root).__path__
    inner = [info.name for info in pkgutil.iter_modules(path, root + ".") if info.ispkg and info.name != NEEDS_VLLM]
    return [root, *(name for each in inner for name in packages(each))]


def packages_with_exports() -> list[str]:
    """Every package of ours that says what it exports."""
    found = [name for root in PACKAGES for name in packages(root)]
    return [name for name in found if hasattr(importlib.import_module(name), "__all__")]


EXPORTING = packages_with_exports()


def defined_here(package: ModuleType) -> set[str]:
    """The public names that the package's ``__init__`` binds, but for its submodules and what others made."""

    def is_ours(value: object) -> bool:
        made = isinstance(value, type | FunctionType)
        return not isinstance(value, ModuleType) and (not made or value.__module__.split(".")[0] in PACKAGES)

    return {
        name for name, value in vars(package).items() if name[0] != "_" and name != "annotations" and is_ours(value)
    }


def test_the_payload_package_is_among_them() -> None:
    """The search finds packages at all."""
    assert "rendergen.payload" in EXPORTING


@pytest.mark.parametrize("name", EXPORTING)
def test_what_a_package_exports_is_there(name: str) -> None:
    """Every name of ``__all__`` exists, once, in order; what else the package binds is private."""
    package = importlib.import_module(name)
    exported = list(package.__all__)
    assert len(exported) == len(set(exported))
    assert exported == sorted(exported, key=lambda each: (not each.isupper(), each[0].islower(), each))
    assert set(exported) == defined_here(package)
