from collections import Counter

import pytest

from router.choice import InTurn


@pytest.mark.parametrize("number", [1, 2, 3, 7])
def test_each_is_taken_once_before_one_is_again(number: int) -> None:
    """In their order, round and round."""
    pick, candidates = InTurn(), list(range(number))
    assert [pick(candidates) for _ in range(3 * number)] == candidates * 3


def test_those_that_are_missing_are_skipped() -> None:
    """The rest share the work about evenly, and whoever comes back takes part again."""
    pick = InTurn()
    taken = Counter(pick("abc") for _ in range(4)) + Counter(pick("ac") for _ in range(100))
    assert set(taken) == {"a", "b", "c"}
    assert abs(taken["a"] - taken["c"]) <= 2
    assert {pick("abc") for _ in range(3)} == {"a", "b", "c"}


def test_each_choice_has_its_own_turn() -> None:
    """Two policies do not share their state."""
    first, second = InTurn(), InTurn()
    assert [first("ab"), second("ab"), first("ab")] == ["a", "a", "b"]
