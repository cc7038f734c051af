"""What was measured, summed up and written as tables that can be pasted into Markdown."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_BIG = 1_000_000


@dataclass(frozen=True, slots=True)
class Turn:
    """One peer's turn within a round.

    Attributes:
        ms: wall time of each request, in milliseconds.
        seconds: wall time of the turn.
        cpu_seconds: CPU time of the peer's processes in it.
        peak_rss_bytes: the most memory they held in it, with what was held before.
    """

    ms: Sequence[float]
    seconds: float
    cpu_seconds: float
    peak_rss_bytes: int


@dataclass(slots=True)
class Row:
    """All turns of one peer with one body and number of connections.

    Attributes:
        bytes_arrived: what the check of the bytes found.
        turns: one for each round.
    """

    bytes_arrived: str
    turns: list[Turn] = field(default_factory=list)

    @property
    def median_ms(self) -> float:
        return statistics.median(ms for turn in self.turns for ms in turn.ms)

    @property
    def requests(self) -> int:
        return sum(len(turn.ms) for turn in self.turns)

    @property
    def requests_per_second(self) -> float:
        return self.requests / sum(turn.seconds for turn in self.turns)

    @property
    def cpu_seconds_per_1000(self) -> float:
        return 1000 * sum(turn.cpu_seconds for turn in self.turns) / self.requests

    @property
    def peak_rss_mb(self) -> float:
        return max(turn.peak_rss_bytes for turn in self.turns) / _BIG


Cell = Mapping[str, Row | str]
"""The rows of one body and number of connections, by peer; a string says why a peer has none."""


def cell_table(cell: Cell, direct: str) -> str:
    """One table: a line for each peer.

    Args:
        cell: its rows.
        direct: name of the row that the others are compared with.
    """
    base = cell[direct]
    assert isinstance(base, Row)
    lines = [
        ("", "median ms", "minus direct", "requests/s", "CPU s per 1,000", "peak RSS MB", "bytes that arrived"),
        *(_cells(name, row, base, direct) for name, row in cell.items()),
    ]
    return table(lines)


def _cells(name: str, row: Row | str, base: Row, direct: str) -> tuple[str, ...]:
    if isinstance(row, str):
        return (name, *["–"] * 5, row)
    proxied = name != direct
    return (
        name,
        f"{row.median_ms:.2f}",
        f"{row.median_ms - base.median_ms:.2f}" if proxied else "–",
        f"{row.requests_per_second:,.0f}" if row.requests_per_second >= 100 else f"{row.requests_per_second:.1f}",
        f"{row.cpu_seconds_per_1000:.2f}" if proxied else "–",
        f"{row.peak_rss_mb:.0f}" if proxied else "–",
        row.bytes_arrived,
    )


def table(lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table whose columns also line up as text: the first line is the head, numbers are to the right."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    last = len(widths) - 1

    def written(line: Sequence[str]) -> str:
        padded = (
            text.ljust(width) if column in (0, last) else text.rjust(width)
            for column, (text, width) in enumerate(zip(line, widths, strict=True))
        )
        return "| " + " | ".join(padded) + " |"

    rule = ["-" * width if column in (0, last) else "-" * (width - 1) + ":" for column, width in enumerate(widths)]
    return "\n".join([written(lines[0]), written(rule), *map(written, lines[1:])])


def ratios(ours: Row, theirs: Row) -> list[float]:
    """How long ours takes, theirs being 1, in each round: the quotient of both medians.

    Both turns of a round are seconds apart, so what else the machine does falls on both.
    """
    return [
        statistics.median(our_turn.ms) / statistics.median(their_turn.ms)
        for our_turn, their_turn in zip(ours.turns, theirs.turns, strict=True)
    ]


def verdict(what: str, rounds: Sequence[float], target: float | None) -> str:
    """One line: the rounds' median ratio, in hundredths, whether it meets its target if it has one, and their range."""
    value = round(statistics.median(rounds), 2)
    spread = f"rounds {min(rounds):.2f} to {max(rounds):.2f}"
    if target is None:
        return f"{what}: ratio {value:.2f}; {spread}"
    return f"{what}: ratio {value:.2f} (target ≤ {target:.2f}): {'met' if value <= target else 'missed'}; {spread}"


def machine(packages: Iterable[str]) -> str:
    """The facts that figures depend on, as one line each."""
    facts = [
        f"{_cpu_model()}, {len(os.sched_getaffinity(0))} cores, {platform.system()} {platform.release()}",
        f"{platform.python_implementation()} {platform.python_version()}, "
        + ", ".join(f"{package} {importlib.metadata.version(package)}" for package in packages),
        f"load average {os.getloadavg()[0]:.2f} over the last minute",
    ]
    return "\n".join(facts)


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()
