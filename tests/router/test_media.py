"""Which media a request may have."""

from __future__ import annotations

import pytest

from rendergen.payload import Medium, Span
from rendergen.service.errors import BadRequest
from router.media import Media, admitted

INLINE = Medium(Span(1, 2), inline=True)
ALLOWED = Medium(Span(3, 4), inline=False, host="a.b")
OTHER = Medium(Span(5, 6), inline=False, host="c.d")
NOWHERE = Medium(Span(7, 8), inline=False)


def test_none() -> None:
    assert admitted([], [], "messages") == Media()


def test_they_are_counted() -> None:
    assert admitted([INLINE, ALLOWED, INLINE], ["x", "a.b"], "messages") == Media(
        2, 1, (INLINE.span, ALLOWED.span, INLINE.span)
    )


@pytest.mark.parametrize("found", [[ALLOWED], [OTHER], [NOWHERE], [INLINE, ALLOWED, OTHER], [ALLOWED, NOWHERE]])
@pytest.mark.parametrize("allowed", [[], ["a"], ["b"], ["x.a.b"], ["*"], [""]])
def test_what_would_be_fetched_from_elsewhere_is_refused(found: list[Medium], allowed: list[str]) -> None:
    """One is enough; hosts are compared as a whole, and the message does not say which are allowed."""
    with pytest.raises(BadRequest) as raised:
        admitted(found, allowed, "input")
    assert raised.value.param == "input"
    assert "data: URL" in raised.value.message
    assert not any(host in raised.value.message for host in ("a.b", "c.d"))


@pytest.mark.parametrize("found", [[OTHER], [NOWHERE], [ALLOWED, OTHER]])
def test_one_allowed_host_allows_no_other(found: list[Medium]) -> None:
    with pytest.raises(BadRequest):
        admitted(found, ["a.b"], "messages")
