"""The errors of the package."""

import pytest

from rendergen.payload import (
    DuplicateMember,
    LimitExceeded,
    MalformedFrames,
    MalformedJson,
    MemberTooLarge,
    NotAnObject,
    PayloadError,
    SeveralPayloads,
    TooManyMedia,
    TruncatedJson,
)

ERRORS = [
    (MalformedJson(7, "a reason"), "malformed JSON at byte 7: a reason"),
    (TruncatedJson(7), "malformed JSON at byte 7: the document ended too early"),
    (DuplicateMember("a"), "member 'a' appears twice"),
    (NotAnObject("a"), "member 'a' is not a JSON object"),
    (LimitExceeded("bytes of a key", 5), "bytes of a key: more than the limit of 5"),
    (MemberTooLarge("a", 5), "bytes held of member 'a': more than the limit of 5"),
    (TooManyMedia(5), "media in the conversation: more than the limit of 5"),
    (MalformedFrames("a reason"), "a reason"),
    (SeveralPayloads(3), "3 payloads in one answer, where one is taken"),
]


def subclasses(error):
    """All classes below one."""
    return {found for child in error.__subclasses__() for found in {child, *subclasses(child)}}


def test_every_error_is_listed():
    """The table has every error of the package."""
    assert {type(error) for error, _ in ERRORS} == subclasses(PayloadError)


@pytest.mark.parametrize(("error", "message"), ERRORS)
def test_message(error, message):
    """Each is a ValueError, and says what is wrong without quoting the payload's values."""
    assert isinstance(error, ValueError)
    assert str(error) == message
