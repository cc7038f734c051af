from collections.abc import Sequence

import pytest

from router.choice import BYTES_LIKE_A_REQUEST, Candidate, Load, in_flight, lowest_in_turn

MIB = 1024 * 1024

# Each load is better than those after it, and as good as those on its line.
ORDER: Sequence[Sequence[Load]] = (
    (Load(),),
    (Load(0, 1),),
    (Load(0, 4 * MIB),),
    (Load(1), Load(0, 8 * MIB)),
    (Load(1, 1000),),
    (Load(2), Load(1, 8 * MIB), Load(0, 16 * MIB)),
    (Load(1, 24 * MIB),),
    (Load(10), Load(2, 64 * MIB)),
)


@pytest.mark.parametrize("place", range(len(ORDER)))
def test_a_pod_with_less_in_flight_scores_lower(place: int) -> None:
    """By requests and by payload bytes, of which 8 MiB are like a request."""
    scores = {in_flight(load) for load in ORDER[place]}
    assert len(scores) == 1
    assert all(in_flight(busier) > max(scores) for line in ORDER[place + 1 :] for busier in line)
    assert BYTES_LIKE_A_REQUEST == 8 * MIB


PICKS = {
    "the only one": ([("a", 9.0, 4)], "a"),
    "the lowest": ([("a", 2.0, 0), ("b", 0.5, 9), ("c", 1.0, 1)], "b"),
    "of equals the one taken longest ago": ([("a", 1.0, 7), ("b", 1.0, 3), ("c", 1.0, 5), ("d", 2.0, 1)], "b"),
    "never taken before taken": ([("a", 1.0, 1), ("b", 1.0, 0)], "b"),
    "the first of those never taken": ([("a", 0.0, 0), ("b", 0.0, 0)], "a"),
    "the lowest before the turn": ([("a", 1.0, 0), ("b", 0.9, 100)], "b"),
}


@pytest.mark.parametrize(("candidates", "taken"), PICKS.values(), ids=PICKS)
def test_the_lowest_score_is_taken(candidates: list[tuple[str, float, int]], taken: str) -> None:
    """And equals in turn."""
    assert lowest_in_turn([Candidate(*candidate) for candidate in candidates]) == taken
