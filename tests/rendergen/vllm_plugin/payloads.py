"""Items made by hand, with a few bytes where real ones have megabytes."""

from __future__ import annotations

from typing import Any

import torch
from vllm.multimodal.inputs import (
    MultiModalBatchedField,
    MultiModalFieldElem,
    MultiModalFlatField,
    MultiModalKwargsItem,
    MultiModalSharedField,
)

from rendergen.vllm_plugin.items import Item

GRID = MultiModalFieldElem(data=torch.tensor([1, 2, 2]), field=MultiModalBatchedField(keep_on_cpu=True))
PIXELS = MultiModalFieldElem(
    data=torch.arange(12, dtype=torch.uint8).view(4, 3), field=MultiModalFlatField(slices=[[slice(0, 4)]], dim=0)
)
MIXED = MultiModalFieldElem(
    data=[torch.ones(2, dtype=torch.bfloat16), 3, 0.5, [torch.empty(0, 2)]], field=MultiModalSharedField(batch_size=2)
)


def item(**changes: Any) -> Item:
    """An image of one embedding; ``changes`` are its attributes."""
    attributes = {
        "modality": "image",
        "index": 0,
        "hint": "hash",
        "offset": 1,
        "length": 1,
        "is_embed": None,
        "fields": MultiModalKwargsItem({"image_grid_thw": GRID, "pixel_values": PIXELS}),
        "metadata": frozenset({"image_grid_thw"}),
    }
    return Item(**{**attributes, **changes})


def with_pixels(data: Any) -> MultiModalKwargsItem:
    """The item's fields with other pixels."""
    return MultiModalKwargsItem(
        {"image_grid_thw": GRID, "pixel_values": MultiModalFieldElem(data=data, field=PIXELS.field)}
    )
