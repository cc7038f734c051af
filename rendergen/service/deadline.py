"""How much time a request has: kept here, and told to pods, so that they need not begin what nobody waits for."""

from __future__ import annotations

import math
import re
import time
from dataclasses import dataclass
from typing import Self

from rendergen.service.errors import DeadlineExceeded

HEADER = "X-Rendergen-Deadline-Ms"
_MILLISECONDS = re.compile(r"[0-9]{1,12}")


@dataclass(frozen=True, slots=True)
class Deadline:
    """Until when the caller waits, by the monotonic clock, in seconds; infinity if it did not say."""

    at: float = math.inf

    @classmethod
    def given(cls, text: str | None) -> Self:
        """From the caller's header. What is no number of milliseconds is ignored."""
        if text is None or not _MILLISECONDS.fullmatch(text):
            return cls()
        return cls(time.monotonic() + int(text) / 1000)

    def left_s(self) -> float:
        """Seconds until then."""
        return self.at - time.monotonic()

    def within(self, budget_s: float) -> float:
        """The budget of a stage, in seconds, or what is left if that is less.

        Raises:
            DeadlineExceeded: nothing is left.
        """
        left_s = self.left_s()
        if left_s <= 0:
            raise DeadlineExceeded(f"The time that {HEADER} gave this request is over.")
        return min(budget_s, left_s)


def left(budget_s: float, given: str | None = None) -> dict[str, str]:
    """The header for a request with this budget from now, in seconds, or what was ``given`` to us if that is less.

    What was given is ignored if it is no number of milliseconds.
    """
    milliseconds = int(1000 * budget_s)
    if given is not None and _MILLISECONDS.fullmatch(given):
        milliseconds = min(milliseconds, int(given))
    return {HEADER: str(milliseconds)}
