"""Telling a pod how much time is left, so that it need not begin what nobody waits for any more."""

from __future__ import annotations

import re

HEADER = "X-Rendergen-Deadline-Ms"
_MILLISECONDS = re.compile(r"[0-9]{1,12}")


def left(budget_s: float, given: str | None = None) -> dict[str, str]:
    """The header for a request with this budget from now, in seconds, or what was ``given`` to us if that is less.

    What was given is ignored if it is no number of milliseconds.
    """
    milliseconds = int(1000 * budget_s)
    if given is not None and _MILLISECONDS.fullmatch(given):
        milliseconds = min(milliseconds, int(given))
    return {HEADER: str(milliseconds)}
