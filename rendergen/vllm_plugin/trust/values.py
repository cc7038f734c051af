"""Values that can be carried to the engine: finite numbers of at most 64 bits, valid text, not nested too deeply.

What holds others does not come to harm there, but on the way: packing it fails, and the caller is told of a fault of
the server.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

import msgspec
import numpy as np

from rendergen.vllm_plugin.errors import BadPayload

MAX_DEPTH = 32
"""How deep lists and objects may be nested. Far deeper ones exhaust the stack of whatever packs or unpacks them."""

_INT_MIN, _INT_MAX = -(2**63), 2**64 - 1


def check_values(name: str, value: Any, *, param: str | None = None, depth: int = MAX_DEPTH) -> None:
    """Check a value and all that is in it.

    Args:
        name: what it is called, for the message.
        value: plain values, lists, dicts, dataclasses and arrays, in any nesting.
        param: what to name as the error's `param`; the name, if not given.
        depth: how many levels may be nested.

    Raises BadPayload.
    """
    if fault := _fault(value, depth):
        raise BadPayload(f"{name} {fault}", param=param or name)


def _fault(value: Any, depth: int) -> str | None:
    """What is wrong with it, as the end of a sentence; None: nothing."""
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, int):
        return None if _INT_MIN <= value <= _INT_MAX else "has an integer that does not fit 64 bits"
    if isinstance(value, float):
        return None if math.isfinite(value) else f"is {value}, which is no finite number"
    if isinstance(value, str):
        return None if _is_text(value) else "has text with half of a surrogate pair, which is no valid Unicode"
    if isinstance(value, np.ndarray):
        return None if value.dtype.kind in "iu" else f"holds {value.dtype}, not integers"
    if isinstance(value, Enum):
        return None
    if depth == 0:
        return f"is nested deeper than {MAX_DEPTH} levels"
    parts = _parts(value)
    if parts is None:
        return f"holds a {type(value).__name__}, which JSON has no form for"
    return next((fault for part in parts if (fault := _fault(part, depth - 1))), None)


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _parts(value: Any) -> Iterable[Any] | None:
    """What is in it; None for what is no container of a known kind."""
    if isinstance(value, dict):
        return (*value.keys(), *value.values())
    if isinstance(value, (list, tuple, set, frozenset)):
        return value
    if is_dataclass(value):
        return (getattr(value, field.name) for field in fields(value))
    if isinstance(value, msgspec.Struct):
        return (getattr(value, name) for name in value.__struct_fields__)
    return None
