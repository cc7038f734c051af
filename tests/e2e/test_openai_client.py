"""OpenAI's own Python client against the router: what its users do works, and its errors are what it says they are."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Literal

import aiohttp
import openai
import pytest
import pytest_asyncio
from openai import AsyncOpenAI, OpenAI
from pydantic import BaseModel

from rendergen.launcher import Stack
from rendergen.tiny_model import TINY_MODEL_NAME
from rendergen.tiny_model.abilities import REPORT_COLOR_TOOL
from tests.e2e.calls import RED, WHAT_COLOR
from tests.e2e.engine_load import engine_is_busy, engine_is_idle, tokens_generated
from tests.e2e.guarded_router import guarded_router
from tests.e2e.parity.bodies import RED_INPUT, RESPONSES_TOOL
from tests.e2e.stalls import again_if_the_machine_stalls

ASKED: Any = [{"role": "user", "content": [RED, {"type": "text", "text": WHAT_COLOR}]}]
COUNTING: Any = [{"role": "user", "content": "Count to 9"}]
NINE = "1 2 3 4 5 6 7 8 9"
TOOLS: Any = [REPORT_COLOR_TOOL]
INPUT: Any = [{"role": "user", "content": [RED_INPUT, {"type": "input_text", "text": WHAT_COLOR}]}]

# Some 4,000 tokens: many times longer than any test waits.
ENDLESS: Any = {"max_tokens": 3900, "extra_body": {"ignore_eos": True}}


class Color(BaseModel):
    """A colour."""

    color: Literal["red", "green"]


class Report(BaseModel):
    """What the model is made to say: in the form of its tool calls, which is the JSON that it knows."""

    name: Literal["report_color"]
    arguments: Color


RED_REPORT = Report(name="report_color", arguments=Color(color="red"))


@pytest_asyncio.fixture(loop_scope="session")
async def caller(stack: Stack) -> AsyncIterator[AsyncOpenAI]:
    """The client, without tries of its own: what is seen is what the router did."""
    async with AsyncOpenAI(base_url=f"{stack.router_url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
def blocking_caller(stack: Stack) -> Iterator[OpenAI]:
    """The client that waits in its thread."""
    with OpenAI(base_url=f"{stack.router_url}/v1", api_key="none", max_retries=0) as client:
        yield client


async def test_an_image(caller: AsyncOpenAI) -> None:
    """The colour, the reason to end, and the usage."""
    answer = await caller.chat.completions.create(model=TINY_MODEL_NAME, messages=ASKED, temperature=0)
    [choice] = answer.choices
    assert (choice.message.content, choice.finish_reason) == ("Red", "stop")
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


async def test_a_stream(caller: AsyncOpenAI) -> None:
    """The text comes in chunks of one id, the usage in the last one."""
    stream = await caller.chat.completions.create(
        model=TINY_MODEL_NAME,
        messages=COUNTING,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = [chunk async for chunk in stream]
    texts = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert "".join(texts) == NINE
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 18
    assert len({chunk.id for chunk in chunks}) == 1


async def test_the_client_that_waits(blocking_caller: OpenAI) -> None:
    """Whole and streamed, from a thread."""

    def whole() -> str | None:
        answer = blocking_caller.chat.completions.create(model=TINY_MODEL_NAME, messages=ASKED, temperature=0)
        return answer.choices[0].message.content

    def streamed() -> str:
        stream = blocking_caller.chat.completions.create(
            model=TINY_MODEL_NAME, messages=COUNTING, temperature=0, stream=True
        )
        return "".join(chunk.choices[0].delta.content or "" for chunk in stream)

    assert await asyncio.to_thread(whole) == "Red"
    assert await asyncio.to_thread(streamed) == NINE


async def test_several_choices_and_their_logprobs(caller: AsyncOpenAI) -> None:
    """As many as were asked for, each with the log probabilities of its tokens."""
    answer = await caller.chat.completions.create(
        model=TINY_MODEL_NAME,
        messages=COUNTING,
        n=3,
        temperature=1.0,
        seed=3,
        max_tokens=5,
        logprobs=True,
        top_logprobs=2,
    )
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    for choice in answer.choices:
        assert choice.logprobs is not None
        assert choice.logprobs.content is not None
        assert len(choice.logprobs.content) == 5
        assert all(len(token.top_logprobs) == 2 for token in choice.logprobs.content)


async def test_a_tool_there_and_back(caller: AsyncOpenAI) -> None:
    """The model calls, the caller answers, the model says the colour."""
    called = await caller.chat.completions.create(model=TINY_MODEL_NAME, messages=ASKED, tools=TOOLS, temperature=0)
    [choice] = called.choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.tool_calls is not None
    [call] = choice.message.tool_calls
    assert call.type == "function"
    assert (call.function.name, json.loads(call.function.arguments)) == ("report_color", {"color": "red"})
    result: Any = {"role": "tool", "tool_call_id": call.id, "content": '{"ok": true}'}
    said: Any = choice.message.model_dump(exclude_none=True)
    answer = await caller.chat.completions.create(
        model=TINY_MODEL_NAME, messages=[*ASKED, said, result], tools=TOOLS, temperature=0
    )
    assert answer.choices[0].message.content == "Red"


async def test_a_tool_call_in_a_stream(caller: AsyncOpenAI) -> None:
    """The client's own accumulation of the deltas gives the call once."""
    async with caller.chat.completions.stream(
        model=TINY_MODEL_NAME, messages=ASKED, tools=TOOLS, temperature=0
    ) as stream:
        answer = await stream.get_final_completion()
    assert answer.choices[0].message.tool_calls is not None
    [call] = answer.choices[0].message.tool_calls
    assert json.loads(call.function.arguments) == {"color": "red"}


async def test_an_answer_of_a_type(caller: AsyncOpenAI) -> None:
    """`parse` sends the type's schema and gives the value."""
    answer = await caller.chat.completions.parse(
        model=TINY_MODEL_NAME, messages=ASKED, response_format=Report, temperature=0, max_tokens=60
    )
    assert answer.choices[0].message.parsed == RED_REPORT


async def test_text_to_go_on_with(caller: AsyncOpenAI) -> None:
    """`/v1/completions`: two prompts at once, and one in a stream."""
    answer = await caller.completions.create(
        model=TINY_MODEL_NAME, prompt=["1 2 3 4", "7 8 9"], temperature=0, max_tokens=4
    )
    assert [choice.index for choice in answer.choices] == [0, 1]
    assert all(choice.text for choice in answer.choices)
    stream = await caller.completions.create(
        model=TINY_MODEL_NAME, prompt="1 2 3 4", temperature=0, max_tokens=4, stream=True
    )
    assert "".join([chunk.choices[0].text async for chunk in stream]) == answer.choices[0].text


async def test_models(caller: AsyncOpenAI) -> None:
    """The list has the one that is served."""
    assert [model.id async for model in caller.models.list()] == [TINY_MODEL_NAME]


@pytest.mark.plugin  # with bare pods it is a 501: test_parity
async def test_responses(caller: AsyncOpenAI) -> None:
    """Whole, streamed, with a tool, and of a type."""
    whole = await caller.responses.create(model=TINY_MODEL_NAME, input=INPUT, temperature=0, max_output_tokens=20)
    assert (whole.output_text, whole.status) == ("Red", "completed")
    stream = await caller.responses.create(model=TINY_MODEL_NAME, input="Count to 9", temperature=0, stream=True)
    events = [event async for event in stream]
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == NINE
    assert events[-1].type == "response.completed"
    tools: Any = [RESPONSES_TOOL]
    called = await caller.responses.create(model=TINY_MODEL_NAME, input=INPUT, tools=tools, temperature=0)
    [call] = [item for item in called.output if item.type == "function_call"]
    assert json.loads(call.arguments) == {"color": "red"}
    parsed = await caller.responses.parse(
        model=TINY_MODEL_NAME, input=INPUT, text_format=Report, temperature=0, max_output_tokens=60
    )
    assert parsed.output_parsed == RED_REPORT


async def test_errors_have_their_classes(caller: AsyncOpenAI) -> None:
    """By the status; the message and the member at fault are there."""
    for stream in (False, True):
        with pytest.raises(openai.NotFoundError, match="no-such-model"):
            await caller.chat.completions.create(model="no-such-model", messages=ASKED, stream=stream)
        with pytest.raises(openai.BadRequestError, match="context length") as too_long:
            await caller.chat.completions.create(
                model=TINY_MODEL_NAME, messages=[{"role": "user", "content": "Count to 50. " * 4000}], stream=stream
            )
        assert too_long.value.status_code == 400
        assert too_long.value.type == "BadRequestError"
        assert too_long.value.request_id
        bad_schema: Any = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "no"}}}
        with pytest.raises(openai.BadRequestError, match="Invalid type"):
            await caller.chat.completions.create(
                model=TINY_MODEL_NAME, messages=ASKED, response_format=bad_schema, stream=stream
            )


async def test_a_key_that_is_not_known(stack: Stack, tmp_path: Path) -> None:
    """The class for that, and with the right key an answer."""
    async with guarded_router(stack, tmp_path) as (url, key):
        async with AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as caller:
            with pytest.raises(openai.AuthenticationError):
                await caller.chat.completions.create(model=TINY_MODEL_NAME, messages=COUNTING)
        async with AsyncOpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0) as caller:
            answer = await caller.chat.completions.create(model=TINY_MODEL_NAME, messages=COUNTING, temperature=0)
            assert answer.choices[0].message.content == NINE


@again_if_the_machine_stalls
async def test_a_timeout_of_the_callers(stack: Stack, client: aiohttp.ClientSession, caller: AsyncOpenAI) -> None:
    """The client gives up in its own way, and the engine stops."""
    [engine] = stack.vllm_engine_urls
    await engine_is_idle(client, engine)
    before = await tokens_generated(client, engine)
    with pytest.raises(openai.APITimeoutError):
        await caller.chat.completions.create(model=TINY_MODEL_NAME, messages=COUNTING, timeout=0.5, **ENDLESS)
    await engine_is_idle(client, engine)
    assert await tokens_generated(client, engine) - before < ENDLESS["max_tokens"]


@again_if_the_machine_stalls
async def test_a_stream_that_is_closed_early(stack: Stack, client: aiohttp.ClientSession, caller: AsyncOpenAI) -> None:
    """The engine stops."""
    [engine] = stack.vllm_engine_urls
    await engine_is_idle(client, engine)
    before = await tokens_generated(client, engine)
    stream = await caller.chat.completions.create(
        model=TINY_MODEL_NAME, messages=COUNTING, temperature=0, stream=True, **ENDLESS
    )
    async for _ in stream:
        break
    await engine_is_busy(client, engine)
    await stream.close()
    await engine_is_idle(client, engine)
    assert await tokens_generated(client, engine) - before < ENDLESS["max_tokens"]


async def test_answers_with_their_headers(caller: AsyncOpenAI) -> None:
    """The caller's request id comes back, where the client looks for it."""
    raw = await caller.chat.completions.with_raw_response.create(
        model=TINY_MODEL_NAME, messages=ASKED, temperature=0, extra_headers={"X-Request-Id": "from-openai"}
    )
    assert raw.headers["x-request-id"] == "from-openai"
    assert raw.parse().choices[0].message.content == "Red"
