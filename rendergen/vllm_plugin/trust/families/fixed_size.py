"""Models that make the same of every picture, whatever its size: LLaVA-1.5, PaliGemma and their like.

What such a model makes of an item depends on the shapes of its tensors alone. So an item with exactly the shapes and
dtypes of one that the processor made, and with the same integers in it, yields as many embeddings as that one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from vllm.multimodal.inputs import (
    MultiModalBatchedField,
    MultiModalFieldElem,
    MultiModalKwargsItem,
    MultiModalSharedField,
)

from rendergen.vllm_plugin.errors import BadPayload
from rendergen.vllm_plugin.items import Item
from rendergen.vllm_plugin.trust.examples import Example
from rendergen.vllm_plugin.trust.families.family import Proven
from rendergen.vllm_plugin.trust.placeholders import check_mask, check_tokens
from rendergen.vllm_plugin.trust.tensors import check_names, tensor_like

_FIELDS_OF_ONE = (MultiModalBatchedField, MultiModalSharedField)
"""Ways of batching that do not depend on the other items of the processor's call."""


@dataclass(frozen=True, slots=True)
class FixedSize:
    """Images of such a model, all of which look like `example`."""

    example: Example

    @classmethod
    def of(cls, examples: tuple[Example, ...]) -> FixedSize | None:
        """The family, if pictures of different sizes came out alike; else None."""
        first = examples[0]
        if not all(_is_plain(elem) for elem in first.fields.values()):
            return None
        return cls(first) if all(_alike(first, other) for other in examples[1:]) else None

    def proven(self, item: Item) -> Proven:
        """Each field is like the example's; integers are the same."""
        known = self.example.fields
        check_names(item, known.keys())
        elems = {}
        for name, elem in known.items():
            data = tensor_like(item, name, elem.data)
            if _says_something(data) and not torch.equal(data, elem.data):
                raise BadPayload(f"{item}: {name} is not what this model's processor puts there for every image")
            elems[name] = MultiModalFieldElem(data=data, field=elem.field)
        return Proven(self.example.embeddings(), MultiModalKwargsItem(elems))

    def check_place(self, item: Item, tokens: NDArray[np.int64]) -> None:
        """The placeholder is the example's, token for token."""
        check_tokens(item, tokens, self.example.tokens)
        check_mask(item, self.example.is_embed)


def _is_plain(elem: MultiModalFieldElem) -> bool:
    return isinstance(elem.data, torch.Tensor) and type(elem.field) in _FIELDS_OF_ONE


def _says_something(data: torch.Tensor) -> bool:
    """Whether its values are counts or sizes, not pixels."""
    return not data.is_floating_point() and data.dtype != torch.uint8


def _alike(one: Example, other: Example) -> bool:
    if one.fields.keys() != other.fields.keys() or not np.array_equal(one.tokens, other.tokens):
        return False
    if (one.is_embed is None) != (other.is_embed is None):
        return False
    if one.is_embed is not None and not torch.equal(one.is_embed, other.is_embed):
        return False
    return all(_same_kind(elem, other.fields[name]) for name, elem in one.fields.items())


def _same_kind(one: MultiModalFieldElem, other: MultiModalFieldElem) -> bool:
    a, b = one.data, other.data
    if not isinstance(b, torch.Tensor) or a.dtype != b.dtype or a.shape != b.shape or one.field != other.field:
        return False
    return not _says_something(a) or torch.equal(a, b)
