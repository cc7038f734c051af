"""The first line of a derender stream."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rendergen.vllm_plugin.derender.context import Context, read_context
from rendergen.vllm_plugin.errors import BadPayload

REQUEST = {"model": "m", "messages": []}


def read(**members: Any) -> Context:
    """A context of these members, for a model of 100 tokens."""
    return read_context(json.dumps(members).encode(), max_prompt_tokens=100)


@pytest.mark.parametrize("name", ["request", "chat_request"])
def test_the_request_has_two_names(name: str) -> None:
    assert read(**{name: REQUEST}, prompt_token_ids=[5, 6]).caller_request == REQUEST


@pytest.mark.parametrize(
    ("members", "prompt", "whole"),
    [
        ({"prompt_token_ids": [5, 6]}, [5, 6], True),
        ({"prompt_token_ids": [5, 6], "prompt_tokens": 2}, [5, 6], True),
        ({"prompt_token_ids": [5, 6], "prompt_tokens": 4}, [0, 0, 5, 6], False),
        ({"prompt_tokens": 3}, [0, 0, 0], False),
    ],
)
def test_the_prompt(members: dict[str, Any], prompt: list[int], whole: bool) -> None:
    """Where only the number of its tokens is known, usage is still right."""
    context = read(request=REQUEST, **members)
    assert (context.prompt(), context.prompt_is_whole) == (prompt, whole)


@pytest.mark.parametrize(
    ("members", "word"),
    [
        ({"prompt_tokens": 1}, "chat_request"),
        ({"request": REQUEST, "chat_request": REQUEST, "prompt_tokens": 1}, "chat_request"),
        ({"request": REQUEST}, "prompt_token_ids"),
        ({"request": REQUEST, "prompt_token_ids": []}, "prompt_token_ids"),
        ({"request": [], "prompt_tokens": 1}, "request"),
        ({"request": REQUEST, "prompt_tokens": -1}, "prompt_tokens"),
        ({"request": REQUEST, "prompt_tokens": 101}, "100"),
        ({"request": REQUEST, "prompt_token_ids": [1] * 101}, "100"),
        ({"request": REQUEST, "prompt_token_ids": [1, 2], "prompt_tokens": 1}, "2 ids"),
        ({"request": REQUEST, "prompt_token_ids": [-1]}, "prompt_token_ids"),
        ({"request": REQUEST, "prompt_token_ids": ["1"]}, "prompt_token_ids"),
        ({"request": REQUEST, "prompt_tokens": 1, "request_id": ""}, "request_id"),
        ({"request": REQUEST, "prompt_tokens": 1, "request_id": "x" * 2000}, "request_id"),
        ({"request": REQUEST, "prompt_tokens": 1, "created": "now"}, "created"),
        ({"request": REQUEST, "prompt_tokens": 1, "mm_placeholders": {"image": [3]}}, "mm_placeholders"),
    ],
)
def test_what_is_wrong_is_named(members: dict[str, Any], word: str) -> None:
    with pytest.raises(BadPayload, match=word):
        read(**members)


@pytest.mark.parametrize("line", [b"", b"{", b"[]", b"\xff\xfe", b"[" * 100_000])
def test_a_line_that_is_no_context(line: bytes) -> None:
    with pytest.raises(BadPayload, match="first line"):
        read_context(line, max_prompt_tokens=100)
