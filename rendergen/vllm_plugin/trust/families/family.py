"""What a family of models knows about its items."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from vllm.multimodal.inputs import MultiModalKwargsItem

from rendergen.vllm_plugin.items import Item


@dataclass(frozen=True, slots=True)
class Proven:
    """What was proven of an item.

    Attributes:
        embeddings: how many embeddings the model will make of it.
        fields: its tensors, with fields (how they are batched) as the model's own processor has them: those of the
            payload are never used.
    """

    embeddings: int
    fields: MultiModalKwargsItem


class Family(Protocol):
    """Models whose items of one modality are understood."""

    def proven(self, item: Item) -> Proven:
        """Check the item's fields, which are there. Raises BadPayload."""
        ...

    def check_place(self, item: Item, tokens: NDArray[np.int64]) -> None:
        """Check the item's placeholder.

        Args:
            item: the item.
            tokens: the prompt's tokens in its range, of shape (item.length,).

        Raises BadPayload.
        """
        ...
