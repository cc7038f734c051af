"""What pods without the plugin would answer wrongly."""

from __future__ import annotations

from typing import Any

import pytest

from rendergen.service.errors import BadRequest
from router.apis import CHAT, COMPLETIONS, Api
from router.upstream_refusals import refuse
from tests.support.requests import api_request

TOOLS = [{"type": "function", "function": {"name": "f"}}]

REFUSED: dict[str, tuple[Api, dict[str, Any], str]] = {
    "echo": (COMPLETIONS, {"echo": True}, "echo"),
    "echo in chat": (CHAT, {"echo": True}, "echo"),
    "the prompt's text": (CHAT, {"return_prompt_text": True}, "return_prompt_text"),
    "candidates by id": (CHAT, {"logprobs": True, "logprob_token_ids": [1]}, "logprob_token_ids"),
    "token ids for text": (CHAT, {"logprobs": True, "return_tokens_as_token_ids": True}, "return_tokens_as_token_ids"),
    "the same in completions": (
        COMPLETIONS,
        {"logprobs": 0, "return_tokens_as_token_ids": True},
        "return_tokens_as_token_ids",
    ),
    "hidden reasoning with logprobs": (CHAT, {"logprobs": True, "include_reasoning": False}, "include_reasoning"),
    "a stop string with tools": (CHAT, {"stop": "E", "tools": TOOLS}, "stop"),
    "stop strings with tools to choose from": (CHAT, {"stop": ["E"], "tools": TOOLS, "tool_choice": "auto"}, "stop"),
    "a stop string with a least length": (COMPLETIONS, {"stop": ["E"], "min_tokens": 3}, "stop"),
}

TAKEN: dict[str, tuple[Api, dict[str, Any]]] = {
    "nothing special": (CHAT, {}),
    "stop strings": (CHAT, {"stop": ["E", "F"]}),
    "no stop strings": (CHAT, {"stop": [], "tools": TOOLS, "min_tokens": 3}),
    "null for them": (CHAT, {"stop": None, "tools": TOOLS}),
    "stop strings without a tool": (CHAT, {"stop": "E", "tools": []}),
    "stop strings with tools not to be called": (CHAT, {"stop": "E", "tools": TOOLS, "tool_choice": "none"}),
    "a least length of none": (CHAT, {"stop": "E", "min_tokens": 0}),
    "what is false": (CHAT, {"echo": False, "return_prompt_text": False, "return_tokens_as_token_ids": False}),
    "token ids for text that is not asked for": (CHAT, {"return_tokens_as_token_ids": True}),
    "logprobs": (CHAT, {"logprobs": True, "top_logprobs": 3, "stream": True}),
    "logprobs with the reasoning": (CHAT, {"logprobs": True, "include_reasoning": True}),
    "hidden reasoning": (CHAT, {"include_reasoning": False, "logprobs": False}),
}


@pytest.mark.parametrize(("api", "members", "param"), REFUSED.values(), ids=REFUSED)
def test_what_would_be_wrong_is_refused(api: Api, members: dict[str, Any], param: str) -> None:
    """With a 400 that names the param, and says what would help."""
    with pytest.raises(BadRequest, match=f"`{param}` .*plugin") as refusal:
        refuse(api_request(api, **members))
    assert refusal.value.param == param


@pytest.mark.parametrize(("api", "members"), TAKEN.values(), ids=TAKEN)
def test_what_can_be_put_right_is_taken(api: Api, members: dict[str, Any]) -> None:
    """And what says no more than the default."""
    refuse(api_request(api, **members))


def test_sampling_params_count_as_well() -> None:
    """A caller may say it there."""
    with pytest.raises(BadRequest) as refusal:
        refuse(api_request(overrides={"stop": b'["E"]', "min_tokens": b"2"}))
    assert refusal.value.param == "stop"
