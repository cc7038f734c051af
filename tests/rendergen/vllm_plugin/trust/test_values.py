"""What cannot be carried to the engine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rendergen.vllm_plugin.errors import BadPayload
from rendergen.vllm_plugin.trust.values import MAX_DEPTH, check_values


def nested(levels: int, value: Any = 1) -> Any:
    """A value in a list in a list …"""
    for _ in range(levels):
        value = [value]
    return value


GOOD = [None, True, 0, -(2**63), 2**64 - 1, 1.5, -0.0, "", "🟥é", [], {}, {"a": [1, {"b": (2.5, {3})}]}]
BAD: list[tuple[Any, str]] = [
    (2**64, "does not fit 64 bits"),
    (-(2**63) - 1, "does not fit 64 bits"),
    (float("nan"), "is nan"),
    ({"a": [float("inf")]}, "is inf"),
    ({float("-inf"): 1}, "is -inf"),
    (["\ud83d"], "half of a surrogate pair"),
    ({"\udfff": 1}, "half of a surrogate pair"),
    (np.array([1.0]), "float64, not integers"),
]


@pytest.mark.parametrize("value", [*GOOD, np.array([1]), nested(MAX_DEPTH)], ids=repr)
def test_good_values(value: Any) -> None:
    """Anything that JSON can say and 64 bits can hold."""
    check_values("x", value)


@pytest.mark.parametrize(("value", "says"), BAD, ids=repr)
def test_bad_values(value: Any, says: str) -> None:
    """Wherever they are in it."""
    for each in (value, [value]):
        with pytest.raises(BadPayload, match=f"^x .*{says}") as refusal:
            check_values("x", each)
        assert refusal.value.param == "x"


def test_depth() -> None:
    """Nesting has an end, long before the stack has."""
    with pytest.raises(BadPayload, match=f"deeper than {MAX_DEPTH}"):
        check_values("x", nested(MAX_DEPTH + 1), param="y")
    with pytest.raises(BadPayload, match="deeper"):
        check_values("x", nested(100_000))
