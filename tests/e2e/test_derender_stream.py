"""Derender in a stream: what comes out is what one server would have answered, ids and times aside.

The engine's own answer is asked for beside it, each time, of the same vLLM that generated.
"""

from __future__ import annotations

import json
from random import Random
from typing import Any

import aiohttp
import pytest

from rendergen.launcher import Stack
from rendergen.tiny_model import TINY_MODEL_NAME, TINY_MODEL_PATH
from rendergen.tiny_model.abilities import ABILITIES, REPORT_COLOR_TOOL
from tests.e2e.calls import CHAT, RED, WHAT_COLOR, chat, ok, post
from tests.e2e.derendered import context_of, derender, derendered, generated, rendered
from tests.e2e.joined import chat_joined, messages_joined, responses_joined, without_own

pytestmark = pytest.mark.plugin

COMPLETIONS = "/v1/completions"
MESSAGES = "/v1/messages"
RESPONSES = "/v1/responses"

END_OF_TURN = json.loads((TINY_MODEL_PATH / "generation_config.json").read_text())["eos_token_id"][0]


def red(**members: Any) -> dict[str, Any]:
    """What colour is red, asked with more members."""
    return chat(RED, WHAT_COLOR, **members)


def with_tool(**members: Any) -> dict[str, Any]:
    """The same with a tool at hand."""
    return red(tools=[REPORT_COLOR_TOOL], **members)


def example(name: str, **members: Any) -> dict[str, Any]:
    """A question for one of the model's abilities."""
    ability = next(ability for ability in ABILITIES if ability.name == name)
    return {"model": TINY_MODEL_NAME, "temperature": 0, **ability.example(Random(name)).request(), **members}


def begun(**members: Any) -> dict[str, Any]:
    """An answer that the model is to go on with."""
    request = red(add_generation_prompt=False, continue_final_message=True, **members)
    return {**request, "messages": [*request["messages"], {"role": "assistant", "content": "The image is"}]}


def completion(prompt: Any = "1 2 3 4", **members: Any) -> dict[str, Any]:
    """A request of text to go on with."""
    return {"model": TINY_MODEL_NAME, "prompt": prompt, "temperature": 0, "max_tokens": 12, **members}


def schema(name: str) -> dict[str, Any]:
    """A response format that allows one member."""
    shape = {"type": "object", "properties": {name: {"type": "string", "maxLength": 4}}, "required": [name]}
    return {"type": "json_schema", "json_schema": {"name": name, "schema": shape}}


NAMED_TOOL = {"type": "function", "function": {"name": "report_color"}}
USAGE = {"stream_options": {"include_usage": True}}

CHAT_REQUESTS = {
    **{ability.name: example(ability.name, **USAGE) for ability in ABILITIES},
    "16 tokens, which render leaves out": chat("Count to 50", max_tokens=16),
    "few tokens": chat("Count to 50", max_tokens=3),
    "one token": red(max_tokens=1),
    "the end ignored": red(ignore_eos=True, max_tokens=24),
    "a least length": red(min_tokens=5),
    "a stop string": chat("Count to 30", stop=["7 8"]),
    "a stop string that is kept": chat("Count to 30", stop=["7 8"], include_stop_str_in_output=True),
    "stop strings over many tokens": chat("Count to 30", stop=["9 10 11 12 13 1", "20"], **USAGE),
    "a stop string too early": chat("Count to 30", stop="4", min_tokens=20),
    "a stop string that never comes": chat("Count to 12", stop=["and then something else"]),
    "a stop token": chat("Count to 20", stop_token_ids=[END_OF_TURN - 1, 20]),
    "nothing but the end": red(allowed_token_ids=[END_OF_TURN]),
    "the end kept": red(include_stop_str_in_output=True),
    "special tokens kept": red(skip_special_tokens=False),
    "three choices": chat("Count to 9", n=3, temperature=1.2, seed=3, max_tokens=20, **USAGE),
    "three choices with logprobs": chat(
        "Count to 9", n=3, temperature=1.5, seed=5, max_tokens=9, logprobs=True, top_logprobs=2
    ),
    "usage all along": example("thinking", stream_options={"include_usage": True, "continuous_usage_stats": True}),
    "logprobs": red(logprobs=True),
    "logprobs of candidates": red(logprobs=True, top_logprobs=5, **USAGE),
    "logprobs of bytes": example("Korean", logprobs=True, top_logprobs=8),
    "logprobs of odd bytes": example(
        "Korean", logprobs=True, top_logprobs=6, temperature=2.0, seed=11, max_tokens=40, ignore_eos=True
    ),
    "logprobs with a tool": with_tool(logprobs=True, top_logprobs=2),
    "logprobs with reasoning": example("thinking", logprobs=True, top_logprobs=2),
    "logprobs as token ids": red(logprobs=True, top_logprobs=2, return_tokens_as_token_ids=True),
    "token ids": red(return_token_ids=True),
    "token ids with reasoning": example("thinking", return_token_ids=True, **USAGE),
    "token ids with a tool": with_tool(return_token_ids=True),
    "reasoning left out": example("thinking", include_reasoning=False, logprobs=True, **USAGE),
    "reasoning cut short": example("thinking", max_tokens=5, **USAGE),
    "reasoning of odd text": example("thinking", temperature=2.0, seed=2, max_tokens=60, ignore_eos=True),
    "a tool not to be called": with_tool(tool_choice="none"),
    "a tool that must be called": with_tool(tool_choice="required", **USAGE),
    "a tool that is named": with_tool(tool_choice=NAMED_TOOL, **USAGE),
    "a tool call cut short": with_tool(max_tokens=10),
    "a tool call stopped": with_tool(stop=["color"]),
    "one tool call at a time": with_tool(parallel_tool_calls=False),
    "a JSON object": red(response_format={"type": "json_object"}, max_tokens=20),
    "a JSON schema": red(response_format=schema("color"), max_tokens=40),
    "a choice": red(structured_outputs={"choice": ["Green", "Blue"]}),
    "an answer to go on with": begun(),
    "a user's role": red(add_generation_prompt=False, max_tokens=6),
    "a truncated prompt": chat("Count to 20", truncate_prompt_tokens=5, max_tokens=8),
    "garbage": chat("Count to 50", temperature=2.0, seed=9, max_tokens=120, ignore_eos=True, logprobs=True),
}

# These need log probabilities of the prompt, which generate's stream does not have.
ONLY_WHOLE = {
    "prompt logprobs": chat("Count to 3", prompt_logprobs=1),
    "an answer to go on with, echoed": begun(echo=True),
    "an answer to go on with, echoed with logprobs": begun(echo=True, logprobs=True, top_logprobs=2),
}


@pytest.mark.parametrize("generate_streams", [True, False], ids=["generate streams", "generate whole"])
@pytest.mark.parametrize("case", CHAT_REQUESTS)
async def test_a_chat_stream_is_that_of_one_server(
    stack: Stack, client: aiohttp.ClientSession, case: str, generate_streams: bool
) -> None:
    """Joined deltas, finish and stop reasons, usage, logprobs, tool calls, and the order of the kinds of chunk."""
    request = {**CHAT_REQUESTS[case], "stream": True}
    ours = await derendered(client, stack, CHAT, request, generate_streams=generate_streams)
    theirs = await post(client, stack.vllm_engine_urls[0] + CHAT, request)
    assert ours.headers["content-type"] == theirs.headers["content-type"]
    assert chat_joined(ours.text()) == chat_joined(theirs.text())


@pytest.mark.parametrize("generate_streams", [True, False], ids=["generate streams", "generate whole"])
@pytest.mark.parametrize("case", [*CHAT_REQUESTS, *ONLY_WHOLE])
async def test_a_chat_completion_is_that_of_one_server(
    stack: Stack, client: aiohttp.ClientSession, case: str, generate_streams: bool
) -> None:
    """Every member, ids and times aside."""
    if generate_streams and case in ONLY_WHOLE:
        pytest.skip("generate's stream lacks it: test_what_generates_stream_lacks_is_refused")
    request = {**{**CHAT_REQUESTS, **ONLY_WHOLE}[case]}
    request.pop("stream_options", None)
    ours = await derendered(client, stack, CHAT, request, generate_streams=generate_streams)
    assert ours.status == 200, ours.text()
    assert without_own(ours.json()) == without_own(await ok(client, stack.vllm_engine_urls[0] + CHAT, request))


async def test_an_error_of_the_serving_layer_is_that_of_one_server(stack: Stack, client: aiohttp.ClientSession) -> None:
    """vLLM cannot echo in a stream with a template that takes parts, and says so in its own way.

    It says it within a 200. Here nothing of the stream has been sent by then, so that the same error has its status.
    """
    request = begun(echo=True, stream=True)
    ours = await derendered(client, stack, CHAT, request, generate_streams=True)
    theirs = chat_joined((await post(client, stack.vllm_engine_urls[0] + CHAT, request)).text())["error"]
    assert ours.json()["error"] == theirs
    assert ours.status == theirs["code"]


COMPLETION_REQUESTS = {
    "plain": completion(),
    "by token ids": completion([16, 17, 18, 19]),
    "16 tokens, which are the default": {**completion(ignore_eos=True), "max_tokens": None},
    "usage": completion(**USAGE),
    "usage all along": completion(stream_options={"include_usage": True, "continuous_usage_stats": True}),
    "logprobs": completion(logprobs=3),
    "logprobs of the sampled tokens alone": completion(logprobs=0),
    "logprobs as token ids": completion(logprobs=2, return_tokens_as_token_ids=True),
    "odd logprobs": completion("빨간색", logprobs=4, temperature=2.0, seed=3, max_tokens=30),
    "a stop string": completion(max_tokens=40, stop=["9 1"]),
    "token ids": completion(return_token_ids=True),
    "three choices": completion(n=3, temperature=1.3, seed=4, **USAGE),
    "echoed": completion(echo=True, max_tokens=4),
    "echoed from token ids": completion([16, 17, 18, 19], echo=True),
    "echoed with token ids": completion(echo=True, return_token_ids=True),
    "a JSON schema": completion(response_format=schema("a"), max_tokens=20),
}

COMPLETIONS_ONLY_WHOLE = {
    "prompt logprobs": completion(prompt_logprobs=2),
    "echoed with logprobs": completion(echo=True, logprobs=2),
    "the prompt alone, with logprobs": completion(echo=True, logprobs=2, max_tokens=0),
}


@pytest.mark.parametrize("generate_streams", [True, False], ids=["generate streams", "generate whole"])
@pytest.mark.parametrize("case", COMPLETION_REQUESTS)
async def test_a_text_stream_is_that_of_one_server(
    stack: Stack, client: aiohttp.ClientSession, case: str, generate_streams: bool
) -> None:
    """The same of `/v1/completions`."""
    request = {**COMPLETION_REQUESTS[case], "stream": True}
    ours = await derendered(client, stack, COMPLETIONS, request, generate_streams=generate_streams)
    theirs = await post(client, stack.vllm_engine_urls[0] + COMPLETIONS, request)
    assert chat_joined(ours.text()) == chat_joined(theirs.text())


@pytest.mark.parametrize("generate_streams", [True, False], ids=["generate streams", "generate whole"])
@pytest.mark.parametrize("case", [*COMPLETION_REQUESTS, *COMPLETIONS_ONLY_WHOLE])
async def test_a_text_completion_is_that_of_one_server(
    stack: Stack, client: aiohttp.ClientSession, case: str, generate_streams: bool
) -> None:
    """Every member, ids and times aside."""
    if generate_streams and case in COMPLETIONS_ONLY_WHOLE:
        pytest.skip("generate's stream lacks prompt logprobs: test_what_generates_stream_lacks_is_refused")
    request = {**{**COMPLETION_REQUESTS, **COMPLETIONS_ONLY_WHOLE}[case]}
    request.pop("stream_options", None)
    ours = await derendered(client, stack, COMPLETIONS, request, generate_streams=generate_streams)
    assert ours.status == 200, ours.text()
    assert without_own(ours.json()) == without_own(await ok(client, stack.vllm_engine_urls[0] + COMPLETIONS, request))


async def test_a_streamed_echo_with_logprobs(stack: Stack, client: aiohttp.ClientSession) -> None:
    """Of generate's whole answer, which has log probabilities of the prompt."""
    request = completion(echo=True, logprobs=2, max_tokens=4, stream=True)
    ours = await derendered(client, stack, COMPLETIONS, request, generate_streams=False)
    theirs = await post(client, stack.vllm_engine_urls[0] + COMPLETIONS, request)
    assert chat_joined(ours.text()) == chat_joined(theirs.text())


LACKING = {
    **{name: (CHAT, request, "prompt_logprobs") for name, request in ONLY_WHOLE.items()},
    **{name: (COMPLETIONS, request, "prompt_logprobs") for name, request in COMPLETIONS_ONLY_WHOLE.items()},
    "a streamed echo": (COMPLETIONS, completion(echo=True, logprobs=2, stream=True), "prompt_logprobs"),
    "candidates by id": (COMPLETIONS, completion(logprobs=2, logprob_token_ids=[5, 6]), "logprob_token_ids"),
}


@pytest.mark.parametrize("case", LACKING)
async def test_what_generates_stream_lacks_is_refused(stack: Stack, client: aiohttp.ClientSession, case: str) -> None:
    """Rather than left out without a word."""
    path, request, param = LACKING[case]
    reply = await derendered(client, stack, path, request, generate_streams=True)
    assert (reply.status, reply.json()["error"]["param"]) == (400, param)


async def test_two_thousand_tokens(stack: Stack, client: aiohttp.ClientSession) -> None:
    """A long stream is as right at its end as at its beginning."""
    request = chat("Count to 50", max_tokens=2000, ignore_eos=True, stream=True, **USAGE)
    ours = await derendered(client, stack, CHAT, request, generate_streams=True)
    theirs = chat_joined((await post(client, stack.vllm_engine_urls[0] + CHAT, request)).text())
    assert theirs["usages"]["all"]["completion_tokens"] == 2000
    assert chat_joined(ours.text()) == theirs


async def test_candidates_beside_the_sampled_token(stack: Stack, client: aiohttp.ClientSession) -> None:
    """Completions give one candidate more where the sampled token is none of them; generate has to be asked for it."""
    request = completion(logprobs=2, temperature=2.0, top_k=-1, seed=1, max_tokens=40)
    payload = await rendered(client, stack, COMPLETIONS, request)
    payload["sampling_params"]["logprobs"] += 1
    answer = await generated(client, stack, payload, stream=True)
    ours = await derender(client, stack, COMPLETIONS, context_of(payload, request) + answer)
    theirs = await ok(client, stack.vllm_engine_urls[0] + COMPLETIONS, request)
    assert {len(each) for each in theirs["choices"][0]["logprobs"]["top_logprobs"]} == {2, 3}
    assert without_own(ours.json()) == without_own(theirs)


def message(*parts: Any, **members: Any) -> dict[str, Any]:
    """Anthropic's form of a request."""
    content = [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts]
    request = {"model": TINY_MODEL_NAME, "temperature": 0, "max_tokens": 60}
    return {**request, "messages": [{"role": "user", "content": content}], **members}


RED_SOURCE = {
    "type": "image",
    "source": {"type": "base64", "media_type": "image/png", "data": RED["image_url"]["url"].partition(",")[2]},
}
ANTHROPIC_TOOL = {
    "name": "report_color",
    "description": "Report the color of the image.",
    "input_schema": REPORT_COLOR_TOOL["function"]["parameters"],
}

MESSAGE_REQUESTS = {
    "text": message("Count to 20"),
    "cut short": message("Count to 20", max_tokens=5),
    "16 tokens": message("Count to 20", max_tokens=16),
    "a stop sequence": message("Count to 20", stop_sequences=["5 6"]),
    "an image": message(RED_SOURCE, WHAT_COLOR),
    "Korean": message(RED_SOURCE, "이 이미지를 설명해 주세요."),
    "a tool": message(RED_SOURCE, WHAT_COLOR, tools=[ANTHROPIC_TOOL]),
    "a tool that must be called": message(RED_SOURCE, WHAT_COLOR, tools=[ANTHROPIC_TOOL], tool_choice={"type": "any"}),
    "a tool that is named": message(
        RED_SOURCE, WHAT_COLOR, tools=[ANTHROPIC_TOOL], tool_choice={"type": "tool", "name": "report_color"}
    ),
    "thinking": message(RED_SOURCE, WHAT_COLOR, chat_template_kwargs={"enable_thinking": True}),
    "thinking disabled": message("Count to 3", thinking={"type": "disabled"}),
}


@pytest.mark.parametrize("generate_streams", [True, False], ids=["generate streams", "generate whole"])
@pytest.mark.parametrize("case", MESSAGE_REQUESTS)
async def test_a_message_is_that_of_one_server(
    stack: Stack, client: aiohttp.ClientSession, case: str, generate_streams: bool
) -> None:
    """Anthropic's API: streamed, and not."""
    url = stack.vllm_engine_urls[0] + MESSAGES
    request = MESSAGE_REQUESTS[case]
    ours = await derendered(client, stack, MESSAGES, request, generate_streams=generate_streams)
    assert without_own(ours.json()) == without_own(await ok(client, url, request))
    request = {**request, "stream": True}
    ours = await derendered(client, stack, MESSAGES, request, generate_streams=generate_streams)
    assert messages_joined(ours.text()) == messages_joined((await post(client, url, request)).text())


def response(*parts: Any, **members: Any) -> dict[str, Any]:
    """A request of OpenAI's Responses."""
    content = [{"type": "input_text", "text": part} if isinstance(part, str) else part for part in parts]
    request = {"model": TINY_MODEL_NAME, "temperature": 0, "max_output_tokens": 60}
    return {**request, "input": [{"role": "user", "content": content}], **members}


RED_INPUT = {"type": "input_image", "detail": "auto", "image_url": RED["image_url"]["url"]}
RESPONSES_TOOL = {"type": "function", "strict": None, **REPORT_COLOR_TOOL["function"]}

RESPONSE_REQUESTS = {
    "text": response("Count to 20"),
    "a string": response(input="Count to 20"),
    "cut short": response("Count to 20", max_output_tokens=5),
    "an image": response(RED_INPUT, WHAT_COLOR),
    "Korean": response(RED_INPUT, "이 이미지를 설명해 주세요."),
    "a tool": response(RED_INPUT, WHAT_COLOR, tools=[RESPONSES_TOOL], tool_choice="auto"),
    "a tool that must be called": response(RED_INPUT, WHAT_COLOR, tools=[RESPONSES_TOOL], tool_choice="required"),
    "thinking": response(RED_INPUT, WHAT_COLOR, chat_template_kwargs={"enable_thinking": True}),
    "logprobs": response("Count to 5", top_logprobs=2, include=["message.output_text.logprobs"]),
}


@pytest.mark.parametrize("generate_streams", [True, False], ids=["generate streams", "generate whole"])
@pytest.mark.parametrize("case", RESPONSE_REQUESTS)
async def test_a_response_is_that_of_one_server(
    stack: Stack, client: aiohttp.ClientSession, case: str, generate_streams: bool
) -> None:
    """OpenAI's Responses: streamed, and not."""
    url = stack.vllm_engine_urls[0] + RESPONSES
    request = RESPONSE_REQUESTS[case]
    ours = await derendered(client, stack, RESPONSES, request, generate_streams=generate_streams)
    assert without_own(ours.json()) == without_own(await ok(client, url, request))
    request = {**request, "stream": True}
    ours = await derendered(client, stack, RESPONSES, request, generate_streams=generate_streams)
    assert responses_joined(ours.text()) == responses_joined((await post(client, url, request)).text())
