"""Which pod takes a request: filter → score → pick. Pure and synchronous; a policy never does input or output.

The filter is :class:`router.pool.Pool`'s, which knows the pods; here are the score and the pick.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

T = TypeVar("T")

# So many payload bytes weigh as much as one request: about one image's payload. With text alone the number of requests
# decides; where one pod has three images on their way to it and another a chat, the latter is taken.
BYTES_LIKE_A_REQUEST = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Load:
    """What a pod is busy with.

    Attributes:
        requests: those in flight.
        payload_bytes: of payloads on their way to or from it.
    """

    requests: int = 0
    payload_bytes: int = 0


Score = Callable[[Load], float]


def in_flight(load: Load) -> float:
    """The requests in flight, payload bytes counted as requests. The lowest is the best."""
    return load.requests + load.payload_bytes / BYTES_LIKE_A_REQUEST


@dataclass(frozen=True, slots=True)
class Candidate(Generic[T]):
    """A pod that could take the request.

    Attributes:
        pod: the pod.
        score: how much speaks against it.
        turn: when it was last taken, as a number that grows; 0: never.
    """

    pod: T
    score: float
    turn: int


class Pick(Protocol):
    """Takes one of the candidates, of which there is at least one."""

    def __call__(self, candidates: Sequence[Candidate[T]], /) -> T: ...


def lowest_in_turn(candidates: Sequence[Candidate[T]]) -> T:
    """The one with the lowest score; of equals the one that was taken longest ago, the first of those never taken."""
    return min(candidates, key=lambda candidate: (candidate.score, candidate.turn)).pod
