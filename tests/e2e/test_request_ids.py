"""`X-Request-Id`: the caller's own comes back, unless it could do harm where it is written."""

from __future__ import annotations

import re

import aiohttp
import pytest

from rendergen.launcher import Stack
from tests.e2e.calls import CHAT, GENERATE, RED, RENDER, WHAT_COLOR, chat, post
from tests.e2e.tapped_stack import TappedStack
from tests.support.raw_caller import raw_caller

HEADER = "X-Request-Id"
OWN = re.compile(r"[A-Za-z0-9._:\-]{1,128}")

DOORS = ("router", "render service", "generate service")


def door_url(stack: Stack, door: str) -> str:
    """A path of that process that takes POST."""
    return {
        "router": stack.router_url + CHAT,
        "render service": stack.render_service_urls[0] + RENDER,
        "generate service": stack.generate_service_urls[0] + GENERATE,
    }[door]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("given", ["a", "req-1.2_3:4", "x" * 128])
async def test_a_harmless_id_comes_back(stack: Stack, client: aiohttp.ClientSession, door: str, given: str) -> None:
    """Also on an error, which is when somebody wants it."""
    reply = await post(client, door_url(stack, door), b"{}", {HEADER: given})
    assert reply.status == 400
    assert reply.headers[HEADER] == given


async def test_it_comes_back_with_an_answer(stack: Stack, client: aiohttp.ClientSession) -> None:
    """The completion's id tells it too, so that one can be found in the logs by its answer alone."""
    reply = await post(client, stack.router_url + CHAT, chat(RED, WHAT_COLOR), {HEADER: "my-id-7"})
    assert reply.status == 200
    assert reply.headers[HEADER] == "my-id-7"
    assert reply.json()["id"] == "chatcmpl-my-id-7"


async def test_one_id_may_be_used_again(stack: Stack, client: aiohttp.ClientSession) -> None:
    """Ids are the caller's affair: two requests of one id at a time are two requests."""
    request = chat("Count to 20")
    async with client.post(stack.router_url + CHAT, json=request, headers={HEADER: "twin"}) as first:
        second = await post(client, stack.router_url + CHAT, request, {HEADER: "twin"})
        assert first.status == second.status == 200
        assert (await first.json())["choices"] == second.json()["choices"]


async def test_each_request_has_an_id_of_its_own_on_the_engine(
    tapped: TappedStack, client: aiohttp.ClientSession
) -> None:
    """There aborting an id aborts every request that shares it, so twins must not; the caller's id is still in it."""
    tapped.forget()
    for _ in range(2):
        await post(client, tapped.router_url + CHAT, chat(RED, WHAT_COLOR), {HEADER: "twin"})
    first, second = (exchange.headers[HEADER] for exchange in tapped.generate.to(GENERATE))
    assert first != second
    assert first.startswith("twin")
    assert second.startswith("twin")


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(
    "given", ["", "a b", "a/b", "a\tb", "x" * 129, "x" * 4000, "é", "<script>", "a,b", "{}", "%0a"]
)
async def test_a_harmful_id_is_replaced(stack: Stack, client: aiohttp.ClientSession, door: str, given: str) -> None:
    """It is neither used nor refused."""
    reply = await post(client, door_url(stack, door), b"{}", {HEADER: given})
    assert reply.status == 400
    assert reply.headers[HEADER] != given
    assert OWN.fullmatch(reply.headers[HEADER])


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(b"X-Request-Id: one\r\nX-Request-Id: two\r\n", id="repeated"),
        pytest.param(b"X-Request-Id: one\nInjected: two\r\n", id="with a newline"),
        pytest.param(b"X-Request-Id: one\r\n two\r\n", id="folded"),
        pytest.param(b"X-Request-Id: " + b"x" * 1_000_000 + b"\r\n", id="a megabyte"),
        pytest.param(b"X-Request-Id: a\x00b\r\n", id="with a zero byte"),
    ],
)
async def test_ids_that_are_no_header_at_all(stack: Stack, door: str, lines: bytes) -> None:
    """What breaks HTTP is a 400; what does not is replaced. The answer has one id, and it is a harmless one."""
    url = door_url(stack, door)
    path = "/" + url.split("/", 3)[3]
    async with raw_caller(url) as caller:
        await caller.send(b"POST %b HTTP/1.1\r\nHost: x\r\n%bContent-Length: 2\r\n\r\n{}" % (path.encode(), lines))
        status, head, body = await caller.answer()
    assert status in (400, 413, 431), head
    assert b"njected" not in head
    ids = re.findall(rb"(?i)\r\nx-request-id: ?([^\r]*)", head)
    assert len(ids) <= 1
    assert all(OWN.fullmatch(one.decode("latin-1")) for one in ids)
    assert b"Traceback" not in body
