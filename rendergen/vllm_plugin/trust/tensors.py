"""Looking at an item's tensors: their names, dtypes and shapes, and what may be in them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch

from rendergen.vllm_plugin.errors import BadPayload
from rendergen.vllm_plugin.items import Item


def check_names(item: Item, names: Collection[str]) -> None:
    """The item has exactly these fields.

    A field too many is not harmless: the engine batches items of different requests by the fields they have, and
    hands all of them to the model. Raises BadPayload.
    """
    assert item.fields is not None
    missing = sorted(set(names) - set(item.fields))
    if missing:
        raise BadPayload(f"{item} has no {_list(missing)}: an item of this model has {_list(sorted(names))}")
    unknown = sorted(set(item.fields) - set(names))
    if unknown:
        raise BadPayload(
            f"{item} has {_list([_shown(name) for name in unknown])}, which this model does not take: "
            f"an item of it has {_list(sorted(names))}"
        )


def tensor_like(item: Item, name: str, like: torch.Tensor, *, free: Sequence[int] = ()) -> torch.Tensor:
    """The field's data, which must be a tensor with the dtype and the shape of `like`.

    Args:
        item: the item; it has the field.
        name: the field.
        like: a tensor as the model's processor makes it.
        free: dimensions in which the sizes may differ.

    Raises BadPayload.
    """
    assert item.fields is not None
    data = item.fields[name].data
    if not isinstance(data, torch.Tensor):
        raise BadPayload(f"{item}: {name} is no tensor but {_kind(data)}")
    if data.dtype != like.dtype:
        raise BadPayload(f"{item}: {name} is {_dtype(data)}, and this model's processor makes {_dtype(like)}")
    expected = list(like.shape)
    for dim in free:
        if data.ndim == like.ndim:
            expected[dim] = data.shape[dim]
    if list(data.shape) != expected:
        shown = [str(size) for size in like.shape]
        for dim in free:
            shown[dim] = "any"
        raise BadPayload(f"{item}: {name} has shape {list(data.shape)}, and this model takes [{', '.join(shown)}]")
    if data.is_floating_point() and not bool(torch.isfinite(data).all()):
        raise BadPayload(f"{item}: {name} holds values that are no finite numbers")
    return data


def _kind(data: object) -> str:
    if data is None:
        return "nothing"
    return "a list" if isinstance(data, (list, tuple)) else f"a number ({type(data).__name__})"


def _dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _shown(name: object) -> str:
    text = repr(name)
    return text if len(text) <= 40 else f"{text[:36]}…'"


def _list(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 5 else f"{', '.join(names[:5])} and {len(names) - 5} more"
