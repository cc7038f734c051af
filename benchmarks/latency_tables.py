"""What was measured of latency, summed up and written as tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import fmean, median
from typing import Generic, TypeVar

from benchmarks.report import table
from benchmarks.timed_answer import Timed

NOTHING = "–"
"""What a table says where there is no figure."""

STAGES = ("render", "generate", "derender")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Cell:
    """One kind of request, and how many clients send it.

    Attributes:
        images: how many it has.
        side_px: their width and height.
        clients: that send at the same time.
        streamed: whether the answer is.
    """

    images: int
    side_px: int
    clients: int
    streamed: bool

    @property
    def content(self) -> str:
        """What it has, in words."""
        if not self.images:
            return "text"
        return f"{self.images} image{'s' if self.images > 1 else ''} {self.side_px}²"

    @property
    def name(self) -> str:
        """The cell, in words."""
        plural = "s" if self.clients > 1 else ""
        return f"{self.content}, {self.clients} client{plural}, {'streamed' if self.streamed else 'whole'}"


@dataclass(frozen=True, slots=True)
class Sides(Generic[T]):
    """One thing of each side."""

    router: T
    server: T


Measured = Mapping[Cell, Sides[list[list[Timed]]]]
"""The answers of each cell and side, a list for each round."""

Take = Callable[[Timed], Sequence[float]]
"""The milliseconds in question of one answer."""


def report(measured: Measured) -> str:
    """All tables, of the cells that were measured."""
    there = {cell: sides for cell, sides in measured.items() if sides.router}
    rounds = [len(sides.router) for sides in there.values()]
    parts = [f"Rounds: {min(rounds)}" + (f" to {max(rounds)}" if max(rounds) > min(rounds) else "")]
    if missing := [cell.name for cell in measured if cell not in there]:
        parts.append(f"Not measured, for want of time: {'; '.join(missing)}.")
    streams = {cell: sides for cell, sides in there.items() if cell.streamed}
    for title, cells, take in (
        ("Time to first token", streams, _first),
        ("Total latency", there, _total),
        ("Time between tokens", streams, _gaps),
    ):
        parts.append(f"### {title}, ms\n\n{comparison(cells, take)}")
    parts.append(
        "### Where the time goes through the router: mean ms and share, until a stream's first token or a whole "
        f"answer's end\n\n{stages(there)}"
    )
    return "\n\n".join(parts)


def _first(answer: Timed) -> Sequence[float]:
    return () if answer.first_token_ms is None else (answer.first_token_ms,)


def _total(answer: Timed) -> Sequence[float]:
    return (answer.total_ms,)


def _gaps(answer: Timed) -> Sequence[float]:
    return answer.gaps_ms


def comparison(measured: Measured, take: Take) -> str:
    """A table with a line for each cell: both sides' medians and 90th percentiles, and the router's over the server's.

    The ratio is the median over the rounds of the quotient of both medians.
    """
    head = ("", "clients", "answer", "requests", "one server", "router", "ratio", "one server, p90", "router, p90")
    return table([(*head, "rounds' ratios"), *(_compared(cell, sides, take) for cell, sides in measured.items())])


def _compared(cell: Cell, sides: Sides[list[list[Timed]]], take: Take) -> tuple[str, ...]:
    router, server = _by_round(sides.router, take), _by_round(sides.server, take)
    rounds = ratios(router, server)
    ours, theirs = list(chain(*router)), list(chain(*server))
    return (
        cell.content,
        str(cell.clients),
        "streamed" if cell.streamed else "whole",
        str(sum(map(len, sides.router))),
        *(f"{median(values):.1f}" if values else NOTHING for values in (theirs, ours)),
        f"{median(rounds):.2f}" if rounds else NOTHING,
        *(f"{p90(values):.1f}" if values else NOTHING for values in (theirs, ours)),
        f"{min(rounds):.2f} to {max(rounds):.2f}" if rounds else NOTHING,
    )


def _by_round(rounds: Sequence[Sequence[Timed]], take: Take) -> list[list[float]]:
    return [[ms for answer in answers for ms in take(answer)] for answers in rounds]


def ratios(router: Sequence[Sequence[float]], server: Sequence[Sequence[float]]) -> list[float]:
    """For each round the router's median over the server's: what else the machine did then falls on both.

    Rounds in which one side has no values have no ratio: a client that was late may have got a stream all at once.
    """
    return [median(ours) / median(theirs) for ours, theirs in zip(router, server, strict=True) if ours and theirs]


def p90(values: Sequence[float]) -> float:
    """The least of ``values`` that nine in ten of them are not above."""
    return sorted(values)[math.ceil(0.9 * len(values)) - 1]


def stages(measured: Measured) -> str:
    """A table with a line for each cell: what of the time at the router each stage takes. *Rest* is in none of them."""
    head = ("", "clients", "answer", "all ms", *(f"{stage} ms" for stage in STAGES), "rest ms")
    shares = (*(f"{stage} %" for stage in STAGES), "rest %")
    return table([(*head, *shares), *(_staged(cell, sides.router) for cell, sides in measured.items())])


def _staged(cell: Cell, rounds: Sequence[Sequence[Timed]]) -> tuple[str, ...]:
    answers = [answer for answers in rounds for answer in answers]
    whole = fmean(answer.began_ms for answer in answers)
    parts = [fmean(answer.stages.get(stage, 0.0) for answer in answers) for stage in STAGES]
    parts.append(whole - sum(parts))
    return (
        cell.content,
        str(cell.clients),
        "streamed" if cell.streamed else "whole",
        f"{whole:.1f}",
        *(f"{part:.1f}" for part in parts),
        *(f"{100 * part / whole:.0f}" for part in parts),
    )
