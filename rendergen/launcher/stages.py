"""What a process is doing, read off the lines that it logs."""

from __future__ import annotations

import re

from rendergen.launcher.commands import Role

__all__ = ["first_stage", "stage_of"]

# A line of vLLM's log → what it means to a person who waits. The first that matches counts.
_VLLM_STAGES = [
    (re.compile(r"\b(?:Fetching|Downloading)\b.*?(\d+)%"), r"downloading the model, \1 %"),
    (re.compile(r"Loading safetensors checkpoint shards: *(\d+)%"), r"loading weights, \1 %"),
    (re.compile(r"non-default args"), "reading the model's configuration"),
    (re.compile(r"Resolved architecture"), "preparing the processor"),
    (re.compile(r"Multi-modal warmup completed"), "processor ready"),
    (re.compile(r"Initializing a V\d LLM engine"), "starting the engine's worker"),
    (re.compile(r"Starting to load model"), "loading weights"),
    (re.compile(r"Loading weights took"), "weights loaded, measuring memory"),
    (re.compile(r"Dynamo bytecode transform|Compiling a graph|torch\.compile takes"), "compiling"),
    (re.compile(r"Capturing CUDA graphs?.*?(\d+)%"), r"capturing CUDA graphs, \1 %"),
    (re.compile(r"KV cache size"), "warming up"),
    (re.compile(r"init engine .*took"), "engine ready"),
    (re.compile(r"Starting vLLM server|Application startup complete"), "opening its port"),
]


def first_stage(role: Role) -> str:
    """What a process that has logged nothing yet is doing."""
    return "importing torch and vLLM" if role.is_vllm else "waiting for what is behind it"


def stage_of(role: Role, lines: list[str]) -> str | None:
    """The stage that the latest of these lines tells; None where they tell nothing."""
    if not role.is_vllm:
        return None
    for line in reversed(lines):
        for pattern, stage in _VLLM_STAGES:
            if match := pattern.search(line):
                return match.expand(stage)
    return None
