"""Shows what each process of the stack is doing: a live table on a terminal, a line per change elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TextIO

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

__all__ = ["Display", "LiveDisplay", "NoDisplay", "PlainDisplay", "ProcessState", "display_for"]


@dataclass(frozen=True, slots=True)
class ProcessState:
    """One process at one moment."""

    name: str
    pid: int | None
    stage: str
    seconds: float
    """Since its start; once it is ready, how long it took to get there."""
    ready: bool


class Display(Protocol):
    """Where the states of all processes are shown, a few times a second."""

    def show(self, states: Sequence[ProcessState]) -> None: ...

    def close(self) -> None:
        """What was shown stays as it is, and other text may follow; `show` may be called again later."""


class NoDisplay:
    """For callers that are programs."""

    def show(self, states: Sequence[ProcessState]) -> None:
        pass

    def close(self) -> None:
        pass


class PlainDisplay:
    """A line whenever a process goes on to another stage."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._shown: dict[str, str] = {}

    def show(self, states: Sequence[ProcessState]) -> None:
        for state in states:
            if self._shown.get(state.name) != state.stage:
                self._shown[state.name] = state.stage
                print(f"[{state.seconds:5.1f} s] {state.name:<18} {state.stage}", file=self._stream, flush=True)

    def close(self) -> None:
        pass


class LiveDisplay:
    """A table that changes in place."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console

        self._console = Console(file=stream)
        self._live: Live | None = None

    def show(self, states: Sequence[ProcessState]) -> None:
        from rich.live import Live

        if self._live is None:
            self._live = Live(console=self._console, auto_refresh=False)
            self._live.start()
        self._live.update(_table(states), refresh=True)

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


def _table(states: Sequence[ProcessState]) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("process", no_wrap=True)
    table.add_column("pid", justify="right")
    table.add_column("doing", min_width=34, no_wrap=True)
    table.add_column("seconds", justify="right")
    for state in states:
        style = "green" if state.ready else ""
        table.add_row(state.name, str(state.pid or ""), Text(state.stage, style), f"{state.seconds:.0f}")
    return table


def display_for(stream: TextIO) -> Display:
    """The live table where the stream is a terminal and `rich` is installed, else plain lines."""
    if stream.isatty():
        try:
            return LiveDisplay(stream)
        except ImportError:
            pass
    return PlainDisplay(stream)
