"""Which pod takes a request: filter, then pick. Pure and synchronous; a policy never does input or output.

A score comes between the two once there is something to score by (load, affinity).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

T = TypeVar("T")


class Pick(Protocol):
    """Takes one of the candidates, of which there is at least one."""

    def __call__(self, candidates: Sequence[T], /) -> T: ...


class InTurn:
    """Takes one after the other."""

    def __init__(self) -> None:
        self._taken = 0

    def __call__(self, candidates: Sequence[T], /) -> T:
        """The next of ``candidates``; those that are missing for a while are skipped, not waited for."""
        chosen = candidates[self._taken % len(candidates)]
        self._taken += 1
        return chosen
