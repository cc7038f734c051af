"""Features of a chat request, two at a time: what works alone may not work beside another."""

from __future__ import annotations

from itertools import combinations
from typing import Any

from rendergen.tiny_model.abilities import REPORT_COLOR_TOOL
from tests.e2e.calls import CHAT, RED, WHAT_COLOR, chat
from tests.e2e.parity.bodies import DESCRIBE_IN_KOREAN, GREEN, NAMED_TOOL, THINKING, USAGE, schema
from tests.e2e.parity.row import Row

_CONTENT = "messages"

# Members that each feature sets; of `messages`, the parts of the one message.
FEATURES: dict[str, dict[str, Any]] = {
    "an image": {_CONTENT: (RED, WHAT_COLOR)},
    "two images": {_CONTENT: (RED, GREEN, "What colors are these images?")},
    "Korean": {_CONTENT: (RED, DESCRIBE_IN_KOREAN)},
    "thinking": THINKING,
    "a tool": {"tools": [REPORT_COLOR_TOOL]},
    "a tool that must be called": {"tools": [REPORT_COLOR_TOOL], "tool_choice": "required"},
    "a tool that is named": {"tools": [REPORT_COLOR_TOOL], "tool_choice": NAMED_TOOL},
    "a schema": {"response_format": schema("color")},
    "two choices": {"n": 2, "temperature": 1.2, "seed": 3},
    "a limit": {"max_tokens": 16},
    "a short limit": {"max_completion_tokens": 4},
    "a stop string": {"stop": ["5 6", "ed", "or"]},
    "the stop string kept": {"stop": ["5 6", "ed", "or"], "include_stop_str_in_output": True},
    "the end ignored": {"ignore_eos": True, "max_tokens": 14},
    "special tokens": {"skip_special_tokens": False},
    "logprobs": {"logprobs": True, "top_logprobs": 2},
    "token ids": {"return_token_ids": True},
    "usage": USAGE,
}


def paired() -> list[Row]:
    """Every two features that do not set one member to different values; each second pair is streamed."""
    rows = []
    for (name, members), (other_name, other_members) in combinations(FEATURES.items(), 2):
        if any(members[member] != other_members[member] for member in members.keys() & other_members.keys()):
            continue
        both = {"max_tokens": 24, **members, **other_members}
        if "max_completion_tokens" in both:
            del both["max_tokens"]
        parts = both.pop(_CONTENT, (RED, WHAT_COLOR) if "tools" in both else ("Count to 9",))
        row = Row(f"{name} and {other_name}", CHAT, chat(*parts, **both))
        rows.append(row.streamed() if "stream_options" in both or len(rows) % 2 else row)
    return rows
