"""LangChain's `ChatOpenAI` against the router: an image and a tool, whole and streamed."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import BaseMessageChunk, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from rendergen.launcher import Stack
from rendergen.tiny_model import TINY_MODEL_NAME
from tests.e2e.calls import RED, WHAT_COLOR

ASKED = HumanMessage(content=[RED, {"type": "text", "text": WHAT_COLOR}])


@tool
def report_color(color: str) -> str:
    """Report the color of the image."""
    return f"{color} it is"


@pytest.fixture
def model(stack: Stack) -> ChatOpenAI:
    """As an application makes it."""
    return ChatOpenAI(
        model=TINY_MODEL_NAME,
        base_url=f"{stack.router_url}/v1",
        api_key=SecretStr("none"),
        temperature=0,
        max_retries=0,
    )


async def joined(stream: Any) -> BaseMessageChunk:
    """A stream's chunks, added up as LangChain does it."""
    whole: BaseMessageChunk | None = None
    async for chunk in stream:
        whole = chunk if whole is None else whole + chunk
    assert whole is not None
    return whole


async def test_an_image(model: ChatOpenAI) -> None:
    """The colour and the usage."""
    answer = await model.ainvoke([ASKED])
    assert answer.content == "Red"
    assert answer.usage_metadata is not None
    assert answer.usage_metadata["output_tokens"] == 2


async def test_an_image_in_a_stream(model: ChatOpenAI) -> None:
    """The same of the chunks."""
    answer = await joined(model.astream([HumanMessage(content="Count to 9")]))
    assert answer.content == "1 2 3 4 5 6 7 8 9"
    assert (await joined(model.astream([ASKED]))).content == "Red"


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_a_tool_there_and_back(model: ChatOpenAI, streamed: bool) -> None:
    """The model calls, the tool is run, the model says the colour."""
    with_tool = model.bind_tools([report_color])
    called: Any = await (joined(with_tool.astream([ASKED])) if streamed else with_tool.ainvoke([ASKED]))
    [call] = called.tool_calls
    assert (call["name"], call["args"]) == ("report_color", {"color": "red"})
    result = ToolMessage(content=report_color.invoke(call["args"]), tool_call_id=call["id"])
    assert (await with_tool.ainvoke([ASKED, called, result])).content == "Red"
