"""Members of a chat request that change how an answer ends, looks or is chosen: the same as on one `vllm serve`."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import aiohttp
import pytest

from rendergen.launcher import Stack
from rendergen.tiny_model import TINY_MODEL_NAME, TINY_MODEL_PATH
from rendergen.tiny_model.abilities import ABILITIES, REPORT_COLOR_TOOL
from tests.e2e.calls import CHAT, GENERATE, RED, RENDER, WHAT_COLOR, chat, ok
from tests.e2e.projection import projection

# The token that ends an answer.
END_OF_TURN = json.loads((TINY_MODEL_PATH / "generation_config.json").read_text())["eos_token_id"][0]

THINKING = next(ability for ability in ABILITIES if ability.name == "thinking").example(Random("thinking")).request()


def red(**members: Any) -> dict[str, Any]:
    """What colour is red, asked with more members."""
    return chat(RED, WHAT_COLOR, **members)


def with_tool(**members: Any) -> dict[str, Any]:
    """The same with a tool at hand."""
    return red(tools=[REPORT_COLOR_TOOL], **members)


def thinking(**members: Any) -> dict[str, Any]:
    """A question that the model thinks about first."""
    return {"model": TINY_MODEL_NAME, **THINKING, **members}


def begun(**members: Any) -> dict[str, Any]:
    """An answer that the model is to go on with."""
    request = chat(RED, "Describe this image.", add_generation_prompt=False, continue_final_message=True, **members)
    return {**request, "messages": [*request["messages"], {"role": "assistant", "content": "The image is"}]}


REQUESTS = {
    "three choices": chat("Count to 9", n=3, temperature=1.2, seed=3, max_tokens=20),
    "nothing but the end": red(allowed_token_ids=[END_OF_TURN]),
    "nothing but the end, which is kept": red(allowed_token_ids=[END_OF_TURN], include_stop_str_in_output=True),
    "the end kept": red(include_stop_str_in_output=True),
    "the end ignored": red(ignore_eos=True, max_tokens=8),
    "special tokens kept": red(skip_special_tokens=False),
    "special tokens kept, the end ignored": red(skip_special_tokens=False, ignore_eos=True, max_tokens=5),
    "a least length": red(min_tokens=5),
    "a repetition penalty": chat("Count to 20", repetition_penalty=1.3, max_tokens=30),
    "a bias": red(logit_bias={"600": 100}, max_tokens=4),
    "a forbidden word": red(bad_words=["Red"], max_tokens=6),
    "a truncated prompt": chat("Count to 20", truncate_prompt_tokens=5, max_tokens=8),
    "logprobs": red(logprobs=True, top_logprobs=3),
    "prompt logprobs": chat("Count to 3", prompt_logprobs=1),
    "a JSON object": red(response_format={"type": "json_object"}, max_tokens=20),
    "a choice": red(structured_outputs={"choice": ["Green", "Blue"]}),
    "a regular expression": red(structured_outputs={"regex": "[0-9]{3}"}),
    "a tool not to be called": with_tool(tool_choice="none"),
    "a tool that must be called": with_tool(tool_choice="required"),
    "a tool that is named": with_tool(tool_choice={"type": "function", "function": {"name": "report_color"}}),
    "a tool call cut short": with_tool(max_tokens=10),
    "reasoning left out": thinking(include_reasoning=False),
    "reasoning cut short": thinking(max_tokens=5),
    "an answer to go on with": begun(),
}


@pytest.mark.parametrize("case", REQUESTS)
async def test_the_router_answers_as_the_engine_does(stack: Stack, client: aiohttp.ClientSession, case: str) -> None:
    """Content, reasoning, tool calls, finish and stop reason, usage and logprobs."""
    ours = await ok(client, stack.router_url + CHAT, REQUESTS[case])
    theirs = await ok(client, stack.vllm_engine_urls[0] + CHAT, REQUESTS[case])
    assert projection(ours) == projection(theirs)
    assert [choice["logprobs"] for choice in ours["choices"]] == [choice["logprobs"] for choice in theirs["choices"]]


async def test_a_stop_token_ends_the_answer(stack: Stack, client: aiohttp.ClientSession) -> None:
    """The token is counted and named, and is no part of the text."""
    question = chat("Count to 20")
    payload = await ok(client, stack.router_url + RENDER, question)
    generated = await ok(client, stack.router_url + GENERATE, payload)
    token = generated["choices"][0]["token_ids"][6]
    request = {**question, "stop_token_ids": [token]}
    ours = await ok(client, stack.router_url + CHAT, request)
    assert ours["choices"][0]["stop_reason"] == token
    assert projection(ours) == projection(await ok(client, stack.vllm_engine_urls[0] + CHAT, request))
