"""Qwen2-VL, Qwen2.5-VL and Qwen3-VL: an image is rows of patches and a grid that says how they lie."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from vllm.multimodal.inputs import MultiModalFieldConfig, MultiModalFieldElem, MultiModalKwargsItem

from rendergen.vllm_plugin.errors import BadPayload
from rendergen.vllm_plugin.items import Item
from rendergen.vllm_plugin.trust.examples import Example
from rendergen.vllm_plugin.trust.families.family import Proven
from rendergen.vllm_plugin.trust.placeholders import check_all_embed, check_tokens
from rendergen.vllm_plugin.trust.tensors import check_names, tensor_like

ARCHITECTURES = frozenset(
    {
        "Qwen2VLForConditionalGeneration",
        "Qwen2_5_VLForConditionalGeneration",
        "Qwen3VLForConditionalGeneration",
        "Qwen3VLMoeForConditionalGeneration",
    }
)

PIXELS = "pixel_values"
GRID = "image_grid_thw"

MAX_SIDE = 8192
"""Rows of the vision encoder's table of rotary positions, in vLLM: a grid with a longer side reads past its end."""


@dataclass(frozen=True, slots=True)
class QwenVl:
    """Images of these models.

    Attributes:
        token: the token that stands for an embedding.
        merge: patches along each side of what becomes one embedding.
        pixels: a patch as the processor makes them, of shape (1, values in a patch).
        grid: int64 of shape (3,): frames, rows and columns of patches.
    """

    token: int
    merge: int
    pixels: torch.Tensor
    grid: torch.Tensor

    @classmethod
    def of(cls, hf_config: Any, example: Example) -> QwenVl:
        """From the model's configuration and what its processor makes. Raises KeyError or AttributeError."""
        fields = example.fields
        return cls(
            token=int(example.tokens[0]),
            merge=int(hf_config.vision_config.spatial_merge_size),
            pixels=fields[PIXELS].data[:1].clone(),
            grid=fields[GRID].data.clone(),
        )

    def proven(self, item: Item) -> Proven:
        """The grid covers the patches exactly, and is one that the encoder and M-RoPE can take."""
        check_names(item, (PIXELS, GRID))
        grid = tensor_like(item, GRID, self.grid)
        pixels = tensor_like(item, PIXELS, self.pixels, free=(0,))
        frames, rows, columns = (int(side) for side in grid.tolist())
        says = f"{item}: its grid ({GRID}) is {frames}×{rows}×{columns}"
        if frames != 1:
            raise BadPayload(f"{says}, and an image has 1 frame, not {frames}")
        for side in (rows, columns):
            if side <= 0 or side > MAX_SIDE:
                raise BadPayload(f"{says}, and {side} is not between 1 and {MAX_SIDE}")
            if side % self.merge:
                raise BadPayload(f"{says}, and {side} is no multiple of {self.merge}")
        patches = rows * columns
        if patches != pixels.shape[0]:
            raise BadPayload(f"{says}, which is {patches} patches, but {PIXELS} has {pixels.shape[0]} rows")
        fields = MultiModalKwargsItem(
            {
                PIXELS: MultiModalFieldElem(
                    data=pixels, field=MultiModalFieldConfig.flat_from_sizes("image", torch.tensor([patches])).field
                ),
                GRID: MultiModalFieldElem(
                    data=grid, field=MultiModalFieldConfig.batched("image", keep_on_cpu=True).field
                ),
            }
        )
        return Proven(patches // self.merge**2, fields)

    def check_place(self, item: Item, tokens: NDArray[np.int64]) -> None:
        """Every token of the range is the image's, and all get an embedding."""
        check_all_embed(item)
        check_tokens(item, tokens, np.full(item.length, self.token))
