"""How vLLM says that a field's values are put together for several items, as plain values and back."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from vllm.multimodal.inputs import (
    BaseMultiModalField,
    MultiModalBatchedField,
    MultiModalFlatField,
    MultiModalSharedField,
)

_KINDS: Mapping[str, type[BaseMultiModalField]] = {
    "batched": MultiModalBatchedField,
    "flat": MultiModalFlatField,
    "shared": MultiModalSharedField,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}


def options_of(field: BaseMultiModalField) -> tuple[str, dict[str, Any]]:
    """The kind's name (`batched`, `flat`, `shared`) and its options, slices as lists of three."""
    options = {each.name: _plain(getattr(field, each.name)) for each in dataclasses.fields(field)}
    return _NAMES[type(field)], options


def field_of(kind: str, options: Mapping[str, Any]) -> BaseMultiModalField:
    """The field that `options_of` described.

    Raises:
        ValueError: there is no such kind, or it has no such options.
    """
    if kind not in _KINDS:
        raise ValueError(f"there is no kind of field {kind!r}")
    known = {each.name for each in dataclasses.fields(_KINDS[kind])}
    if not set(options) <= known:
        raise ValueError(f"{kind!r} fields have no options {sorted(map(str, set(options) - known))}")
    given = dict(options)
    given["keep_on_cpu"] = _one(given.get("keep_on_cpu", False), bool)
    if kind == "flat":
        given["dim"] = _one(given.get("dim", 0), int)
        given["slices"] = _slices(given.get("slices"))
    elif kind == "shared":
        given["batch_size"] = _one(given.get("batch_size"), int)
    return _KINDS[kind](**given)


def _plain(value: Any) -> Any:
    if isinstance(value, slice):
        return [None if part is None else int(part) for part in (value.start, value.stop, value.step)]
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value


def _slices(value: Any) -> Any:
    if not isinstance(value, list | tuple):
        raise ValueError("slices are no list")
    if len(value) == 3 and not any(isinstance(part, list | tuple) for part in value):
        if not all(part is None or type(part) is int for part in value):
            raise ValueError("a slice is not made of integers")
        return slice(*value)
    return [_slices(each) for each in value]


def _one(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise ValueError(f"{value!r} is no {kind.__name__}")
    return value
