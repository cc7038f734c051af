"""A body may be as large as the limit, and not one byte larger; every process says which limit it was."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import aiohttp
import pytest
import pytest_asyncio

from rendergen.launcher import Stack
from tests.e2e.calls import CHAT, DERENDER, GENERATE, RED, RENDER, WHAT_COLOR, chat, encoded, image_part, noise, post
from tests.e2e.refusal import assert_refused
from tests.e2e.service_process import service_process
from tests.support.raw_caller import raw_caller

LIMIT = 65536


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def low(stack: Stack) -> AsyncIterator[dict[str, str]]:
    """Addresses of a router and services with a low limit, in front of the stack's processes."""
    flags = ("--max-body-bytes", str(LIMIT))
    async with (
        service_process("render_service", "--vllm-url", stack.vllm_render_urls[0], *flags) as render,
        service_process("generate_service", "--vllm-url", stack.vllm_engine_urls[0], *flags) as generate,
        service_process(
            *("router", "--render-pods", stack.render_service_urls[0]),
            *("--generate-pods", stack.generate_service_urls[0], *flags),
        ) as router,
    ):
        yield {process.spec.name: process.spec.url for process in (router, render, generate)}


DOORS = (
    ("router", CHAT),
    ("router", RENDER),
    ("router", DERENDER),
    ("router", GENERATE),
    ("render_service", RENDER),
    ("render_service", DERENDER),
    ("generate_service", GENERATE),
)


def padded(size: int) -> bytes:
    """A request of that many bytes, which no step takes, but which has to be read to be refused."""
    head, tail = b'{"model":"no-such-model","messages":[],"x":"', b'"}'
    return head + b"x" * (size - len(head) - len(tail)) + tail


async def in_pieces(body: bytes) -> AsyncIterator[bytes]:
    """The body without a Content-Length: it is over the limit only once that much has come."""
    for start in range(0, len(body), 10_000):
        yield body[start : start + 10_000]


@pytest.mark.parametrize("framing", ["length", "chunked"])
@pytest.mark.parametrize(("door", "path"), DOORS)
async def test_one_byte_over_the_limit(
    stack: Stack, client: aiohttp.ClientSession, low: dict[str, str], door: str, path: str, framing: str
) -> None:
    """413, and the message names the limit."""
    body = padded(LIMIT + 1)
    reply = await post(client, low[door] + path, body if framing == "length" else in_pieces(body))
    assert_refused(reply, 413, rf"\b{LIMIT}\b", stack=stack)


@pytest.mark.parametrize("framing", ["length", "chunked"])
@pytest.mark.parametrize(("door", "path"), DOORS)
async def test_exactly_the_limit(
    stack: Stack, client: aiohttp.ClientSession, low: dict[str, str], door: str, path: str, framing: str
) -> None:
    """It is read, passed on, and refused or taken for what it says."""
    body = padded(LIMIT)
    assert len(body) == LIMIT
    reply = await post(client, low[door] + path, body if framing == "length" else in_pieces(body))
    assert reply.status in (200, 400, 404), reply.text()


async def test_a_declared_length_over_the_limit_is_refused_at_once(
    stack: Stack, client: aiohttp.ClientSession, low: dict[str, str]
) -> None:
    """Nobody has to send 300 MB to hear that it is too much."""
    for door, path in DOORS:
        async with raw_caller(low[door]) as caller:
            await caller.send(
                b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 300000000\r\n\r\n"
                % path.encode()
            )
            status, _, body = await caller.answer()
        assert status == 413
        assert str(LIMIT) in json.loads(body)["error"]["message"]


async def test_the_limit_is_one_of_bodies_not_of_payloads(
    stack: Stack, client: aiohttp.ClientSession, low: dict[str, str]
) -> None:
    """A request below the limit may become a payload above it: that passes through, and is not the caller's matter."""
    small_file = encoded(noise(300, 1).convert("L").convert("1").convert("RGB"), "PNG")
    request = chat(image_part(small_file), WHAT_COLOR, max_tokens=2)
    assert len(json.dumps(request)) < LIMIT
    reply = await post(client, low["router"] + CHAT, request)
    assert reply.status == 200, reply.text()


async def test_the_default_limits_agree(stack: Stack, client: aiohttp.ClientSession) -> None:
    """A body that the router takes is taken by the services too: 20 MB go all the way and are answered."""
    request = chat(RED, WHAT_COLOR, padding="x" * 20_000_000)
    reply = await post(client, stack.router_url + CHAT, request)
    assert reply.status == 200, reply.text()
    assert reply.json()["choices"][0]["message"]["content"] == "Red"
