"""Anthropic's own Python client against the router's `/v1/messages`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import anthropic
import pytest
import pytest_asyncio
from anthropic import Anthropic, AsyncAnthropic

from rendergen.launcher import Stack
from rendergen.tiny_model import TINY_MODEL_NAME
from tests.e2e.calls import WHAT_COLOR
from tests.e2e.engine_load import engine_is_busy, engine_is_idle, tokens_generated
from tests.e2e.guarded_router import guarded_router
from tests.e2e.parity.bodies import ANTHROPIC_TOOL, RED_SOURCE, THINKING
from tests.e2e.stalls import again_if_the_machine_stalls

pytestmark = pytest.mark.plugin

ASKED: Any = [{"role": "user", "content": [RED_SOURCE, {"type": "text", "text": WHAT_COLOR}]}]
COUNTING: Any = [{"role": "user", "content": "Count to 9"}]
NINE = "1 2 3 4 5 6 7 8 9"
TOOLS: Any = [ANTHROPIC_TOOL]

# The client has no member for it.
GREEDY: Any = {"extra_body": {"temperature": 0}}

# The model has no end to this, and an answer of thousands of tokens is many times longer than any test waits.
ENDLESS: Any = {"messages": [{"role": "user", "content": "Count to 50. " * 100}], "max_tokens": 3400, **GREEDY}


@pytest_asyncio.fixture(loop_scope="session")
async def caller(stack: Stack) -> AsyncIterator[AsyncAnthropic]:
    """The client, without tries of its own: what is seen is what the router did."""
    async with AsyncAnthropic(base_url=stack.router_url, api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
def blocking_caller(stack: Stack) -> Iterator[Anthropic]:
    """The client that waits in its thread."""
    with Anthropic(base_url=stack.router_url, api_key="none", max_retries=0) as client:
        yield client


def text_of(message: Any) -> str:
    """The text of a message's blocks."""
    return "".join(block.text for block in message.content if block.type == "text")


async def test_an_image(caller: AsyncAnthropic) -> None:
    """The colour, the reason to end, and the usage."""
    answer = await caller.messages.create(model=TINY_MODEL_NAME, messages=ASKED, max_tokens=20, **GREEDY)
    assert (text_of(answer), answer.stop_reason, answer.role) == ("Red", "end_turn", "assistant")
    assert answer.usage.input_tokens > 40
    assert answer.usage.output_tokens == 2


async def test_a_stream(caller: AsyncAnthropic) -> None:
    """The client's own accumulation of the events gives the text, the reason to end and the usage."""
    async with caller.messages.stream(model=TINY_MODEL_NAME, messages=COUNTING, max_tokens=30, **GREEDY) as stream:
        texts = [text async for text in stream.text_stream]
        answer = await stream.get_final_message()
    assert "".join(texts) == text_of(answer) == NINE
    assert answer.stop_reason == "end_turn"
    assert answer.usage.output_tokens == 18


async def test_the_client_that_waits(blocking_caller: Anthropic) -> None:
    """Whole and streamed, from a thread."""

    def whole() -> str:
        return text_of(blocking_caller.messages.create(model=TINY_MODEL_NAME, messages=ASKED, max_tokens=20, **GREEDY))

    def streamed() -> str:
        with blocking_caller.messages.stream(
            model=TINY_MODEL_NAME, messages=COUNTING, max_tokens=30, **GREEDY
        ) as stream:
            return "".join(stream.text_stream)

    assert await asyncio.to_thread(whole) == "Red"
    assert await asyncio.to_thread(streamed) == NINE


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_a_tool_there_and_back(caller: AsyncAnthropic, streamed: bool) -> None:
    """The model calls, the caller answers, the model says the colour."""
    asking: Any = {"model": TINY_MODEL_NAME, "max_tokens": 60, "tools": TOOLS, **GREEDY}
    if streamed:
        async with caller.messages.stream(messages=ASKED, **asking) as stream:
            called = await stream.get_final_message()
    else:
        called = await caller.messages.create(messages=ASKED, **asking)
    [call] = [block for block in called.content if block.type == "tool_use"]
    assert (called.stop_reason, call.name, call.input) == ("tool_use", "report_color", {"color": "red"})
    answered: Any = [
        *ASKED,
        {"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in called.content]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "ok"}]},
    ]
    assert text_of(await caller.messages.create(messages=answered, **asking)) == "Red"


async def test_thinking(caller: AsyncAnthropic) -> None:
    """What the model thinks is a block of its own, in front."""
    answer = await caller.messages.create(
        model=TINY_MODEL_NAME, messages=ASKED, max_tokens=60, extra_body={"temperature": 0, **THINKING}
    )
    thinking, text = answer.content
    assert thinking.type == "thinking"
    assert "red" in thinking.thinking
    assert text.type == "text"
    assert text.text.strip() == "Red"


async def test_errors_have_their_classes(caller: AsyncAnthropic) -> None:
    """By the status, streamed too; the body is in Anthropic's form."""
    long: Any = [{"role": "user", "content": "Count to 50. " * 4000}]
    for stream in (False, True):
        with pytest.raises(anthropic.NotFoundError, match="no-such-model") as unknown:
            await caller.messages.create(model="no-such-model", messages=ASKED, max_tokens=5, stream=stream)
        assert unknown.value.type == "not_found_error"
        with pytest.raises(anthropic.BadRequestError, match="context length") as too_long:
            await caller.messages.create(model=TINY_MODEL_NAME, messages=long, max_tokens=5, stream=stream)
        assert too_long.value.type == "invalid_request_error"
        assert too_long.value.body["type"] == "error"  # type: ignore[index]


async def test_a_key_that_is_not_known(stack: Stack, tmp_path: Path) -> None:
    """The class for that, and with the right key an answer."""
    asking: Any = {"model": TINY_MODEL_NAME, "messages": COUNTING, "max_tokens": 30, **GREEDY}
    async with guarded_router(stack, tmp_path) as (url, key):
        async with AsyncAnthropic(base_url=url, api_key="none", max_retries=0) as caller:
            with pytest.raises(anthropic.AuthenticationError) as refused:
                await caller.messages.create(**asking)
            assert refused.value.type == "authentication_error"
        async with AsyncAnthropic(base_url=url, api_key=key, max_retries=0) as caller:
            assert text_of(await caller.messages.create(**asking)) == NINE


@again_if_the_machine_stalls
async def test_a_timeout_of_the_callers(stack: Stack, client: aiohttp.ClientSession, caller: AsyncAnthropic) -> None:
    """The client gives up in its own way, and the engine stops."""
    [engine] = stack.vllm_engine_urls
    await engine_is_idle(client, engine)
    before = await tokens_generated(client, engine)
    with pytest.raises(anthropic.APITimeoutError):
        await caller.messages.create(model=TINY_MODEL_NAME, timeout=0.5, **ENDLESS)
    await engine_is_idle(client, engine)
    assert await tokens_generated(client, engine) - before < ENDLESS["max_tokens"]


@again_if_the_machine_stalls
async def test_a_stream_that_is_closed_early(
    stack: Stack, client: aiohttp.ClientSession, caller: AsyncAnthropic
) -> None:
    """The engine stops."""
    [engine] = stack.vllm_engine_urls
    await engine_is_idle(client, engine)
    before = await tokens_generated(client, engine)
    stream = await caller.messages.create(model=TINY_MODEL_NAME, stream=True, **ENDLESS)
    async for event in stream:
        if event.type == "content_block_delta":
            break
    await engine_is_busy(client, engine)
    await stream.close()
    await engine_is_idle(client, engine)
    assert await tokens_generated(client, engine) - before < ENDLESS["max_tokens"]
