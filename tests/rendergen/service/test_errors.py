import json

import pytest

from rendergen.service import errors
from rendergen.service.errors import CallerLeft, PodRefusal, ServiceError, Unauthorized, Unavailable

STATUSES = {
    "InternalError": 500,
    "BadRequest": 400,
    "Unauthorized": 401,
    "RouteNotFound": 404,
    "ModelNotFound": 404,
    "MethodNotAllowed": 405,
    "CallerTooSlow": 408,
    "TooLarge": 413,
    "CallerLeft": 499,
    "NotSupported": 501,
    "PodFailed": 502,
    "Unavailable": 503,
    "DeadlineExceeded": 504,
}


def every_error() -> list[ServiceError]:
    found: list[ServiceError] = []
    kinds = [ServiceError]
    while kinds:
        kind = kinds.pop()
        kinds += kind.__subclasses__()
        found.append(PodRefusal(429, "T", "told") if kind is PodRefusal else kind("told", param="p"))
    return found


EVERY = [pytest.param(error, id=type(error).__name__) for error in every_error()]


def test_every_error_has_the_status_that_the_design_gives_it() -> None:
    """Each case of "Answers to callers" has one status, and no error is outside the table."""
    found = {type(error).__name__: error.status for error in every_error()}
    assert found == STATUSES | {"ServiceError": 500, "PodRefusal": 429}
    assert found.keys() == {
        name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, ServiceError)
    }


@pytest.mark.parametrize("error", EVERY)
def test_the_body_is_openai_s_error_object(error: ServiceError) -> None:
    """Four members, the message for the caller, and the HTTP status as the code."""
    assert error.body() == {
        "error": {"message": "told", "type": error.type, "param": error.param, "code": error.status}
    }
    assert error.type
    assert str(error) == "told"


@pytest.mark.parametrize("error", EVERY)
def test_the_event_is_one_server_sent_event(error: ServiceError) -> None:
    """One `data:` line and the blank line that ends the event, whatever the message holds."""
    error.message = "two\nlines\r\n\r\ndata: none, \u2028 and \u00e9"
    event = error.event()
    assert event.startswith(b"data: ")
    assert event.endswith(b"\n\n")
    assert b"\n" not in event[:-2]
    assert b"\r" not in event
    assert json.loads(event[6:]) == error.body()


@pytest.mark.parametrize("error", EVERY)
def test_a_message_that_is_no_unicode_can_still_be_told(error: ServiceError) -> None:
    """A pod's JSON may escape half a surrogate pair; it has no UTF-8 form, and must not be what fails."""
    error.message = "no such model: \ud800"
    assert json.loads(error.event()[6:]) == error.body()


def test_retry_after_stands_where_another_try_makes_sense() -> None:
    """Nothing can serve now: in a second it may. Other errors say nothing, or what the pod said."""
    assert Unavailable("x").headers() == {"Retry-After": "1"}
    assert PodRefusal(429, "T", "x", retry_after="7").headers() == {"Retry-After": "7"}
    assert PodRefusal(400, "T", "x").headers() == {}
    assert CallerLeft("x").headers() == {}


def test_who_has_no_key_is_told_how_keys_are_sent() -> None:
    """A 401 must name a scheme (RFC 9110, 15.5.2)."""
    assert Unauthorized("x").headers() == {"WWW-Authenticate": "Bearer"}
