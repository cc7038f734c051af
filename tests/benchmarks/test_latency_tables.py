"""What is summed up of latencies, and how it is written."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from benchmarks.latency_tables import Cell, Sides, comparison, p90, ratios, report, stages
from benchmarks.timed_answer import Timed

TEXT = Cell(images=0, side_px=1024, clients=1, streamed=False)
STREAM = Cell(images=3, side_px=1024, clients=8, streamed=True)


def whole(*totals: float) -> list[Timed]:
    return [Timed(total, None, (), {"render": total / 4, "generate": total / 2}) for total in totals]


def streamed(first: float, *gaps: float) -> Timed:
    return Timed(first + sum(gaps), first, gaps, {"render": 10.0, "generate": 60.0, "derender": 10.0})


def cells_of(table: str) -> list[list[str]]:
    """What is in each cell of a table, its rule aside."""
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    return [lines[0], *lines[2:]]


@pytest.mark.parametrize(
    ("cell", "content", "name"),
    [
        (TEXT, "text", "text, 1 client, whole"),
        (STREAM, "3 images 1024²", "3 images 1024², 8 clients, streamed"),
        (Cell(1, 512, 1, True), "1 image 512²", "1 image 512², 1 client, streamed"),
    ],
)
def test_cell_in_words(cell: Cell, content: str, name: str) -> None:
    assert (cell.content, cell.name) == (content, name)


@pytest.mark.parametrize(
    ("values", "expected"), [([4.0], 4.0), ([2.0, 1.0], 2.0), (range(10, 0, -1), 9.0), (range(1, 12), 10.0)]
)
def test_p90_is_a_value_that_nine_in_ten_are_not_above(values: Sequence[float], expected: float) -> None:
    assert p90(values) == expected


def test_ratios_are_taken_within_rounds_that_have_values_of_both_sides() -> None:
    assert ratios([[2.0, 2.0, 9.0], [20.0], [], [1.0]], [[4.0], [40.0, 10.0, 10.0], [1.0], []]) == [0.5, 2.0]


def test_comparison_has_medians_percentiles_and_the_median_of_the_rounds_ratios() -> None:
    router, server = [whole(20.0, 30.0, 40.0), whole(10.0), whole(90.0)], [whole(10.0), whole(10.0), whole(30.0)]
    table = comparison({TEXT: Sides(router, server)}, lambda answer: (answer.total_ms,))
    head, line = cells_of(table)
    assert dict(zip(head, line, strict=True)) == {
        "": "text",
        "clients": "1",
        "answer": "whole",
        "requests": "5",
        "one server": "10.0",
        "router": "30.0",
        "ratio": "3.00",
        "one server, p90": "30.0",
        "router, p90": "90.0",
        "rounds' ratios": "1.00 to 3.00",
    }


def test_comparison_without_values_says_so() -> None:
    sides = Sides([[streamed(80.0, 3.0)]], [[streamed(40.0)]])
    _, line = cells_of(comparison({STREAM: sides}, lambda answer: answer.gaps_ms))
    assert line[3:] == ["1", "–", "3.0", "–", "–", "3.0", "–"]


def test_stages_and_the_rest_add_up_to_all() -> None:
    measured = {
        TEXT: Sides([whole(80.0), whole(120.0)], [whole(1.0), whole(1.0)]),
        STREAM: Sides([[streamed(90.0, 500.0), streamed(110.0, 500.0)]], [[streamed(1.0)]]),
    }
    _, text, stream = cells_of(stages(measured))
    assert text == ["text", "1", "whole", "100.0", "25.0", "50.0", "0.0", "25.0", "25", "50", "0", "25"]
    assert stream[2:] == ["streamed", "100.0", "10.0", "60.0", "10.0", "20.0", "10", "60", "10", "20"]


def test_report_has_streams_alone_where_only_they_have_figures_and_names_what_was_not_measured() -> None:
    missing = Cell(1, 1024, 8, True)
    text = Sides([whole(1.0), whole(1.0)], [whole(1.0), whole(1.0)])
    written = report(
        {TEXT: text, STREAM: Sides([[streamed(9.0, 1.0)]], [[streamed(9.0, 1.0)]]), missing: Sides([], [])}
    )
    head, first, total, gaps, where = written.split("###")
    assert head.strip() == "Rounds: 1 to 2\n\nNot measured, for want of time: 1 image 1024², 8 clients, streamed."
    for part, lines in ((first, 1), (total, 2), (gaps, 1), (where, 2)):
        assert len(cells_of(part.partition("\n\n")[2].strip())) == 1 + lines, part
    assert report({TEXT: text}).startswith("Rounds: 2\n\n###")
