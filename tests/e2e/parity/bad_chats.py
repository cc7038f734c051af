"""Requests of `/v1/chat/completions` that cannot be served."""

from __future__ import annotations

import json
from typing import Any

from rendergen.tiny_model.abilities import REPORT_COLOR_TOOL
from tests.e2e.calls import CHAT, RED, WHAT_COLOR, chat, image_part, url_part
from tests.e2e.parity.bodies import begun, red, turns, with_tool
from tests.e2e.parity.row import Row, refused

NAN, INFINITY = float("nan"), float("inf")
GOOD = json.dumps(chat("Count to 3")).encode()
TOO_LONG = "Count to 50. " * 4000


def without(request: dict[str, Any], name: str) -> dict[str, Any]:
    """The request but for one member."""
    return {each: value for each, value in request.items() if each != name}


DOCUMENTS: dict[str, Any] = {
    "nothing": b"",
    "no JSON": b"Count to 3",
    "cut JSON": GOOD[:-1],
    "a comma too many": GOOD[:-1] + b",}",
    "null": b"null",
    "a list": b"[]",
    "a string": b'"x"',
    "an empty object": b"{}",
    "two objects": GOOD + GOOD,
    "not UTF-8": GOOD.replace(b"Count", b"\xff\xfe"),
    "a lone surrogate": b'{"model":"tiny-vlm","messages":[{"role":"user","content":"\\ud83d"}]}',
    "many brackets": GOOD[:-1] + b',"x":' + b"[" * 10_000 + b"]" * 10_000 + b"}",
    "a byte order mark": b"\xef\xbb\xbf" + GOOD,
}

TWICE: dict[str, Any] = {
    "the model twice": GOOD[:-1] + b',"model":"tiny-vlm"}',
    "messages twice": GOOD[:-1] + b',"messages":[]}',
    "stream twice": GOOD[:-1] + b',"stream":false,"stream":false}',
}

MESSAGES: dict[str, dict[str, Any]] = {
    "no messages": without(red(), "messages"),
    "an empty list of messages": red(messages=[]),
    "messages that are text": red(messages="Hello"),
    "messages that are null": red(messages=None),
    "a message that is text": red(messages=["Hello"]),
    "a message without a role": red(messages=[{"content": "Hello"}]),
    "an unknown role": turns(("wizard", "Hello"), max_tokens=4),
    "a role that is a number": turns((5, "Hello")),  # type: ignore[arg-type]
    "content that is a number": turns(("user", 5)),
    "content that is an object": turns(("user", {"type": "text", "text": "x"})),
    "a part that is a number": chat(5),  # type: ignore[arg-type]
    "a part without a type": chat({"text": "Hello"}),
    "a part of an unknown type": chat({"type": "smell", "smell": "x"}),
    "a text part without text": chat({"type": "text"}),
    "tool calls that are text": red(messages=[{"role": "assistant", "content": None, "tool_calls": "x"}]),
    "audio": chat({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}),
    "video": chat({"type": "video_url", "video_url": {"url": "data:video/mp4;base64,AAAA"}}),
}

IMAGES: dict[str, dict[str, Any]] = {
    "an image_url without url": chat({"type": "image_url", "image_url": {}}),
    "an image_url that is null": chat({"type": "image_url", "image_url": None}),
    "a url that is a number": chat({"type": "image_url", "image_url": {"url": 5}}),
    "an image that is none": chat(image_part(b"no image at all"), WHAT_COLOR),
    "a PNG that is cut": chat(url_part(RED["image_url"]["url"][:200]), WHAT_COLOR),
    "an image of nothing": chat(image_part(b""), WHAT_COLOR),
    "broken base64": chat(url_part("data:image/png;base64,%%%"), WHAT_COLOR),
    "a data URL of no base64": chat(url_part("data:image/png,abc"), WHAT_COLOR),
    "a remote image": chat(url_part("https://example.com/red.png"), WHAT_COLOR),
    "an image of this machine": chat(url_part("http://127.0.0.1:1/red.png"), WHAT_COLOR),
    "a file": chat(url_part("file:///etc/passwd"), WHAT_COLOR),
    "a url of an unknown scheme": chat(url_part("gopher://example.com/red.png"), WHAT_COLOR),
    "five images": chat(*[RED] * 5, WHAT_COLOR),
    "an unknown detail": chat({**RED, "image_url": {**RED["image_url"], "detail": "some"}}, WHAT_COLOR, max_tokens=4),
}

TOOLS: dict[str, dict[str, Any]] = {
    "tools that are text": red(tools="f"),
    "no tools": red(tools=[]),
    "a tool without a function": red(tools=[{"type": "function"}]),
    "a tool without a name": red(tools=[{"type": "function", "function": {}}]),
    "an unknown type of tool": red(tools=[{**REPORT_COLOR_TOOL, "type": "hammer"}]),
    "a choice without tools": red(tool_choice="required"),
    "an unknown choice": with_tool(tool_choice="perhaps"),
    "a choice that is a number": with_tool(tool_choice=5),
    "a tool that is not there": with_tool(tool_choice={"type": "function", "function": {"name": "g"}}),
    "a named tool without a name": with_tool(tool_choice={"type": "function", "function": {}}),
    "a named tool without a function": with_tool(tool_choice={"type": "function"}),
}


def _of_schema(value: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": value}}


FORMS: dict[str, dict[str, Any]] = {
    "an unknown format": red(response_format={"type": "yaml"}),
    "a format that is text": red(response_format="json"),
    "a schema without a schema": red(response_format={"type": "json_schema"}),
    "a schema that is text": red(response_format=_of_schema("object"), max_tokens=4),
    "a schema of an unknown type": red(response_format=_of_schema({"type": "no"})),
    "a schema with a broken pattern": red(response_format=_of_schema({"type": "string", "pattern": "("})),
    "structured outputs that are a number": red(structured_outputs=5),
    "two kinds of structured outputs": red(structured_outputs={"regex": "a", "choice": ["b"]}),
    "a broken regular expression": red(structured_outputs={"regex": "("}),
    "a broken grammar": red(structured_outputs={"grammar": "nonsense"}),
    "an empty choice": red(structured_outputs={"choice": []}),
    "a tool beside a constraint": with_tool(
        tool_choice={"type": "function", "function": {"name": "report_color"}}, structured_outputs={"regex": "a"}
    ),
}

_NUMBERS: dict[str, tuple[Any, ...]] = {
    "model": (5, ["tiny-vlm"]),
    "stream": ("maybe", 5),
    "stream_options": (5,),
    "temperature": (NAN, INFINITY, -INFINITY, -1, "hot"),
    "top_p": (0, 2, NAN),
    "top_k": (-5, 1.5),
    "min_p": (2, NAN),
    "repetition_penalty": (0, NAN),
    "frequency_penalty": (9,),
    "presence_penalty": (-9, INFINITY),
    "max_tokens": (0, -1, 1.5, "x", 100_000),
    "max_completion_tokens": (0, -5, 100_000),
    "min_tokens": (-1, 5000),
    "n": (0, -1, 10**9, "x"),
    "seed": (10**30, "x"),
    "logit_bias": ({"x": 1}, {"9999999": 1}, {"-1": 1}, {"5": NAN}, 5),
    "logprobs": (5, "x"),
    "stop": ("", [""], 5, ["x"] * 100),
    "stop_token_ids": (["x"], [10**7], [-5], [2**40]),
    "allowed_token_ids": ([], [10**7], [-1]),
    "bad_words": ([""], "x"),
    "truncate_prompt_tokens": (-2, 100_000),
    "prompt_logprobs": (-5, 1000),
    "logprob_token_ids": ([5],),
    "priority": ("x", 10**30),
    "cache_salt": ("", 5, "x" * 2000),
    "chat_template_kwargs": (5,),
    "mm_processor_kwargs": (5,),
    "reasoning_effort": ("huge",),
    "add_generation_prompt": ("x",),
    "request_id": (5,),
    "user": (5,),
    "vllm_xargs": (5,),
}

NUMBERS: dict[str, dict[str, Any]] = {
    f"{name} {json.dumps(value)[:40]}": red(**{name: value}) for name, values in _NUMBERS.items() for value in values
} | {
    "candidates without logprobs": red(top_logprobs=5),
    "too many candidates": red(logprobs=True, top_logprobs=1000),
    "a negative number of candidates": red(logprobs=True, top_logprobs=-5),
    "stream options without a stream": red(stream_options={"include_usage": True}),
    "both a generation prompt and continuing": {**begun(), "add_generation_prompt": True},
    "a least length over the limit": red(min_tokens=9, max_tokens=5),
    "a chat template": red(chat_template="{{ 1/0 }}"),
    "processor settings": red(mm_processor_kwargs={"max_pixels": 10**12}),
    "a prompt longer than the context": chat(TOO_LONG),
    "beams": red(use_beam_search=True, n=2, max_tokens=2),
    "an unknown model": red(model="no-such-model"),
    "an empty model": red(model=""),
}

# These are refused by the engine, or by render after the stream has begun: in a stream an error has its status too.
STREAMED = (
    "an unknown model",
    "an empty list of messages",
    "a prompt longer than the context",
    "five images",
    "a remote image",
    "a PNG that is cut",
    "a broken regular expression",
    "a schema of an unknown type",
    "stop_token_ids [10000000]",
    'logit_bias {"9999999": 1}',
    "allowed_token_ids []",
    "temperature NaN",
    "n 0",
    "max_tokens -1",
    "too many candidates",
    "a tool that is not there",
    "no messages",
    "prompt_logprobs 1000",
)


def bad_chats() -> list[Row]:
    """All of them, some streamed too."""
    of_form = {"Content-Type": "application/x-www-form-urlencoded"}
    return [
        *refused(CHAT, {**DOCUMENTS, **TWICE, **MESSAGES, **IMAGES, **TOOLS, **FORMS, **NUMBERS}, STREAMED),
        Row("a form", CHAT, b"model=tiny-vlm", status=400, headers=of_form),
        Row("plain text as the content type", CHAT, GOOD, status=400, headers={"Content-Type": "text/plain"}),
    ]
