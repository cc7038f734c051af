import pytest

from rendergen.service import deadline
from rendergen.service.errors import DeadlineExceeded

LEFT = [
    (1.5, None, "1500"),
    (0.0004, None, "0"),
    (600, "250", "250"),
    (600, "600001", "600000"),
    (600, "0007", "7"),
    (600, "", "600000"),
    (600, "-5", "600000"),
    (600, "1e3", "600000"),
    (600, " 5", "600000"),
    (600, "\u0665", "600000"),
    (600, "9" * 5000, "600000"),
]


@pytest.mark.parametrize(("budget_s", "given", "expected"), LEFT)
def test_the_less_of_both_is_left(budget_s: float, given: str | None, expected: str) -> None:
    """Whole milliseconds; what is no number of them is ignored."""
    assert deadline.left(budget_s, given) == {"X-Rendergen-Deadline-Ms": expected}


def test_a_stage_has_its_budget_or_what_the_caller_has_left() -> None:
    """Whichever is less; without a deadline of the caller's, its budget."""
    assert deadline.Deadline.given(None).within(7.0) == 7.0
    assert deadline.Deadline.given("soon").within(7.0) == 7.0
    assert deadline.Deadline.given("60000").within(7.0) == 7.0
    assert 50 < deadline.Deadline.given("60000").within(90.0) <= 60


def test_with_nothing_left_no_stage_begins() -> None:
    """And the message names the header that said so."""
    with pytest.raises(DeadlineExceeded, match="X-Rendergen-Deadline-Ms"):
        deadline.Deadline.given("0").within(7.0)
