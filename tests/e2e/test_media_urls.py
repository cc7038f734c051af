"""No image URL makes any process open a connection to where it should not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest
import pytest_asyncio

from rendergen.launcher import Stack
from tests.e2e.calls import CHAT, RENDER, WHAT_COLOR, chat, post, url_part
from tests.e2e.conftest import UNRESOLVABLE_HOST
from tests.e2e.refusal import assert_refused


class Bait:
    """A listening socket on loopback that counts who connects to it."""

    def __init__(self) -> None:
        self.port = 0
        self.connections = 0

    def connected(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        writer.close()


@pytest_asyncio.fixture(loop_scope="session")
async def bait() -> AsyncIterator[Bait]:
    """Something on this machine that image URLs can point at."""
    running = Bait()
    server = await asyncio.start_server(running.connected, "127.0.0.1", 0)
    running.port = server.sockets[0].getsockname()[1]
    async with server:
        yield running


URLS = {
    "loopback": "http://127.0.0.1:{port}/red.png",
    "loopback over TLS": "https://127.0.0.1:{port}/red.png",
    "capitals": "HTTP://127.0.0.1:{port}/red.png",
    "localhost": "http://localhost:{port}/red.png",
    "short form": "http://127.1:{port}/red.png",
    "one number": "http://2130706433:{port}/red.png",
    "octal": "http://0177.0.0.1:{port}/red.png",
    "unspecified": "http://0.0.0.0:{port}/red.png",
    "IPv6": "http://[::1]:{port}/red.png",
    "IPv4-mapped IPv6": "http://[::ffff:127.0.0.1]:{port}/red.png",
    "an allowed host as user": f"http://{UNRESOLVABLE_HOST}@127.0.0.1:{{port}}/red.png",
    "an allowed host as user and password": f"http://{UNRESOLVABLE_HOST}:80@127.0.0.1:{{port}}/red.png",
    "a backslash": f"http://127.0.0.1:{{port}}\\@{UNRESOLVABLE_HOST}/red.png",
    "a backslash the other way": f"http://{UNRESOLVABLE_HOST}\\@127.0.0.1:{{port}}/red.png",
    "a fragment": f"http://127.0.0.1:{{port}}#@{UNRESOLVABLE_HOST}/red.png",
    "a full-width dot": "http://127。0。0。1:{port}/red.png",
}


@pytest.mark.parametrize(
    ("door", "form"), [*(("router", form) for form in URLS), ("render service", "loopback"), ("render service", "IPv6")]
)
async def test_a_url_of_this_machine_is_refused(
    stack: Stack, client: aiohttp.ClientSession, bait: Bait, door: str, form: str
) -> None:
    """400 however the address is written, and nobody connects to it."""
    url = URLS[form].format(port=bait.port)
    target = stack.router_url + CHAT if door == "router" else stack.render_service_urls[0] + RENDER
    reply = await post(client, target, chat(url_part(url), WHAT_COLOR))
    said = (url, "127.0.0.1", "localhost", "::1", str(bait.port))
    assert_refused(reply, 400, "url|host|domain|fetch|parse", stack=stack, said=said)
    assert bait.connections == 0


async def test_the_bait_sees_connections(bait: Bait) -> None:
    """The measure itself: whoever connects is counted."""
    reader, writer = await asyncio.open_connection("127.0.0.1", bait.port)
    await reader.read()
    writer.close()
    assert bait.connections == 1


@pytest.mark.parametrize("url", ["http://169.254.169.254/latest/meta-data/", "http://10.0.0.1/red.png"])
async def test_private_addresses_are_refused(stack: Stack, client: aiohttp.ClientSession, url: str) -> None:
    """Metadata services and private networks are no places to fetch images from."""
    reply = await post(client, stack.router_url + CHAT, chat(url_part(url), WHAT_COLOR))
    assert_refused(reply, 400, "url|host|domain|fetch", stack=stack)


@pytest.mark.parametrize("door", ["router", "render service"])
async def test_a_name_that_does_not_resolve(stack: Stack, client: aiohttp.ClientSession, door: str) -> None:
    """The caller gave a wrong host, which vLLM reports as a failure of its own."""
    target = stack.router_url + CHAT if door == "router" else stack.render_service_urls[0] + RENDER
    reply = await post(client, target, chat(url_part(f"http://{UNRESOLVABLE_HOST}/red.png"), WHAT_COLOR))
    assert_refused(reply, 400, "url|host|domain|fetch", stack=stack)
