from __future__ import annotations

import pytest

from rendergen.launcher.commands import Role
from rendergen.launcher.stages import first_stage, stage_of

PREFIX = "(Worker pid=1) INFO 12-01 09:49:11 "


@pytest.mark.parametrize(
    ("line", "stage"),
    [
        (PREFIX + "[api_utils.py:286] non-default args: {}", "reading the model's configuration"),
        ("Fetching 12 files:  8%|x| 1/12", "downloading the model, 8 %"),
        ("Loading safetensors checkpoint shards:  50% Completed | 1/2", "loading weights, 50 %"),
        (PREFIX + "[core.py:133] Initializing a V1 LLM engine (v0.32.0)", "starting the engine's worker"),
        (PREFIX + "[kv_cache_utils.py:2327] CPU KV cache size: 2,097,152 tokens", "warming up"),
        ("Capturing CUDA graphs (decode):  40%|", "capturing CUDA graphs, 40 %"),
        (PREFIX + "[launcher.py:5] Starting vLLM server on http://x", "opening its port"),
        (PREFIX + "[vllm.py:1703] Enforce eager set, disabling torch.compile, CUDAGraphs", None),
        (PREFIX + "[launcher.py:186] Route: /health", None),
    ],
)
def test_stages_of_vllm(line: str, stage: str | None) -> None:
    """A line that means something to who waits, in their words; None for the others."""
    assert stage_of(Role.VLLM_ENGINE, [line]) == stage


def test_the_latest_line_counts() -> None:
    """Of several lines the last that means something."""
    lines = ["Starting to load model x...", "init engine (profile) took 2.71 s", "nothing of note"]
    assert stage_of(Role.VLLM_ENGINE, lines) == "engine ready"


def test_services_wait_for_vllm() -> None:
    """A service is up at once, and its lines say nothing about what it waits for."""
    assert stage_of(Role.ROUTER, ["Starting to load model"]) is None
    assert first_stage(Role.ROUTER) == "waiting for what is behind it"
    assert first_stage(Role.VLLM_RENDER) == "importing torch and vLLM"
