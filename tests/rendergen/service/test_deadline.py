import pytest

from rendergen.service import deadline

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
