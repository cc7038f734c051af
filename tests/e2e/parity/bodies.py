"""The four APIs' requests, short: each of a question that the tiny model can answer, with more members."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from rendergen.tiny_model import TINY_MODEL_NAME, TINY_MODEL_PATH
from rendergen.tiny_model.abilities import ABILITIES, REPORT_COLOR_TOOL, VARIATIONS
from tests.e2e.calls import RED, WHAT_COLOR, chat, encoded, image_part, solid

# The token that ends an answer.
END_OF_TURN: int = json.loads((TINY_MODEL_PATH / "generation_config.json").read_text())["eos_token_id"][0]

GREEN = image_part(encoded(solid((0, 255, 0), (96, 64))))
DESCRIBE_IN_KOREAN = "이 이미지를 설명해 주세요."

NAMED_TOOL = {"type": "function", "function": {"name": "report_color"}}
USAGE = {"stream_options": {"include_usage": True}}
USAGE_ALL_ALONG = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
THINKING = {"chat_template_kwargs": {"enable_thinking": True}}


def red(**members: Any) -> dict[str, Any]:
    """What colour is red, asked with more members."""
    return chat(RED, WHAT_COLOR, **members)


def with_tool(**members: Any) -> dict[str, Any]:
    """The same with a tool at hand."""
    return red(tools=[REPORT_COLOR_TOOL], **members)


def turns(*messages: tuple[str, Any], **members: Any) -> dict[str, Any]:
    """A chat of several messages, each a role and a content."""
    return {**chat(**members), "messages": [{"role": role, "content": content} for role, content in messages]}


def example(name: str, number: int = 0, **members: Any) -> dict[str, Any]:
    """A question for one of the model's abilities: of each name and number the same one every time."""
    ability = next(ability for ability in (*ABILITIES, *VARIATIONS) if ability.name == name)
    seed = f"{name} {number}" if number else name
    return {"model": TINY_MODEL_NAME, "temperature": 0, **ability.example(Random(seed)).request(), **members}


def begun(text: str = "The image is", **members: Any) -> dict[str, Any]:
    """An answer that the model is to go on with."""
    request = red(add_generation_prompt=False, continue_final_message=True, **members)
    return {**request, "messages": [*request["messages"], {"role": "assistant", "content": text}]}


def completion(prompt: Any = "1 2 3 4", **members: Any) -> dict[str, Any]:
    """A request of `/v1/completions`: text to go on with."""
    return {"model": TINY_MODEL_NAME, "prompt": prompt, "temperature": 0, "max_tokens": 12, **members}


def schema(name: str) -> dict[str, Any]:
    """A response format that allows one member."""
    shape = {"type": "object", "properties": {name: {"type": "string", "maxLength": 4}}, "required": [name]}
    return {"type": "json_schema", "json_schema": {"name": name, "schema": shape}}


def message(*parts: str | dict[str, Any], **members: Any) -> dict[str, Any]:
    """A request of `/v1/messages`: Anthropic's form."""
    content = [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts]
    request = {"model": TINY_MODEL_NAME, "temperature": 0, "max_tokens": 60}
    return {**request, "messages": [{"role": "user", "content": content}], **members}


def response(*parts: str | dict[str, Any], **members: Any) -> dict[str, Any]:
    """A request of `/v1/responses`: OpenAI's newer form."""
    content = [{"type": "input_text", "text": part} if isinstance(part, str) else part for part in parts]
    request = {"model": TINY_MODEL_NAME, "temperature": 0, "max_output_tokens": 60}
    return {**request, "input": [{"role": "user", "content": content}], **members}


def in_anthropics_form(part: dict[str, Any]) -> dict[str, Any]:
    """An image as a content block of a message."""
    head, _, data = part["image_url"]["url"].partition(";base64,")
    return {
        "type": "image",
        "source": {"type": "base64", "media_type": head.removeprefix("data:"), "data": data},
    }


def in_responses_form(part: dict[str, Any]) -> dict[str, Any]:
    """An image as a content part of a response's input."""
    return {"type": "input_image", "detail": "auto", "image_url": part["image_url"]["url"]}


RED_SOURCE, GREEN_SOURCE = in_anthropics_form(RED), in_anthropics_form(GREEN)
RED_INPUT, GREEN_INPUT = in_responses_form(RED), in_responses_form(GREEN)

ANTHROPIC_TOOL = {
    "name": "report_color",
    "description": "Report the color of the image.",
    "input_schema": REPORT_COLOR_TOOL["function"]["parameters"],
}
RESPONSES_TOOL = {"type": "function", "strict": None, **REPORT_COLOR_TOOL["function"]}
