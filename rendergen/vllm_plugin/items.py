"""One multimodal item of a payload, as the trust checks see it, whichever encoding it came in."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from vllm.multimodal.inputs import MultiModalKwargsItem


@dataclass(frozen=True, slots=True)
class Item:
    """An item (an image, say) with its tensors and its place in the prompt.

    Attributes:
        modality: `image`, `video`, `audio`.
        index: its place among the items of its modality, from 0.
        hint: the hash that came with it. Callers can choose it: it is never what the engine is given.
        offset: where its placeholder tokens begin in the prompt, in tokens.
        length: how many placeholder tokens it has.
        is_embed: bool tensor of shape (length,), true where a placeholder gets an embedding; None: all of them do.
        fields: its tensors and how they are batched, by name; None where only the hash came. This is the item as it
            will be merged: what JSON's `mm_metadata` says of a field is already in here.
        metadata: names of the fields that travel as `mm_metadata` too.
    """

    modality: str
    index: int
    hint: str
    offset: int
    length: int
    is_embed: torch.Tensor | None
    fields: MultiModalKwargsItem | None
    metadata: frozenset[str]

    def __str__(self) -> str:
        return f"{self.modality} {self.index}"
