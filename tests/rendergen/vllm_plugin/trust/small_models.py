"""Directories of small models of other architectures: configuration and processor, no weights."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from rendergen.tiny_model import TINY_MODEL_PATH

_TOKENS = {"image_token_id": 5, "video_token_id": 6, "vision_start_token_id": 3, "vision_end_token_id": 4}
_TEXT = {
    **{"hidden_size": 192, "intermediate_size": 576, "num_attention_heads": 6, "num_key_value_heads": 2},
    **{"num_hidden_layers": 2, "vocab_size": 768, "max_position_embeddings": 8192, "rms_norm_eps": 1e-6},
}
_QWEN2_VISION = {
    **{"depth": 2, "num_heads": 2, "in_channels": 3, "patch_size": 14, "spatial_merge_size": 2},
    "temporal_patch_size": 2,
}
_NORM = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}


def qwen2_vl(directory: Path) -> Path:
    """Qwen2-VL."""
    vision = {**_QWEN2_VISION, "embed_dim": 64, "hidden_size": 192, "mlp_ratio": 2, "model_type": "qwen2_vl"}
    return _qwen(directory, "qwen2_vl", "Qwen2VL", vision)


def qwen2_5_vl(directory: Path) -> Path:
    """Qwen2.5-VL."""
    windows = {"window_size": 112, "fullatt_block_indexes": [1], "tokens_per_second": 2, "model_type": "qwen2_5_vl"}
    vision = {**_QWEN2_VISION, "hidden_size": 64, "out_hidden_size": 192, "intermediate_size": 128, **windows}
    return _qwen(directory, "qwen2_5_vl", "Qwen2_5_VL", vision)


def llava(directory: Path) -> Path:
    """LLaVA-1.5, whose tokenizer has one token more."""
    _copy_tokenizer(directory)
    tokenizer = json.loads((directory / "tokenizer.json").read_text())
    token = 1 + max(*(each["id"] for each in tokenizer["added_tokens"]), *tokenizer["model"]["vocab"].values())
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    tokenizer["added_tokens"].append({"id": token, "content": "<image>", "special": True, **flags})
    _write(directory, "tokenizer.json", tokenizer)
    vision = {
        **{"model_type": "clip_vision_model", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2},
        **{"num_attention_heads": 2, "image_size": 56, "patch_size": 14, "projection_dim": 64},
    }
    _write(
        directory,
        "config.json",
        {
            "architectures": ["LlavaForConditionalGeneration"],
            "model_type": "llava",
            "dtype": "bfloat16",
            "text_config": {"model_type": "llama", "architectures": ["LlamaForCausalLM"], **_TEXT},
            "vision_config": vision,
            "vision_feature_layer": -2,
            "vision_feature_select_strategy": "default",
            "projector_hidden_act": "gelu",
            "image_token_index": token,
            "image_seq_length": 16,
        },
    )
    _write(
        directory,
        "preprocessor_config.json",
        {
            "image_processor_type": "CLIPImageProcessor",
            "processor_class": "LlavaProcessor",
            "crop_size": {"height": 56, "width": 56},
            "size": {"shortest_edge": 56},
            **dict.fromkeys(("do_center_crop", "do_normalize", "do_rescale", "do_resize", "do_convert_rgb"), True),
            **_NORM,
        },
    )
    _write(
        directory,
        "processor_config.json",
        {
            "processor_class": "LlavaProcessor",
            "patch_size": 14,
            "vision_feature_select_strategy": "default",
            "image_token": "<image>",
            "num_additional_image_tokens": 1,
        },
    )
    return directory


def _qwen(directory: Path, kind: str, name: str, vision: dict[str, Any]) -> Path:
    _copy_tokenizer(directory)
    rope = {"type": "mrope", "mrope_section": [4, 6, 6], "rope_theta": 10000.0, "rope_type": "default"}
    _write(
        directory,
        "config.json",
        {
            "architectures": [f"{name}ForConditionalGeneration"],
            "model_type": kind,
            "dtype": "bfloat16",
            **_TOKENS,
            **_TEXT,
            "rope_scaling": rope,
            "vision_config": vision,
        },
    )
    _write(
        directory,
        "preprocessor_config.json",
        {
            "image_processor_type": "Qwen2VLImageProcessor",
            "processor_class": f"{name}Processor",
            "patch_size": 14,
            "merge_size": 2,
            "temporal_patch_size": 2,
            "size": {"shortest_edge": 3136, "longest_edge": 1003520},
            **_NORM,
        },
    )
    shutil.copy(TINY_MODEL_PATH / "video_preprocessor_config.json", directory)
    return directory


def _copy_tokenizer(directory: Path) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"):
        shutil.copy(TINY_MODEL_PATH / name, directory)


def _write(directory: Path, name: str, document: Any) -> None:
    (directory / name).write_text(json.dumps(document))
