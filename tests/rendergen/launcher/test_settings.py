from __future__ import annotations

from pathlib import Path

import pytest

from rendergen.launcher.settings import LaunchSettings
from rendergen.tiny_model import TINY_MODEL_NAME, TINY_MODEL_PATH


def test_the_default_is_the_tiny_model() -> None:
    """With no settings at all the model that is shipped is served, under its name."""
    assert LaunchSettings().model_path == TINY_MODEL_PATH
    assert LaunchSettings().name == TINY_MODEL_NAME


@pytest.mark.parametrize(
    ("model", "served", "name"),
    [("Qwen/Qwen3-VL-2B", "", "Qwen/Qwen3-VL-2B"), ("Qwen/Qwen3-VL-2B", "mine", "mine"), ("./own", "", "own")],
)
def test_the_served_name(model: str, served: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub's name, a directory's own name, or the one that was asked for."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own").mkdir()
    assert LaunchSettings(model=model, served_model_name=served).name == name


@pytest.mark.parametrize(
    ("model", "is_path"),
    [("org/model", False), ("model", False), ("/x", True), ("./x", True), ("~/x", True), ("here", True)],
)
def test_path_or_name(model: str, is_path: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What looks like a path, or exists, is one; all else is a name on the hub."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    assert (LaunchSettings(model=model).model_path is not None) is is_path
