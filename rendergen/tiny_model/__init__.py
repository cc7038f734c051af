"""A tiny real Qwen3-VL, shipped with the package so that vLLM itself can be tested and demonstrated without a GPU.

It names one of twelve colours in an image, in several forms, and counts. `docs/tiny-model.md` has its accuracy;
`rendergen.tiny_model.abilities` has the questions it was trained on and the answers it gives.
"""

from pathlib import Path

__all__ = ["TINY_MODEL_NAME", "TINY_MODEL_PATH"]

TINY_MODEL_NAME = "tiny-vlm"
"""The name under which the model is served, the `model` of a request."""

TINY_MODEL_PATH = Path(__file__).resolve().parent / "weights"
"""The directory to give to vLLM: weights, tokenizer, chat template and processor configurations."""
