"""Whether a request that failed is tried again. Pure: who asks counts the tries and knows what has been sent."""

from __future__ import annotations

from dataclasses import dataclass

from rendergen.service.errors import PodFailed, ServiceError, Unavailable

# A pod that says so, or breaks off, has not done the work; another may. What is over its time would be so again.
_WORTH_ANOTHER = frozenset({PodFailed.status, Unavailable.status})


@dataclass(frozen=True, slots=True)
class Retry:
    """When to try again.

    Attributes:
        tries: how often each step in all, the first time included. A payload that was on a pod as it died may be why it
            died, so more than two would walk it through the pool.
        least_left_s: time that must be left, in seconds, for another try to make sense.
    """

    tries: int = 2
    least_left_s: float = 0.1

    def again(self, error: ServiceError, tried: int, left_s: float) -> bool:
        """Whether to try once more.

        Args:
            error: what the last try ended with. A 4xx is the caller's, and never tried again.
            tried: how often the step was tried.
            left_s: seconds until nobody waits any more.
        """
        return error.status in _WORTH_ANOTHER and tried < self.tries and left_s >= self.least_left_s
