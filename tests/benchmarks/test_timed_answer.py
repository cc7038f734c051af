"""An answer is timed by when its text came, and one that is not what was asked for is a failure."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks.client import RequestFailed
from benchmarks.timed_answer import Timed, check_completion, read_stages, read_stream
from rendergen.sse import DONE, written


def event(**delta: str) -> bytes:
    return written(json.dumps({"choices": [{"index": 0, "delta": delta}]}).encode())


def usage(tokens: int) -> bytes:
    return written(json.dumps({"choices": [], "usage": {"completion_tokens": tokens}}).encode())


ROLE = event(role="assistant", content="")
ONE, TWO = event(content="1"), event(reasoning="2")


def completion(**members: Any) -> bytes:
    message = {"role": "assistant", "content": "1 2"}
    return json.dumps({"choices": [{"message": message}], "usage": {"completion_tokens": 3}, **members}).encode()


def test_first_token_is_the_first_text_and_gaps_are_between_arrivals_of_text() -> None:
    arrived = [(5.0, ROLE), (7.0, ONE), (8.0, ROLE), (10.0, TWO + ONE), (16.0, ONE), (17.0, usage(4)), (18.0, DONE)]
    assert read_stream(arrived, 4) == (7.0, [3.0, 6.0])


def test_event_came_when_its_last_byte_did() -> None:
    arrived = [(5.0, ROLE + ONE[:20]), (7.0, ONE[20:] + TWO[:-1]), (9.0, TWO[-1:] + usage(2) + DONE)]
    assert read_stream(arrived, 2) == (7.0, [2.0])


def test_keep_alive_comment_is_no_event() -> None:
    assert read_stream([(1.0, b": keep-alive\n\n"), (2.0, ONE + usage(1) + DONE)], 1) == (2.0, [])


@pytest.mark.parametrize(
    ("stream", "why"),
    [
        pytest.param(b"", "but in nothing", id="nothing"),
        pytest.param(ONE + usage(1), r"does not end in \[DONE\]", id="no end"),
        pytest.param(ONE + usage(1) + DONE + ONE, r"does not end in \[DONE\]", id="an event after the end"),
        pytest.param(ONE + usage(1) + DONE + b"data: ", r"does not end in \[DONE\]", id="half an event after the end"),
        pytest.param(ROLE + usage(1) + DONE, "without text", id="no text"),
        pytest.param(ONE + usage(2) + DONE, "2 tokens where 1 were asked for", id="another number of tokens"),
        pytest.param(ONE + DONE, "None tokens where 1", id="no usage"),
        pytest.param(
            ONE + written(b'{"error": {"message": "x"}, "choices": []}') + usage(1) + DONE, "error", id="error"
        ),
        pytest.param(written(b"nonsense") + ONE + usage(1) + DONE, "no chunk .*nonsense", id="no JSON"),
        pytest.param(written(b"[1]") + ONE + usage(1) + DONE, "no chunk", id="no object"),
        pytest.param(completion().join((b"data: ", b"\n\n")) + DONE, "no chunk", id="a completion that is whole"),
    ],
)
def test_stream_that_is_not_right_is_a_failure(stream: bytes, why: str) -> None:
    with pytest.raises(RequestFailed, match=why):
        read_stream([(1.0, stream)], 1)


def test_completion_of_the_right_number_of_tokens_is_right() -> None:
    check_completion(completion(), 3)


@pytest.mark.parametrize(
    ("document", "why"),
    [
        pytest.param(b"nonsense", "no chat completion: nonsense", id="no JSON"),
        pytest.param(b"[]", "no chat completion", id="no object"),
        pytest.param(b'{"error": {"message": "x"}}', "no chat completion", id="an error"),
        pytest.param(completion(choices=[]), "no chat completion", id="no choice"),
        pytest.param(completion(choices=[{"message": {"content": None}}]), "without text", id="no text"),
        pytest.param(
            completion(usage={"completion_tokens": 2}), "2 tokens where 3 were", id="another number of tokens"
        ),
        pytest.param(completion(usage=None), "no chat completion", id="no usage"),
    ],
)
def test_completion_that_is_not_right_is_a_failure(document: bytes, why: str) -> None:
    with pytest.raises(RequestFailed, match=why):
        check_completion(document, 3)


def test_stages_of_server_timing() -> None:
    stages = read_stages("render;dur=12.3, generate;dur=45, derender;dur=0.8")
    assert stages == {"render": 12.3, "generate": 45.0, "derender": 0.8}
    assert read_stages("") == {}


def test_answer_began_with_its_first_text_or_where_it_is_whole_at_its_end() -> None:
    assert Timed(30.0, 10.0, (5.0,), {}).began_ms == 10.0
    assert Timed(30.0, None, (), {}).began_ms == 30.0
