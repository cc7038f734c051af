"""The comparison of two answers: what it must not miss, and what it must leave out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.e2e.calls import CHAT, Reply
from tests.e2e.joined import chat_joined, messages_joined, responses_joined
from tests.e2e.parity.comparison import differences, in_right_form, said, without_what_bare_pods_lack
from tests.e2e.parity.paths import MESSAGES
from tests.e2e.parity.table import ROWS

SAME = [
    ({"a": [1, {"b": "x"}]}, {"a": [1, {"b": "x"}]}),
    ([-0.12340], [-0.12349]),
    (-9999.0, -9999.0),
    (float("-inf"), float("-inf")),
]
OTHER = [
    ("x", "y", " is 'x', should be 'y'"),
    ({"a": None}, {}, ".a should not be there, is None"),
    ({}, {"a": None}, ".a is not there, should be None"),
    ({"a": {"b": 1}}, {"a": {"b": 2}}, ".a.b is 1, should be 2"),
    ([1, 2], [1], " has 2 items, should have 1: [1, 2], should be [1]"),
    ([-0.123], [-0.125], "[0] is -0.123, should be -0.125"),
    (1, True, " is 1, should be True"),
    (1, 1.0, " is 1, should be 1.0"),
    (0.0, float("-inf"), " is 0.0, should be -inf"),
]


@pytest.mark.parametrize(("ours", "theirs"), SAME)
def test_what_is_the_same(ours: Any, theirs: Any) -> None:
    """Equal, or a float that is nearly so."""
    assert list(differences(ours, theirs)) == []


@pytest.mark.parametrize(("ours", "theirs", "told"), OTHER)
def test_what_differs(ours: Any, theirs: Any, told: str) -> None:
    """The place and both values are told."""
    assert list(differences(ours, theirs)) == [told]


def chunk(**members: Any) -> str:
    """An event of a chat stream."""
    body = {"id": "c", "object": "chat.completion.chunk", "model": "m", "choices": [], **members}
    return f"data: {json.dumps(body)}\n\n"


def text(content: str, index: int = 0, **members: Any) -> str:
    """A chunk with text for one choice."""
    return chunk(choices=[{"index": index, "delta": {"content": content}, **members}])


DONE = "data: [DONE]\n\n"
STREAM = text("a") + text("b") + text("c", 1) + text("", finish_reason="stop") + chunk(usage={"n": 1}) + DONE


def test_a_stream_cut_in_another_way_is_the_same() -> None:
    """Text that comes in other pieces, or the choices in another order."""
    other = text("c", 1) + text("ab") + text("", finish_reason="stop") + chunk(usage={"n": 1}) + DONE
    assert chat_joined(other) == chat_joined(STREAM)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(STREAM.replace('"content": "b"', '"content": "B"'), id="other text"),
        pytest.param(STREAM.replace('"stop"', '"length"'), id="another reason to end"),
        pytest.param(STREAM.replace('"index": 1', '"index": 2'), id="another choice"),
        pytest.param(STREAM.replace('"n": 1', '"n": 2'), id="another usage"),
        pytest.param(chunk(usage={"n": 1}) + STREAM.replace(chunk(usage={"n": 1}), ""), id="usage first"),
        pytest.param(STREAM.replace('"model": "m"', '"model": "x"', 1), id="two models"),
        pytest.param(STREAM.replace('"id": "c"', '"id": "d"', 1), id="two ids"),
        pytest.param(STREAM.replace('"choices": []', '"choices": [], "more": 1'), id="a member more"),
        pytest.param(STREAM.replace(DONE, 'data: {"error": {"message": "x"}}\n\n' + DONE), id="an error at its end"),
    ],
)
def test_another_stream_is_another(other: str) -> None:
    """Whatever a caller would notice."""
    assert list(differences(chat_joined(other), chat_joined(STREAM)))


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(STREAM.removesuffix(DONE), id="no end"),
        pytest.param(DONE + STREAM, id="two ends"),
        pytest.param(STREAM.removesuffix("\n"), id="half an event"),
        pytest.param('data: {"error": {}}\n\n' + STREAM, id="an answer after an error"),
    ],
)
def test_a_broken_stream_is_none(broken: str) -> None:
    """What breaks the form of a stream fails by itself."""
    with pytest.raises(AssertionError):
        chat_joined(broken)


def test_events_have_the_names_and_numbers_of_their_data() -> None:
    """Anthropic's and OpenAI's newer streams say the type twice, and the latter counts."""
    good = 'event: ping\ndata: {"type": "ping", "sequence_number": 0}\n\n'
    assert messages_joined(good)
    assert responses_joined(good)
    for joined in (messages_joined, responses_joined):
        with pytest.raises(AssertionError):
            joined(good.replace("event: ping", "event: pong"))
    with pytest.raises(AssertionError):
        responses_joined(good + good)


def reply(body: Any, status: int = 200) -> Reply:
    """An answer in JSON."""
    return Reply(status, {"Content-Type": "application/json"}, json.dumps(body).encode())


def test_ids_and_times_are_left_out_but_have_to_be_there() -> None:
    """Their values differ each time."""
    assert said(CHAT, reply({"id": "a", "created": 5})) == said(CHAT, reply({"id": "b", "created": 6}))
    assert said(CHAT, reply({"id": "a", "created": 5})) != said(CHAT, reply({"id": "", "created": 5}))
    assert said(CHAT, reply({"id": "a"})) != said(CHAT, reply({}))


def test_an_error_of_messages_is_put_into_anthropics_form() -> None:
    """Whatever form one server gave it; an answer and another API's error stay as they are."""
    right = {"type": "error", "error": {"type": "invalid_request_error", "message": "x"}}
    theirs = {"error": {"message": "x", "type": "Bad Request", "param": "p", "code": 400}}
    assert in_right_form(MESSAGES, reply(theirs, 400))["body"] == right
    assert in_right_form(CHAT, reply(theirs, 400))["body"] == theirs
    assert in_right_form(MESSAGES, reply({"a": 1}))["body"] == {"a": 1}


def test_what_bare_pods_lack_is_left_out() -> None:
    """As a member, and by name in a list of members."""
    answer = {"usage": {"completion_tokens_details": {}, "n": 1}, "members": ["a", "system_fingerprint"]}
    assert without_what_bare_pods_lack(answer) == {"usage": {"n": 1}, "members": ["a"]}


def test_the_table_is_large_and_each_row_has_a_name_of_its_own() -> None:
    """At least 200 requests; two rows of one name would share one exception."""
    assert len(ROWS) >= 200
    assert len({str(row) for row in ROWS}) == len(ROWS)
