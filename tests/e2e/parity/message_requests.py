"""Requests of `/v1/messages`."""

from __future__ import annotations

from typing import Any

from tests.e2e.calls import WHAT_COLOR
from tests.e2e.parity.bodies import (
    ANTHROPIC_TOOL,
    DESCRIBE_IN_KOREAN,
    GREEN_SOURCE,
    RED_SOURCE,
    THINKING,
    message,
)

_CALL = {"type": "tool_use", "id": "toolu_1", "name": "report_color", "input": {"color": "red"}}
_RESULT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "ok"}

MESSAGE_REQUESTS: dict[str, dict[str, Any]] = {
    "text": message("Count to 20"),
    "cut short": message("Count to 20", max_tokens=5),
    "16 tokens": message("Count to 20", max_tokens=16),
    "a stop sequence": message("Count to 20", stop_sequences=["5 6"]),
    "an image": message(RED_SOURCE, WHAT_COLOR),
    "Korean": message(RED_SOURCE, DESCRIBE_IN_KOREAN),
    "a tool": message(RED_SOURCE, WHAT_COLOR, tools=[ANTHROPIC_TOOL]),
    "a tool that must be called": message(RED_SOURCE, WHAT_COLOR, tools=[ANTHROPIC_TOOL], tool_choice={"type": "any"}),
    "a tool that is named": message(
        RED_SOURCE, WHAT_COLOR, tools=[ANTHROPIC_TOOL], tool_choice={"type": "tool", "name": "report_color"}
    ),
    "thinking": message(RED_SOURCE, WHAT_COLOR, **THINKING),
    "thinking disabled": message("Count to 3", thinking={"type": "disabled"}),
}

MORE_MESSAGES: dict[str, dict[str, Any]] = {
    "a string as content": message(messages=[{"role": "user", "content": "Count to 7"}]),
    "a system prompt": message("Count to 7", system="Answer briefly."),
    "a system prompt in blocks": message("Count to 7", system=[{"type": "text", "text": "Answer briefly."}]),
    "three turns": message(
        messages=[
            {"role": "user", "content": "Count to 3"},
            {"role": "assistant", "content": [{"type": "text", "text": "1 2 3"}]},
            {"role": "user", "content": [RED_SOURCE, {"type": "text", "text": WHAT_COLOR}]},
        ]
    ),
    "two images": message(RED_SOURCE, GREEN_SOURCE, "What colors are these images?"),
    "an image by data URL": message(
        {"type": "image", "source": {"type": "url", "url": f"data:image/png;base64,{RED_SOURCE['source']['data']}"}},
        WHAT_COLOR,
    ),
    "an image with a stop sequence": message(RED_SOURCE, "Describe this image.", stop_sequences=["solid"]),
    "a tool not to be called": message(RED_SOURCE, WHAT_COLOR, tools=[ANTHROPIC_TOOL], tool_choice={"type": "none"}),
    "a tool by choice, one at a time": message(
        RED_SOURCE,
        WHAT_COLOR,
        tools=[ANTHROPIC_TOOL],
        tool_choice={"type": "auto", "disable_parallel_tool_use": True},
    ),
    "a tool call cut short": message(RED_SOURCE, WHAT_COLOR, tools=[ANTHROPIC_TOOL], max_tokens=9),
    "a tool's result": message(
        tools=[ANTHROPIC_TOOL],
        messages=[
            {"role": "user", "content": [RED_SOURCE, {"type": "text", "text": WHAT_COLOR}]},
            {"role": "assistant", "content": [_CALL]},
            {"role": "user", "content": [_RESULT]},
        ],
    ),
    "thinking cut short": message(RED_SOURCE, WHAT_COLOR, max_tokens=5, **THINKING),
    "thinking with a budget": message(
        RED_SOURCE, WHAT_COLOR, max_tokens=1100, thinking={"type": "enabled", "budget_tokens": 1024}
    ),
    "thinking with a tool": message(RED_SOURCE, WHAT_COLOR, tools=[ANTHROPIC_TOOL], **THINKING),
    "samplers": message("Count to 7", temperature=0.0, top_k=5, top_p=0.9),
    "metadata": message("Count to 7", metadata={"user_id": "u"}),
    "a schema": message(
        RED_SOURCE,
        WHAT_COLOR,
        output_config={
            "format": {
                "type": "json_schema",
                "schema": {
                    "type": "object",
                    "properties": {"color": {"type": "string", "maxLength": 4}},
                    "required": ["color"],
                },
            }
        },
    ),
    "a cache salt": message("Count to 7", cache_salt="salt"),
    "unknown members": message("Count to 7", no_such_member=1),
    "cache control": message({"type": "text", "text": "Count to 7", "cache_control": {"type": "ephemeral"}}),
}

# What the official client sends with each request.
ANTHROPIC_HEADERS = {"anthropic-version": "2023-06-01", "x-api-key": "none", "anthropic-beta": "tools-2024-04-04"}
