"""What is summed up from turns, and how it is written."""

from __future__ import annotations

import pytest

from benchmarks.report import Row, Turn, cell_table, ratios, table, verdict


def row(*turns: tuple[list[float], float]) -> Row:
    """A row of turns, each given by its requests' milliseconds and its CPU seconds, one second long each."""
    return Row("equal", [Turn(ms, 1.0, cpu, 10_000_000 * (n + 1)) for n, (ms, cpu) in enumerate(turns)])


def test_row_sums_up_its_turns() -> None:
    summed = row(([1.0, 2.0], 0.3), ([3.0, 4.0, 9.0], 0.2))
    assert summed.median_ms == 3.0
    assert summed.requests_per_second == 2.5
    assert summed.cpu_seconds_per_1000 == pytest.approx(100.0)
    assert summed.peak_rss_mb == 20.0


def test_ratios_are_taken_within_rounds() -> None:
    ours = row(([2.0, 2.0, 9.0], 0), ([20.0], 0))
    theirs = row(([4.0], 0), ([40.0, 10.0, 10.0], 0))
    assert ratios(ours, theirs) == [0.5, 2.0]


@pytest.mark.parametrize(
    ("rounds", "target", "line"),
    [
        ([0.9, 0.5, 0.4], 1.0, "x: ratio 0.50 (target ≤ 1.00): met; rounds 0.40 to 0.90"),
        ([1.004], 1.0, "x: ratio 1.00 (target ≤ 1.00): met; rounds 1.00 to 1.00"),
        ([1.006], 1.0, "x: ratio 1.01 (target ≤ 1.00): missed; rounds 1.01 to 1.01"),
        ([1.0, 3.0], None, "x: ratio 2.00; rounds 1.00 to 3.00"),
    ],
)
def test_verdict(rounds: list[float], target: float | None, line: str) -> None:
    assert verdict("x", rounds, target) == line


def test_table_is_markdown_whose_columns_line_up() -> None:
    assert table([("", "ms", "note"), ("direct", "1.00", "–"), ("ours", "12.00", "equal")]) == (
        "|        |    ms | note  |\n| ------ | ----: | ----- |\n| direct |  1.00 | –     |\n| ours   | 12.00 | equal |"
    )


def test_cell_table_compares_with_direct_and_says_why_a_peer_is_missing() -> None:
    lines = cell_table(
        {"direct": row(([1.0], 0)), "ours": row(([3.5], 0.0025)), "nginx": "not installed"}, direct="direct"
    ).splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert cells[2] == ["direct", "1.00", "–", "1.0", "–", "–", "equal"]
    assert cells[3] == ["ours", "3.50", "2.50", "1.0", "2.50", "10", "equal"]
    assert cells[4] == ["nginx", "–", "–", "–", "–", "–", "not installed"]
