"""What is tried again, and what is not."""

from __future__ import annotations

import pytest

from rendergen.service.errors import (
    BadRequest,
    CallerTooSlow,
    DeadlineExceeded,
    NotSupported,
    PodFailed,
    PodRefusal,
    ServiceError,
    Unavailable,
)
from router.retry import Retry

PLENTY_S = 60.0


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (PodFailed("it died"), True),
        (Unavailable("it cannot be reached"), True),
        (PodRefusal(503, "ServiceUnavailableError", "draining"), True),
        (BadRequest("no"), False),
        (PodRefusal(400, "BadRequestError", "no"), False),
        (PodRefusal(429, "RateLimitError", "full"), False),
        (CallerTooSlow("no more came"), False),
        (NotSupported("not here"), False),
        (DeadlineExceeded("too late"), False),
    ],
)
def test_only_what_another_pod_may_do_better_is_tried_again(error: ServiceError, again: bool) -> None:
    """Never after a 4xx, and not where the time is over."""
    assert Retry().again(error, 1, PLENTY_S) is again


def test_a_request_is_tried_on_two_pods_at_most() -> None:
    """One that kills pods must not walk through all of them."""
    assert Retry().again(PodFailed("it died"), 1, PLENTY_S)
    assert not Retry().again(PodFailed("it died"), 2, PLENTY_S)


def test_nothing_is_begun_that_nobody_waits_for() -> None:
    assert not Retry(least_left_s=0.1).again(PodFailed("it died"), 1, 0.05)
