"""What generate says, decoded: what is of another shape is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rendergen.vllm_plugin.derender.failures import AnsweredError, BrokenGeneration
from rendergen.vllm_plugin.derender.generated import Candidate, Position, decode

CHOICE = {"index": 0, "token_ids": [1, 2], "finish_reason": None, "stop_reason": None}


def event(**members: Any) -> bytes:
    """An event with a choice, and more."""
    return json.dumps({"request_id": "r", "output_mode": "tokens", "choices": [CHOICE], **members}).encode()


def test_a_choice() -> None:
    content = [{"token_id": 1, "logprob": -0.5, "rank": 1, "top_logprobs": [{"token_id": 1, "logprob": -0.5}]}]
    choice = {**CHOICE, "logprobs": {"content": content}, "stop_reason": "x", "finish_reason": "stop", "unknown": [{}]}
    (found,) = decode(event(choices=[choice])).choices
    assert (found.index, found.token_ids, found.finish_reason, found.stop_reason) == (0, [1, 2], "stop", "x")
    assert found.logprobs is not None
    assert found.logprobs.content == [Position(1, -0.5, 1, [Candidate(1, -0.5)])]


def test_the_last_event_has_no_choice() -> None:
    usage = {"prompt_tokens": 3, "prompt_tokens_details": {"cached_tokens": 2}}
    found = decode(event(choices=[], usage=usage, metrics={"speculative_decoding": {"a": 1}}))
    assert found.choices == []
    assert found.usage is not None
    assert found.usage.prompt_tokens_details is not None
    assert found.usage.prompt_tokens_details.cached_tokens == 2
    assert found.metrics is not None
    assert found.metrics.speculative_decoding == {"a": 1}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"null",
        b"{",
        b"\xff",
        event(choices=None),
        event(choices={}),
        event(choices=[{"token_ids": [1]}]),
        event(choices=[{**CHOICE, "token_ids": [-1]}]),
        event(choices=[{**CHOICE, "token_ids": [2**31]}]),
        event(choices=[{**CHOICE, "token_ids": [1.5]}]),
        event(choices=[{**CHOICE, "token_ids": "12"}]),
        event(choices=[{**CHOICE, "finish_reason": 1}]),
        event(choices=[{**CHOICE, "logprobs": [1]}]),
        event(choices=[{**CHOICE, "logprobs": {"content": [{"token_id": 1, "logprob": None}]}}]),
        event(output_mode="text"),
    ],
)
def test_what_is_no_answer_is_refused(data: bytes) -> None:
    with pytest.raises(BrokenGeneration):
        decode(data)


@pytest.mark.parametrize(("code", "status"), [(404, 404), (503, 503), (200, 500), ("x", 500), (None, 500), (True, 500)])
def test_an_error_is_answered_with_its_own_status(code: object, status: int) -> None:
    error = {"message": "No.", "type": "T", "param": None, "code": code}
    with pytest.raises(AnsweredError, match=r"No\.") as raised:
        decode(json.dumps({"error": error}).encode())
    assert (raised.value.status, raised.value.body()) == (status, {"error": {**error, "code": status}})


@pytest.mark.parametrize("error", [{}, {"message": 5, "type": None, "param": [], "code": "x"}, {"message": ""}])
def test_an_error_that_is_none_of_openais_form(error: dict[str, object]) -> None:
    """Is answered in that form all the same."""
    with pytest.raises(AnsweredError) as raised:
        decode(json.dumps({"error": error}).encode())
    said = raised.value.body()["error"]
    assert (said["type"], said["param"], said["code"]) == ("InternalServerError", None, 500)
    assert said["message"]


def test_an_event_of_lists_without_end() -> None:
    """Is no answer."""
    with pytest.raises(BrokenGeneration):
        decode(b'{"x":' + b"[" * 200_000)
