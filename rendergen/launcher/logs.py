"""Reads the log file that a process of the stack writes, while it is being written."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["LogFile"]

# What is printed while Python exits, after the line that matters.
_NOISE = re.compile(
    r"nanobind: |\s*- (leaked |\.\.\. skipped)|See https://nanobind|.*resource_tracker|\s*warnings\.warn\("
)
_EXCEPTION = re.compile(r"^(\([^)]*\)\s*)?(ERROR [^\]]*\]\s*)?(?P<line>[\w.]*(Error|Exception|Exit|Interrupt)\b:? .*)$")
_TAIL_BYTES = 64 * 1024


class LogFile:
    """One process's log: new lines since the last look, the end of it, and the error in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0
        self._partial = ""

    def new_lines(self) -> list[str]:
        """Lines written since the last call. A carriage return ends a line too: progress bars use it."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return []
        self._offset += len(data)
        *lines, self._partial = re.split(r"[\r\n]+", self._partial + data.decode(errors="replace"))
        return [line for line in lines if line.strip()]

    def tail(self, count: int = 15) -> tuple[str, ...]:
        """The last lines, without what only says that Python was exiting."""
        return tuple(self._last_lines()[-count:])

    def error(self) -> str:
        """The last line that names an exception, else the last line; empty for an empty log."""
        lines = self._last_lines()
        for line in reversed(lines):
            if match := _EXCEPTION.match(line):
                return match["line"]
        return lines[-1].strip() if lines else ""

    def _last_lines(self) -> list[str]:
        try:
            with self.path.open("rb") as file:
                file.seek(0, 2)
                file.seek(max(0, file.tell() - _TAIL_BYTES))
                text = file.read().decode(errors="replace")
        except FileNotFoundError:
            return []
        return [line.rstrip() for line in re.split(r"[\r\n]+", text) if line.strip() and not _NOISE.match(line)]
