"""Requests of the other three APIs that cannot be served."""

from __future__ import annotations

import json
from typing import Any

from tests.e2e.calls import WHAT_COLOR
from tests.e2e.parity.bad_chats import INFINITY, NAN, TOO_LONG, without
from tests.e2e.parity.bodies import (
    ANTHROPIC_TOOL,
    RED_INPUT,
    RED_SOURCE,
    RESPONSES_TOOL,
    completion,
    message,
    response,
)
from tests.e2e.parity.paths import COMPLETIONS, MESSAGES, RESPONSES
from tests.e2e.parity.row import Row, refused

BAD_COMPLETIONS: dict[str, Any] = {
    "nothing": b"",
    "cut JSON": json.dumps(completion()).encode()[:-1],
    "a list": b"[]",
    "no prompt": without(completion(), "prompt"),
    "a prompt that is null": completion(None),
    "an empty prompt": completion(""),
    "an empty list of prompts": completion([]),
    "an empty prompt of several": completion(["1 2 3", ""]),
    "a prompt that is an object": completion({"a": 1}),
    "prompts of two kinds": completion(["1 2 3", [16]]),
    "a token that is not there": completion([10**7]),
    "a negative token": completion([-1]),
    "a token that is text": completion([16, "x"]),
    "an unknown model": completion(model="no-such-model"),
    "a prompt longer than the context": completion(TOO_LONG),
    "a second prompt longer than the context": completion(["1 2 3", TOO_LONG]),
    "a limit longer than the context": completion(max_tokens=100_000),
    "a limit of nothing": completion(max_tokens=0),
    "a negative limit": completion(max_tokens=-1),
    "a suffix": completion(suffix="x"),
    "temperature NaN": completion(temperature=NAN),
    "temperature -1": completion(temperature=-1),
    "top_p Infinity": completion(top_p=INFINITY),
    "n 0": completion(n=0),
    "n null": completion(n=None),
    "logprobs -1": completion(logprobs=-1),
    "logprobs 1000": completion(logprobs=1000),
    "logprobs true": completion(logprobs="yes"),
    "prompt_logprobs -5": completion(prompt_logprobs=-5),
    "a stop token that is not there": completion(stop_token_ids=[10**7]),
    "a bias for a token that is not there": completion(logit_bias={"9999999": 1}),
    "an empty stop string": completion(stop=""),
    "stream options without a stream": completion(stream_options={"include_usage": True}),
    "a broken regular expression": completion(structured_outputs={"regex": "("}),
    "an unknown format": completion(response_format={"type": "yaml"}),
    "beams": completion(use_beam_search=True, n=2),
    "embeddings of the prompt": completion(None, prompt_embeds="AAAA"),
}
STREAMED_COMPLETIONS = (
    "an unknown model",
    "an empty prompt",
    "a token that is not there",
    "a prompt longer than the context",
    "a second prompt longer than the context",
    "a stop token that is not there",
    "temperature NaN",
    "n 0",
    "logprobs 1000",
)

BAD_MESSAGES: dict[str, Any] = {
    "nothing": b"",
    "cut JSON": json.dumps(message("x")).encode()[:-1],
    "a list": b"[]",
    "no messages": without(message("x"), "messages"),
    "no model": without(message("x"), "model"),
    "no limit": without(message("x"), "max_tokens"),
    "an empty model": message("x", model=""),
    "an unknown model": message("x", model="no-such-model"),
    "an empty list of messages": message(messages=[]),
    "messages that are text": message(messages="Hello"),
    "an unknown role": message(messages=[{"role": "wizard", "content": "Hello"}]),
    "content that is a number": message(messages=[{"role": "user", "content": 5}]),
    "a block of an unknown type": message({"type": "smell"}),
    "a limit of nothing": message("x", max_tokens=0),
    "a negative limit": message("x", max_tokens=-1),
    "a limit longer than the context": message("x", max_tokens=100_000),
    "a prompt longer than the context": message(TOO_LONG),
    "temperature NaN": message("x", temperature=NAN),
    "temperature -1": message("x", temperature=-1),
    "top_p 7": message("x", top_p=7),
    "top_k -5": message("x", top_k=-5),
    "stop sequences that are text": message("x", stop_sequences="a"),
    "an empty stop sequence": message("x", stop_sequences=[""]),
    "tools that are text": message("x", tools="f"),
    "a tool without a schema": message("x", tools=[{"name": "f"}]),
    "an unknown choice": message("x", tools=[ANTHROPIC_TOOL], tool_choice={"type": "perhaps"}),
    "a named tool without a name": message("x", tools=[ANTHROPIC_TOOL], tool_choice={"type": "tool"}),
    "a tool that is not there": message("x", tools=[ANTHROPIC_TOOL], tool_choice={"type": "tool", "name": "g"}),
    "a choice without tools": message("x", tool_choice={"type": "any"}),
    "five images": message(*[RED_SOURCE] * 5, WHAT_COLOR),
    "an image that is none": message(
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}, WHAT_COLOR
    ),
    "a remote image": message({"type": "image", "source": {"type": "url", "url": "https://example.com/red.png"}}),
    "an image without a source": message({"type": "image"}, WHAT_COLOR),
    "too small a budget to think": message("x", thinking={"type": "enabled", "budget_tokens": 5}),
    "a budget over the limit": message("x", thinking={"type": "enabled", "budget_tokens": 2000}),
    "an unknown way to think": message("x", thinking={"type": "perhaps"}),
    "a broken schema": message("x", output_config={"format": {"type": "json_schema", "schema": {"type": "no"}}}),
    "a stream that is no boolean": message("x", stream="maybe"),
}
STREAMED_MESSAGES = (
    "an unknown model",
    "no messages",
    "a prompt longer than the context",
    "temperature NaN",
    "five images",
    "an image that is none",
    "a broken schema",
    "a limit longer than the context",
)

BAD_RESPONSES: dict[str, Any] = {
    "nothing": b"",
    "cut JSON": json.dumps(response("x")).encode()[:-1],
    "a list": b"[]",
    "no input": without(response("x"), "input"),
    "an empty input": response(input=[]),
    "an input that is a number": response(input=5),
    "an unknown role": response(input=[{"role": "wizard", "content": "Hello"}]),
    "an unknown item": response(input=[{"type": "smell"}]),
    "an unknown part": response({"type": "smell"}),
    "an unknown model": response("x", model="no-such-model"),
    "a limit of nothing": response("x", max_output_tokens=0),
    "a negative limit": response("x", max_output_tokens=-1),
    "a prompt longer than the context": response(TOO_LONG),
    "temperature NaN": response("x", temperature=NAN),
    "temperature -1": response("x", temperature=-1),
    "top_p 7": response("x", top_p=7),
    "presence_penalty 9": response("x", presence_penalty=9),
    "too many candidates": response("x", top_logprobs=1000, include=["message.output_text.logprobs"]),
    "an unknown thing to include": response("x", include=["smell"]),
    "tools that are text": response("x", tools="f"),
    "a tool without a name": response("x", tools=[{"type": "function"}]),
    "a choice without tools": response("x", tool_choice="required"),
    "a tool that is not there": response("x", tools=[RESPONSES_TOOL], tool_choice={"type": "function", "name": "g"}),
    "an unknown choice": response("x", tools=[RESPONSES_TOOL], tool_choice="perhaps"),
    "five images": response(*[RED_INPUT] * 5, WHAT_COLOR),
    "an image that is none": response({**RED_INPUT, "image_url": "data:image/png;base64,AAAA"}, WHAT_COLOR),
    "a remote image": response({**RED_INPUT, "image_url": "https://example.com/red.png"}, WHAT_COLOR),
    "a broken schema": response("x", text={"format": {"type": "json_schema", "name": "x", "schema": {"type": "no"}}}),
    "an unknown format": response("x", text={"format": {"type": "yaml"}}),
    "a prompt template": response("x", prompt={"id": "p"}),
    "an answer before": response("x", previous_response_id="resp_1"),
    "an answer before of an odd id": response("x", previous_response_id="x"),
    "in the background": response("x", background=True),
    "in the background, not stored": response("x", background=True, store=False),
    "an unknown truncation": response("x", truncation="some"),
    "an unknown tier": response("x", service_tier="first"),
    "a stop token that is not there": response("x", stop_token_ids=[10**7]),
}
STREAMED_RESPONSES = (
    "an unknown model",
    "no input",
    "a prompt longer than the context",
    "temperature NaN",
    "five images",
    "an image that is none",
    "a broken schema",
    "a stop token that is not there",
)


def bad_others() -> list[Row]:
    """All of them, some streamed too."""
    return [
        *refused(COMPLETIONS, BAD_COMPLETIONS, STREAMED_COMPLETIONS),
        *refused(MESSAGES, BAD_MESSAGES, STREAMED_MESSAGES),
        *refused(RESPONSES, BAD_RESPONSES, STREAMED_RESPONSES),
    ]
