"""`POST /v1/chat/completions` answers as one `vllm serve` does."""

from __future__ import annotations

import asyncio
from random import Random

import aiohttp
import pytest

from rendergen.launcher import Stack
from rendergen.tiny_model.abilities import ABILITIES, VARIATIONS, Ability
from rendergen.tiny_model.chat import Example
from rendergen.tiny_model.pictures import COLORS, pure_picture
from tests.e2e.calls import CHAT, WHAT_COLOR, chat, image_part, ok
from tests.e2e.projection import projection

EXAMPLES = 4


def examples(ability: Ability) -> list[Example]:
    """The same few of each ability, every time."""
    rng = Random(f"parity of {ability.name}")
    return [ability.example(rng) for _ in range(EXAMPLES)]


@pytest.mark.parametrize("ability", [*ABILITIES, *VARIATIONS], ids=lambda ability: ability.name)
async def test_the_router_answers_as_the_engine_does(
    stack: Stack, client: aiohttp.ClientSession, ability: Ability
) -> None:
    """Content, reasoning, tool calls, finish and stop reason and usage are the same, and they are the right ones.

    Most have to be right, not all: the model is allowed a few mistakes, and makes the same ones in both places.
    """
    right = 0
    for example in examples(ability):
        request = {"model": stack.settings.name, **example.request()}
        ours = await ok(client, stack.router_url + CHAT, request)
        theirs = await ok(client, stack.vllm_engine_urls[0] + CHAT, request)
        assert projection(ours) == projection(theirs)
        right += example.matches(ours["choices"][0]["message"])
    assert right > EXAMPLES // 2


async def test_many_at_once_are_answered_each_with_its_own(stack: Stack, client: aiohttp.ClientSession) -> None:
    """Two dozen requests in flight: no answer goes to the wrong caller, and none is lost."""
    colors = [*COLORS, *COLORS]
    requests = [chat(image_part(pure_picture(color).encode()), WHAT_COLOR) for color in colors]
    answers = await asyncio.gather(*(ok(client, stack.router_url + CHAT, request) for request in requests))
    assert [answer["choices"][0]["message"]["content"] for answer in answers] == [c.capitalize() for c in colors]
    assert len({answer["id"] for answer in answers}) == len(answers)


async def test_a_completion_has_an_id_and_a_time_of_its_own(stack: Stack, client: aiohttp.ClientSession) -> None:
    """What parity leaves out is there, and looks as OpenAI's does."""
    request = {"model": stack.settings.name, **examples(ABILITIES[0])[0].request()}
    first, second = [await ok(client, stack.router_url + CHAT, request) for _ in range(2)]
    assert first["id"].startswith("chatcmpl-")
    assert first["id"] != second["id"]
    assert isinstance(first["created"], int)
    assert first["object"] == "chat.completion"
