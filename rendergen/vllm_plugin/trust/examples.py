"""What the model's own processor makes of a picture: the pattern that every item is held against.

The processor is the authority on which fields an item has, their dtypes, how they are batched and which tokens stand
for them. Asking it once, at start-up, needs no table of models and cannot disagree with what render pods send.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from vllm.multimodal.inputs import MultiModalKwargsItem
from vllm.multimodal.processing import TimingContext
from vllm.multimodal.processing.inputs import ProcessorInputs

logger = logging.getLogger(__name__)

SIZES = ((300, 300), (300, 120), (120, 600), (1300, 900))
"""Pictures of these widths and heights, in pixels, are tried: a model for which these all come out alike makes every
picture alike."""


@dataclass(frozen=True, slots=True)
class Example:
    """An item as the processor made it.

    Attributes:
        fields: its tensors, each with how it is batched.
        tokens: the tokens of its placeholder, int64 of shape (length,).
        is_embed: bool of shape (length,): which of them get an embedding; None: all.
    """

    fields: MultiModalKwargsItem
    tokens: NDArray[np.int64]
    is_embed: torch.Tensor | None

    def embeddings(self) -> int:
        """How many embeddings the placeholder takes."""
        return len(self.tokens) if self.is_embed is None else int(self.is_embed.sum())


def image_examples(processor: Any) -> tuple[Example, ...]:
    """What the processor makes of one-coloured pictures of several sizes; empty if it takes none, or fails on them.

    Args:
        processor: vLLM's `BaseMultiModalProcessor`. It must not be in use by another thread meanwhile.
    """
    if not processor.info.allowed_mm_limits.get("image"):
        return ()
    try:
        return tuple(_example(processor, size) for size in SIZES)
    except Exception:  # the processor is the model's own code: whatever that raises, the server can do without knowing
        logger.warning("the model's processor failed on a plain picture, so nothing is known of images", exc_info=True)
        return ()


def _example(processor: Any, size: tuple[int, int]) -> Example:
    items = processor.info.parse_mm_data({"image": [Image.new("RGB", size, (96, 128, 160))]})
    text = processor.dummy_inputs.get_dummy_text({"image": 1})
    prompt = processor.info.get_tokenizer().encode(text, add_special_tokens=False)
    made: Mapping[str, Any] = processor.apply(
        ProcessorInputs(prompt=prompt, mm_data_items=items), TimingContext(enabled=False)
    )
    place = made["mm_placeholders"]["image"][0]
    tokens = np.asarray(made["prompt_token_ids"][place.offset : place.offset + place.length], dtype=np.int64)
    return Example(made["mm_kwargs"]["image"][0], tokens, place.is_embed)
