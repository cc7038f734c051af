"""The fingerprint: one digest of all that a render pod and a generate pod must have in common."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import blake3
import vllm
from vllm.transformers_utils.repo_utils import try_get_local_file

# Of the model's config file: what says how it is computed, or where it came from, rather than what it computes.
_NOT_COMPARED = ("quantization_config", "torch_dtype", "dtype", "transformers_version", "_name_or_path", "_commit_hash")
_TEMPLATE_FILES = ("chat_template.json", "chat_template.jinja")
_PROCESSOR_FILES = ("preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json")


def fingerprint_of(state: Any) -> str:
    """The fingerprint of the server whose app state this is, 64 hexadecimal digits.

    Render pod and generate pod may differ in device, quantization and cache; whatever makes other features or token
    ids of the same request may not.
    """
    return digest(facts(state))


def digest(known: Mapping[str, Any]) -> str:
    """The digest of ``known``, whatever order its members have."""
    return blake3.blake3(json.dumps(known, sort_keys=True, default=str).encode()).hexdigest()


def facts(state: Any) -> dict[str, Any]:
    """What is in the fingerprint, by name."""
    model = state.vllm_config.model_config
    multimodal = model.multimodal_config
    renderer = state.online_renderer
    tokenizer = renderer.renderer.tokenizer
    return {
        "vllm": public_version(vllm.__version__),
        "model": _model_config(model),
        "overrides": model.hf_overrides if isinstance(model.hf_overrides, dict) else None,
        "dtype": str(model.dtype),
        "processor": {name: _file(model, name) for name in _PROCESSOR_FILES},
        "mm_processor_kwargs": multimodal.mm_processor_kwargs if multimodal else None,
        "mm_device_do_normalize": multimodal.mm_device_do_normalize if multimodal else None,
        "tokenizer": _tokenizer(tokenizer),
        "chat_template": renderer.chat_template or getattr(tokenizer, "chat_template", None),
        "processor_chat_template": {name: _text(model, name) for name in _TEMPLATE_FILES},
    }


def public_version(version: str) -> str:
    """A version without its local part: a CPU build of 0.32.0 may call itself 0.32.0+cpu."""
    return version.split("+", 1)[0]


def _model_config(model: Any) -> Any:
    config = _file(model, "config.json")
    if config is None:
        config = model.hf_config.to_dict()
    return _without(config, _NOT_COMPARED)


def _without(value: Any, names: tuple[str, ...]) -> Any:
    if isinstance(value, dict):
        return {name: _without(each, names) for name, each in value.items() if name not in names}
    return value


def _file(model: Any, name: str) -> Any:
    """A file of the model's as JSON, None where it has none."""
    text = _text(model, name)
    return None if text is None else json.loads(text)


def _text(model: Any, name: str) -> str | None:
    """A file of the model's, None where it has none. What vLLM has loaded lies on the disk: nothing is fetched."""
    path = try_get_local_file(model.model, name, model.revision)
    return path.read_text(encoding="utf-8") if isinstance(path, Path) and path.is_file() else None


def _tokenizer(tokenizer: Any) -> Any:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        whole = json.loads(backend.to_str())
        # These two change with every call of the tokenizer.
        return _without(whole, ("truncation", "padding"))
    return None if tokenizer is None else sorted(tokenizer.get_vocab().items())
