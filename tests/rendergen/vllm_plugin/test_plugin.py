"""What becomes of a vLLM that the plugin does not fit."""

from __future__ import annotations

import pytest

from rendergen.vllm_plugin import plugin
from rendergen.vllm_plugin.internals import Need, VllmInternalsError


@pytest.fixture
def unfit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin, "NEEDS", (Need("vllm", "NoSuchName"),))


@pytest.mark.usefixtures("unfit")
def test_it_is_not_loaded() -> None:
    """vLLM logs the line, and serves without it."""
    with pytest.raises(VllmInternalsError, match=r"vllm\.NoSuchName"):
        plugin.RendergenPlugin()


@pytest.mark.usefixtures("unfit")
def test_a_server_that_was_set_up_for_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would take unsigned payloads otherwise. vLLM goes on after any Exception, which this is not."""
    monkeypatch.setenv("RENDERGEN_PLUGIN__SIGNING_KEYS_FILE", "/keys")
    with pytest.raises(SystemExit, match=r"vllm\.NoSuchName"):
        plugin.RendergenPlugin()


def test_one_that_fits() -> None:
    """Is loaded in both kinds of server."""
    made = plugin.RendergenPlugin()
    assert (made.name, made.required_tasks) == ("rendergen", None)
