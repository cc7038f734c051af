"""Stop strings, which end a generation and stay in its tokens: vLLM's derender does not cut them off the text."""

from __future__ import annotations

from collections.abc import Sequence


def cut(text: str, stop: str, *, keep: bool) -> str:
    """``text`` up to ``stop``, which ended it; with ``keep`` up to its end.

    It is the first one: an earlier one would have ended the text itself. What follows it came with the same token.
    A text without it is left as it is.
    """
    at = text.find(stop)
    return text if at < 0 else text[: at + len(stop) if keep else at]


class HeldText:
    """The text of a stream, of which as much is held back as may turn out to belong to a stop string.

    Args:
        stops: the strings that end it.
        keep: the string that ended it is to be part of it.
    """

    def __init__(self, stops: Sequence[str], *, keep: bool) -> None:
        self._most = max(map(len, stops), default=1) - 1
        self._keep = keep
        self.kind = ""
        """Of the last text."""
        self._held = ""

    def feed(self, kind: str, text: str) -> list[tuple[str, str]]:
        """Take more text of a kind, as reasoning or content; what can be told, each with its kind."""
        before = self._flushed() if kind != self.kind else []
        self.kind = kind
        whole = self._held + text
        ready = len(whole) - self._most
        if ready <= 0:
            self._held = whole
            return before
        self._held = whole[ready:]
        return [*before, (kind, whole[:ready])]

    def finish(self, kind: str, text: str, stop: str | None) -> list[tuple[str, str]]:
        """The same for the last text, which ``stop`` ended if that is given."""
        before = self._flushed() if kind != self.kind else []
        whole = self._held + text
        self._held = ""
        if stop is not None:
            whole = cut(whole, stop, keep=self._keep)
        return [*before, (kind, whole)] if whole else before

    def _flushed(self) -> list[tuple[str, str]]:
        kind, held = self.kind, self._held
        self._held = ""
        return [(kind, held)] if held else []
