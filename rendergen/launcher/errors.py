"""Why the stack could not start or go on, in words for the person who started it."""

from __future__ import annotations

from pathlib import Path

__all__ = ["ChildDiedError", "LaunchError", "StartTimeoutError"]


class LaunchError(Exception):
    """One line: what is wrong, where, and what to do about it."""

    def details(self) -> str:
        """More lines for the reader, such as the end of a log; empty where the one line says it all."""
        return ""


class _LoggedError(LaunchError):
    """A failure whose cause is in a process's log."""

    def __init__(self, message: str, log_path: Path, log_tail: tuple[str, ...]) -> None:
        super().__init__(message)
        self.log_path = log_path
        self.log_tail = log_tail

    def details(self) -> str:
        lines = [f"  the end of {self.log_path}:", *(f"    {line}" for line in self.log_tail)]
        return "\n".join(lines) if self.log_tail else f"  {self.log_path} is empty"


class ChildDiedError(_LoggedError):
    """A process of the stack ended by itself."""

    def __init__(self, message: str, process: str, log_path: Path, log_tail: tuple[str, ...]) -> None:
        super().__init__(message, log_path, log_tail)
        self.process = process


class StartTimeoutError(_LoggedError):
    """A process of the stack was not ready in time."""
