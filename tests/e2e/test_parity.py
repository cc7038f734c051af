"""A caller cannot tell the router from one `vllm serve`: every row of the table, sent to both.

With `--no-plugin` the pods are bare. Then `/v1/messages` and `/v1/responses` are refused, and a listed few rows differ.
"""

from __future__ import annotations

import asyncio
import re
from random import Random

import aiohttp
import pytest

from rendergen.launcher import Stack
from rendergen.tiny_model.abilities import ABILITIES, VARIATIONS, Ability
from rendergen.tiny_model.chat import Example
from rendergen.tiny_model.pictures import COLORS, pure_picture
from tests.e2e.calls import CHAT, GENERATE, RENDER, WHAT_COLOR, Reply, chat, image_part, ok, post
from tests.e2e.parity.comparison import (
    BARE_PODS_LACK,
    differences,
    error_of,
    in_right_form,
    said,
    without_what_bare_pods_lack,
)
from tests.e2e.parity.row import BROKEN_OFF, Difference, Row
from tests.e2e.parity.table import ROWS
from tests.e2e.refusal import assert_tells_nothing_of_the_inside

EXAMPLES = 4


@pytest.mark.parametrize("row", ROWS, ids=str)
async def test_the_router_answers_as_one_server(stack: Stack, client: aiohttp.ClientSession, row: Row) -> None:
    """Status, content type, and the body or the joined stream; what differs is what is listed."""
    theirs, ours = await asyncio.gather(
        one_servers_answer(client, stack, row),
        post(client, stack.router_url + row.path, row.data(), row.headers),
    )
    assert theirs.status == row.status, theirs.text()
    listed = row.differs if stack.settings.plugin else row.bare
    if listed is None:
        found = compared(stack, row, ours, theirs)
        assert not found, "\n".join(found)
    else:
        assert_is(listed, stack, row, ours, theirs)
    if ours.status >= 400:
        assert_tells_nothing_of_the_inside(ours.text(), stack)


async def one_servers_answer(client: aiohttp.ClientSession, stack: Stack, row: Row) -> Reply:
    """What the engine's own endpoint answers; an empty answer where it breaks off."""
    try:
        return await post(client, stack.vllm_engine_urls[0] + row.path, row.data(), row.headers)
    except aiohttp.ClientPayloadError:
        return Reply(BROKEN_OFF, {}, b"")


def compared(stack: Stack, row: Row, ours: Reply, theirs: Reply) -> list[str]:
    """Where the router's answer is not one server's; with bare pods, what they always lack aside."""
    our, their = said(row.path, ours), in_right_form(row.path, theirs)
    if not stack.settings.plugin:
        our, their = without_what_bare_pods_lack(our), without_what_bare_pods_lack(their)
    return list(differences(our, their))


def assert_is(listed: Difference, stack: Stack, row: Row, ours: Reply, theirs: Reply) -> None:
    """The router's answer is the listed one, and is not one server's."""
    assert ours.status == listed.status, ours.text()
    if listed.same_error:
        assert error_of(ours) == error_of(theirs)
        assert error_of(ours)["code"] == listed.status
    elif listed.status >= 400:
        assert re.search(listed.says, error_of(ours)["message"], re.IGNORECASE), ours.text()
    if ours.status == theirs.status and not listed.at_times:
        found = compared(stack, row, ours, theirs)
        assert found, "the listed difference has gone"
        if listed.only_words:
            assert [each for each in found if not each.startswith(".body.error.message ")] == []


async def test_what_bare_pods_lack(stack: Stack, client: aiohttp.ClientSession) -> None:
    """It is lacking with them, and not with the plugin: the table leaves nothing out that could be compared."""
    answer = await ok(client, stack.router_url + CHAT, chat("Count to 3"))
    lacking = [name for name in BARE_PODS_LACK if answer.get(name) is None and answer["usage"].get(name) is None]
    assert lacking == ([] if stack.settings.plugin else [*BARE_PODS_LACK])


def examples(ability: Ability) -> list[Example]:
    """The same few of each ability, every time."""
    rng = Random(f"parity of {ability.name}")
    return [ability.example(rng) for _ in range(EXAMPLES)]


@pytest.mark.parametrize("ability", [*ABILITIES, *VARIATIONS], ids=lambda ability: ability.name)
async def test_the_answers_are_right(stack: Stack, client: aiohttp.ClientSession, ability: Ability) -> None:
    """Most of them: the model is allowed a few mistakes. That one server makes the same ones, the table shows."""
    questions = examples(ability)
    answers = await asyncio.gather(
        *(ok(client, stack.router_url + CHAT, {"model": stack.settings.name, **each.request()}) for each in questions)
    )
    right = [each.matches(answer["choices"][0]["message"]) for each, answer in zip(questions, answers, strict=True)]
    assert right.count(True) > EXAMPLES // 2


async def test_many_at_once_are_answered_each_with_its_own(stack: Stack, client: aiohttp.ClientSession) -> None:
    """Two dozen requests in flight: no answer goes to the wrong caller, and none is lost."""
    colors = [*COLORS, *COLORS]
    requests = [chat(image_part(pure_picture(color).encode()), WHAT_COLOR) for color in colors]
    answers = await asyncio.gather(*(ok(client, stack.router_url + CHAT, request) for request in requests))
    assert [answer["choices"][0]["message"]["content"] for answer in answers] == [c.capitalize() for c in colors]
    assert len({answer["id"] for answer in answers}) == len(answers)


async def test_a_stop_token_ends_the_answer(stack: Stack, client: aiohttp.ClientSession) -> None:
    """The token is counted and named, and is no part of the text."""
    question = chat("Count to 20")
    payload = await ok(client, stack.router_url + RENDER, question)
    token = (await ok(client, stack.router_url + GENERATE, payload))["choices"][0]["token_ids"][6]
    request = {**question, "stop_token_ids": [token]}
    ours = await ok(client, stack.router_url + CHAT, request)
    assert ours["choices"][0]["stop_reason"] == token
    assert ours["usage"]["completion_tokens"] == 7
    theirs = await ok(client, stack.vllm_engine_urls[0] + CHAT, request)
    assert theirs["choices"] == ours["choices"]


async def test_a_completion_has_an_id_and_a_time_of_its_own(stack: Stack, client: aiohttp.ClientSession) -> None:
    """What parity leaves out is there, and looks as OpenAI's does."""
    request = {"model": stack.settings.name, **examples(ABILITIES[0])[0].request()}
    first, second = [await ok(client, stack.router_url + CHAT, request) for _ in range(2)]
    assert first["id"].startswith("chatcmpl-")
    assert first["id"] != second["id"]
    assert isinstance(first["created"], int)
    assert first["object"] == "chat.completion"
