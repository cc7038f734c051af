"""What makes another fingerprint, and what does not."""

from __future__ import annotations

import json
import shutil
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import torch
import vllm
from transformers import AutoTokenizer

from rendergen.tiny_model import TINY_MODEL_PATH
from rendergen.vllm_plugin.trust.fingerprint import digest, facts, fingerprint_of, public_version


class State:
    """A server's state, as far as the fingerprint looks at it."""

    def __init__(self, path: Path, **changes: Any) -> None:
        multimodal = Namespace(mm_processor_kwargs=None, mm_device_do_normalize=True)
        model = Namespace(
            model=str(path),
            revision=None,
            dtype=torch.bfloat16,
            hf_overrides={},
            multimodal_config=multimodal,
            quantization=None,
        )
        for name, value in changes.items():
            setattr(multimodal if hasattr(multimodal, name) else model, name, value)
        self.vllm_config = Namespace(model_config=model, cache_config=Namespace(cache_dtype="auto"))
        tokenizer = AutoTokenizer.from_pretrained(str(path))
        self.online_renderer = Namespace(renderer=Namespace(tokenizer=tokenizer), chat_template=None)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A copy of the tiny model's files, to be changed."""
    for file in TINY_MODEL_PATH.iterdir():
        if file.suffix != ".safetensors":
            shutil.copy(file, tmp_path)
    return tmp_path


def change(path: Path, file: str, **members: Any) -> None:
    """Set members of a JSON file."""
    whole = json.loads((path / file).read_text())
    (path / file).write_text(json.dumps({**whole, **members}))


def test_the_same_model_elsewhere(model: Path) -> None:
    """A copy of the files has the fingerprint of the original: where they lie is no part of it."""
    assert fingerprint_of(State(model)) == fingerprint_of(State(TINY_MODEL_PATH))


def test_what_may_differ_between_pods(model: Path) -> None:
    """Quantization, and what says how weights are stored."""
    before = fingerprint_of(State(model))
    change(model, "config.json", quantization_config={"bits": 4}, dtype="float16", transformers_version="1")
    assert fingerprint_of(State(model, quantization="awq")) == before


CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "the model": ("config.json", {"image_token_id": 9}),
    "the processor": ("preprocessor_config.json", {"patch_size": 8}),
}


@pytest.mark.parametrize(("file", "members"), CONFIGS.values(), ids=CONFIGS)
def test_files_that_must_agree(model: Path, file: str, members: dict[str, Any]) -> None:
    """Another value in one of them is another fingerprint."""
    before = fingerprint_of(State(model))
    change(model, file, **members)
    assert fingerprint_of(State(model)) != before


SETTINGS: dict[str, dict[str, Any]] = {
    "dtype": {"dtype": torch.float16},
    "processor kwargs": {"mm_processor_kwargs": {"max_pixels": 1}},
    "where pixels are normalised": {"mm_device_do_normalize": False},
    "overrides": {"hf_overrides": {"x": 1}},
}


@pytest.mark.parametrize("changes", SETTINGS.values(), ids=SETTINGS)
def test_flags_that_must_agree(changes: dict[str, Any]) -> None:
    """Another value is another fingerprint."""
    assert fingerprint_of(State(TINY_MODEL_PATH, **changes)) != fingerprint_of(State(TINY_MODEL_PATH))


def test_another_tokenizer_or_template() -> None:
    """One token more, or another template by a flag."""
    before = fingerprint_of(State(TINY_MODEL_PATH))
    state = State(TINY_MODEL_PATH)
    state.online_renderer.renderer.tokenizer.add_tokens(["<new>"])
    assert fingerprint_of(state) != before
    state = State(TINY_MODEL_PATH)
    state.online_renderer.chat_template = "{{ messages }}"
    assert fingerprint_of(state) != before


def test_what_a_tokenizer_was_last_used_for() -> None:
    """Is no part of it: truncation and padding are set by every call."""
    state = State(TINY_MODEL_PATH)
    before = fingerprint_of(state)
    backend = state.online_renderer.renderer.tokenizer.backend_tokenizer
    backend.enable_truncation(5)
    backend.enable_padding()
    assert fingerprint_of(state) == before


def test_builds_of_one_version_of_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Official CPU builds say 0.32.0+cpu, GPU builds 0.32.0; another release is another."""
    state = State(TINY_MODEL_PATH)
    before = fingerprint_of(state)
    monkeypatch.setattr(vllm, "__version__", public_version(vllm.__version__) + "+cpu")
    assert fingerprint_of(state) == before
    monkeypatch.setattr(vllm, "__version__", "0.33.0")
    assert fingerprint_of(state) != before


@pytest.mark.parametrize(("version", "public"), [("0.32.0+cpu", "0.32.0"), ("0.32.0", "0.32.0"), ("1.0rc1", "1.0rc1")])
def test_public_versions(version: str, public: str) -> None:
    """Without the local part."""
    assert public_version(version) == public


def test_the_order_of_members_does_not_matter() -> None:
    """Two pods may read a file's members in another order."""
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})


def test_facts_name_what_is_compared() -> None:
    """For whoever has to find out why two pods disagree."""
    assert set(facts(State(TINY_MODEL_PATH))) == {
        *("vllm", "model", "overrides", "dtype", "processor", "mm_processor_kwargs", "mm_device_do_normalize"),
        *("tokenizer", "chat_template", "processor_chat_template"),
    }
