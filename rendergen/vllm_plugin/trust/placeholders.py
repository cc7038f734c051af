"""Where items lie in the prompt, and what stands there."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray

from rendergen.vllm_plugin.errors import BadPayload
from rendergen.vllm_plugin.items import Item


def check_ranges(items: Sequence[Item], prompt_tokens: int) -> None:
    """Every range lies in the prompt, none overlaps another, and masks fit their ranges. Raises BadPayload.

    Args:
        items: all items of the prompt, in any order.
        prompt_tokens: the length of the prompt.
    """
    for item in items:
        if item.offset < 0 or item.length <= 0 or item.offset + item.length > prompt_tokens:
            raise BadPayload(
                f"{item}: its placeholder, {item.length} tokens from {item.offset}, "
                f"does not lie within the prompt of {prompt_tokens} tokens"
            )
        mask = item.is_embed
        if mask is not None and (mask.dtype != torch.bool or tuple(mask.shape) != (item.length,)):
            raise BadPayload(
                f"{item}: its is_embed mask has {mask.numel()} entries, and its placeholder {item.length} tokens"
            )
    ordered = sorted(items, key=lambda item: item.offset)
    for one, other in pairwise(ordered):
        if other.offset < one.offset + one.length:
            raise BadPayload(
                f"{other}: its placeholder begins at {other.offset}, within that of {one}, "
                f"which ends at {one.offset + one.length}"
            )


def embeddings_taken(item: Item) -> int:
    """How many embeddings the item's range takes."""
    return item.length if item.is_embed is None else int(item.is_embed.sum())


def check_tokens(item: Item, tokens: NDArray[np.int64], expected: NDArray[np.int64]) -> None:
    """The range holds the expected tokens, as many of them. Raises BadPayload.

    Args:
        item: the item.
        tokens: what the prompt has in its range.
        expected: what the model's processor puts there.
    """
    if len(tokens) != len(expected):
        raise BadPayload(
            f"{item}: its placeholder has {len(tokens)} tokens, and this model's images have {len(expected)}"
        )
    wrong = np.flatnonzero(tokens != expected)
    if len(wrong):
        at = int(wrong[0])
        raise BadPayload(
            f"{item}: token {item.offset + at} of the prompt is {int(tokens[at])}, "
            f"where this model's placeholder has {int(expected[at])}"
        )


def check_all_embed(item: Item) -> None:
    """Every token of the range gets an embedding. Raises BadPayload."""
    taken = embeddings_taken(item)
    if taken != item.length:
        raise BadPayload(
            f"{item}: its is_embed mask gives an embedding to {taken} of {item.length} tokens, "
            "and in this model all of them get one"
        )


def check_mask(item: Item, expected: torch.Tensor | None) -> None:
    """The item's mask is the one that the model's processor makes. Raises BadPayload.

    Args:
        item: the item, whose length has been checked.
        expected: bool of shape (length,), or None for all true.
    """
    if expected is None:
        check_all_embed(item)
    elif item.is_embed is None:
        raise BadPayload(
            f"{item} comes without an is_embed mask, so {item.length} embeddings would be needed, and there are "
            f"{int(expected.sum())}: JSON cannot carry the mask, send the payload as frames"
        )
    elif not torch.equal(item.is_embed, expected):
        at = int(torch.nonzero(item.is_embed != expected)[0])
        raise BadPayload(
            f"{item}: its is_embed mask gives token {item.offset + at} of the prompt "
            f"{'an' if item.is_embed[at] else 'no'} embedding, against this model's processor; "
            f"it has {embeddings_taken(item)} in all, and the processor's {int(expected.sum())}"
        )
