"""Where keys come from, and which are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from rendergen.vllm_plugin.settings import PluginSettings
from rendergen.vllm_plugin.trust.keys import Keys, KeysError

ONE, TWO = "a" * 32, "b" * 32


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    return monkeypatch


def test_no_keys() -> None:
    """Nothing is configured: nothing is signed."""
    assert not Keys.of(PluginSettings())


def test_keys_of_the_environment(environment: pytest.MonkeyPatch) -> None:
    """In order, without the spaces around them; each is derived, none is used as it is."""
    environment.setenv("RENDERGEN_PLUGIN__SIGNING_KEYS", f" {ONE}, {TWO},")
    both = Keys.of(PluginSettings())
    environment.setenv("RENDERGEN_PLUGIN__SIGNING_KEYS", TWO)
    second = Keys.of(PluginSettings())
    assert [len(key) for key in both.accepted] == [32, 32]
    assert both.accepted[1:] == second.accepted
    assert TWO.encode() not in second.accepted


def test_keys_of_a_file(environment: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One a line, and the same keys as by the environment."""
    environment.setenv("RENDERGEN_PLUGIN__SIGNING_KEYS", f"{ONE},{TWO}")
    by_environment = Keys.of(PluginSettings())
    environment.delenv("RENDERGEN_PLUGIN__SIGNING_KEYS")
    (tmp_path / "keys").write_text(f"{ONE}\n\n{TWO}\n")
    environment.setenv("RENDERGEN_PLUGIN__SIGNING_KEYS_FILE", str(tmp_path / "keys"))
    assert Keys.of(PluginSettings()) == by_environment


@pytest.mark.parametrize("content", [None, b"", b"\n \n", b"short\n", b"\xff" * 40])
def test_a_file_that_holds_no_keys(environment: pytest.MonkeyPatch, tmp_path: Path, content: bytes | None) -> None:
    """Missing, empty, too short or no text: a server that was to sign must not start unsigned."""
    if content is not None:
        (tmp_path / "keys").write_bytes(content)
    environment.setenv("RENDERGEN_PLUGIN__SIGNING_KEYS_FILE", str(tmp_path / "keys"))
    with pytest.raises(KeysError):
        Keys.of(PluginSettings())


def test_a_short_key(environment: pytest.MonkeyPatch) -> None:
    """Is refused, and not shown."""
    environment.setenv("RENDERGEN_PLUGIN__SIGNING_KEYS", f"{ONE},secret")
    with pytest.raises(KeysError) as caught:
        Keys.of(PluginSettings())
    assert "secret" not in str(caught.value)


def test_keys_are_not_shown(environment: pytest.MonkeyPatch) -> None:
    """Not by the settings, which somebody may log."""
    environment.setenv("RENDERGEN_PLUGIN__SIGNING_KEYS", ONE)
    assert ONE not in repr(PluginSettings())
