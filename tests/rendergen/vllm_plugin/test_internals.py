"""What is missing of vLLM's internals is named, all of it in one line."""

from __future__ import annotations

import pytest

from rendergen.vllm_plugin.internals import Need, VllmInternalsError, check
from rendergen.vllm_plugin.needs import NEEDS

PROTOCOL = "vllm.entrypoints.scale_out.token_in_token_out.protocol"


def test_this_vllm_has_all_that_is_used() -> None:
    """The version that is pinned."""
    check(NEEDS)


MISSING = {
    "a module": (Need("vllm.no_such_module", "x"), "vllm.no_such_module"),
    "a name": (Need("vllm", "NoSuchName"), "vllm.NoSuchName"),
    "a method": (Need("vllm", "SamplingParams.no_such"), "vllm.SamplingParams.no_such"),
    "a parameter": (Need("vllm.inputs", "mm_input", ("prompt_token_ids", "no_such")), "vllm.inputs.mm_input(no_such)"),
    "a field": (Need(PROTOCOL, "GenerateRequest", fields=("model", "no_such")), f"{PROTOCOL}.GenerateRequest.no_such"),
}


@pytest.mark.parametrize(("need", "named"), MISSING.values(), ids=MISSING)
def test_what_is_missing_is_named(need: Need, named: str) -> None:
    """By its full name."""
    assert need.missing() is not None
    assert str(need.missing()).startswith(named)


def test_all_that_is_missing_is_in_one_line() -> None:
    """With the version that was found and the one that was expected."""
    needs = tuple(need for need, _ in MISSING.values())
    with pytest.raises(VllmInternalsError) as caught:
        check((*needs, Need("vllm", "SamplingParams")))
    message = str(caught.value)
    assert "\n" not in message
    assert "0.32.0" in message
    assert all(named in message for _, named in MISSING.values())
