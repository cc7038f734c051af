"""Requests of `/v1/responses`: of one turn, not stored."""

from __future__ import annotations

from typing import Any

from tests.e2e.calls import WHAT_COLOR
from tests.e2e.parity.bodies import (
    DESCRIBE_IN_KOREAN,
    GREEN_INPUT,
    RED_INPUT,
    RESPONSES_TOOL,
    THINKING,
    response,
)

RESPONSE_REQUESTS: dict[str, dict[str, Any]] = {
    "text": response("Count to 20"),
    "a string": response(input="Count to 20"),
    "cut short": response("Count to 20", max_output_tokens=5),
    "an image": response(RED_INPUT, WHAT_COLOR),
    "Korean": response(RED_INPUT, DESCRIBE_IN_KOREAN),
    "a tool": response(RED_INPUT, WHAT_COLOR, tools=[RESPONSES_TOOL], tool_choice="auto"),
    "a tool that must be called": response(RED_INPUT, WHAT_COLOR, tools=[RESPONSES_TOOL], tool_choice="required"),
    "thinking": response(RED_INPUT, WHAT_COLOR, **THINKING),
    "logprobs": response("Count to 5", top_logprobs=2, include=["message.output_text.logprobs"]),
}

MORE_RESPONSES: dict[str, dict[str, Any]] = {
    "16 tokens": response("Count to 20", max_output_tokens=16),
    "no limit": {name: value for name, value in response("Count to 7").items() if name != "max_output_tokens"},
    "not stored": response("Count to 7", store=False),
    "instructions": response("Count to 7", instructions="Answer briefly."),
    "three turns": response(
        input=[
            {"role": "user", "content": "Count to 3"},
            {"role": "assistant", "content": "1 2 3"},
            {"role": "user", "content": [RED_INPUT, {"type": "input_text", "text": WHAT_COLOR}]},
        ]
    ),
    "two images": response(RED_INPUT, GREEN_INPUT, "What colors are these images?"),
    "detail high": response({**RED_INPUT, "detail": "high"}, WHAT_COLOR),
    "no detail": response({name: value for name, value in RED_INPUT.items() if name != "detail"}, WHAT_COLOR),
    "a stop string": response("Count to 20", stop=["5 6"]),
    "a seed": response("Count to 7", temperature=1.2, seed=3, max_output_tokens=12),
    "samplers": response("Count to 7", temperature=0.0, top_p=0.9, top_k=5),
    "penalties": response("Count to 7", presence_penalty=0.5, frequency_penalty=0.5),
    "a tool that is named": response(
        RED_INPUT, WHAT_COLOR, tools=[RESPONSES_TOOL], tool_choice={"type": "function", "name": "report_color"}
    ),
    "a tool not to be called": response(RED_INPUT, WHAT_COLOR, tools=[RESPONSES_TOOL], tool_choice="none"),
    "a tool call cut short": response(RED_INPUT, WHAT_COLOR, tools=[RESPONSES_TOOL], max_output_tokens=9),
    "a tool's result": response(
        tools=[RESPONSES_TOOL],
        input=[
            {"role": "user", "content": [RED_INPUT, {"type": "input_text", "text": WHAT_COLOR}]},
            {"type": "function_call", "call_id": "c1", "name": "report_color", "arguments": '{"color": "red"}'},
            {"type": "function_call_output", "call_id": "c1", "output": "ok"},
        ],
    ),
    "thinking left out": response(RED_INPUT, WHAT_COLOR, include_reasoning=False, **THINKING),
    "thinking cut short": response(RED_INPUT, WHAT_COLOR, max_output_tokens=5, **THINKING),
    "thinking with a tool": response(RED_INPUT, WHAT_COLOR, tools=[RESPONSES_TOOL], **THINKING),
    "reasoning effort": response(RED_INPUT, WHAT_COLOR, reasoning={"effort": "low"}),
    "a JSON object": response(RED_INPUT, WHAT_COLOR, text={"format": {"type": "json_object"}}, max_output_tokens=20),
    "a JSON schema": response(
        RED_INPUT,
        WHAT_COLOR,
        text={
            "format": {
                "type": "json_schema",
                "name": "color",
                "schema": {
                    "type": "object",
                    "properties": {"color": {"type": "string", "maxLength": 4}},
                    "required": ["color"],
                },
            }
        },
    ),
    "metadata, a user and a tier": response("Count to 7", metadata={"a": "b"}, user="u", service_tier="default"),
    "truncation": response("Count to 7", truncation="auto"),
    "unknown members": response("Count to 7", no_such_member=1),
    "no model": {name: value for name, value in response("Count to 7").items() if name != "model"},
}
