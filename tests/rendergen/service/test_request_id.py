import re

import pytest
from multidict import CIMultiDict, CIMultiDictProxy

from rendergen.service import request_id

TAKEN = ["a", "chatcmpl-7", "A.b_c:d-9", "0" * 128]
NOT_TAKEN = [
    "",
    " ",
    "a b",
    "a" * 129,
    "x" * 1_000_000,
    "a\nb",
    "a\n",
    "a\r\nSet-Cookie: b",
    "é",
    "٣",
    "a/b",
    'a"b',
    "a\x00",
    "{}",
]


def headers(*ids: str) -> CIMultiDictProxy[str]:
    return CIMultiDictProxy(CIMultiDict([("x-request-id", value) for value in ids]))


@pytest.mark.parametrize("given", TAKEN)
def test_a_harmless_id_is_taken(given: str) -> None:
    """Up to 128 characters that mean nothing in headers, log lines or vLLM's ids."""
    assert request_id.given_in(headers(given)) == given


@pytest.mark.parametrize("given", NOT_TAKEN, ids=lambda given: repr(given[:20]))
def test_any_other_id_is_not(given: str) -> None:
    """It is not repaired either: an id that is not the caller's must not look like it."""
    assert request_id.given_in(headers(given)) is None


def test_none_or_several_are_none() -> None:
    """Which of several would be meant is anyone's guess, even when they are equal."""
    assert request_id.given_in(headers()) is None
    assert request_id.given_in(headers("a", "b")) is None
    assert request_id.given_in(headers("a", "a")) is None


def test_a_fresh_id_is_one_that_would_be_taken() -> None:
    """The next service takes over the id that this one made."""
    fresh = {request_id.new() for _ in range(1000)}
    assert len(fresh) == 1000
    assert all(re.fullmatch("[0-9a-f]{32}", each) and request_id.given_in(headers(each)) == each for each in fresh)


def test_ids_of_steps_differ_and_show_whose_they_are() -> None:
    """Each begins with the request's own id."""
    token = request_id.current.set("mine")
    try:
        derived = {request_id.derived() for _ in range(100)}
    finally:
        request_id.current.reset(token)
    assert len(derived) == 100
    assert all(re.fullmatch("mine-[0-9a-f]{8}", each) for each in derived)


def test_a_step_of_the_longest_id_has_an_id_that_is_taken() -> None:
    """A service behind the router takes over the step's id, also when the caller's was as long as it may be."""
    token = request_id.current.set("a" * request_id.MAX_CHARS)
    try:
        derived = request_id.derived()
    finally:
        request_id.current.reset(token)
    assert request_id.given_in(headers(derived)) == derived
