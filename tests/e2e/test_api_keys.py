"""API keys of callers, at a router of its own before the stack's services."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest_asyncio

from rendergen.launcher import Stack
from rendergen.launcher.child import ChildProcess
from rendergen.service.api_keys import key_line, new_key
from tests.e2e.calls import CHAT, RED, WHAT_COLOR, Reply, chat, post
from tests.e2e.polling import eventually
from tests.e2e.service_process import service_process


@dataclass(frozen=True, slots=True)
class Secret:
    """A directory laid out as a mounted Kubernetes Secret with one file: ``keys`` → ``..data/keys`` → ``..N/keys``."""

    directory: Path

    @property
    def file(self) -> Path:
        return self.directory / "keys"

    def holds(self, *lines: str) -> None:
        """Replace its content, as the kubelet does."""
        version = self.directory / f"..{len(list(self.directory.iterdir()))}"
        version.mkdir()
        (version / "keys").write_text("\n".join(lines))
        (self.directory / "..tmp").symlink_to(version.name)
        (self.directory / "..tmp").replace(self.directory / "..data")
        if not self.file.is_symlink():
            self.file.symlink_to("..data/keys")


@dataclass(frozen=True, slots=True)
class Guarded:
    """A router that wants keys, those that it knows, and its process."""

    url: str
    secret: Secret
    key: str
    process: ChildProcess


@pytest_asyncio.fixture(loop_scope="session")
async def guarded(stack: Stack, tmp_path: Path) -> AsyncIterator[Guarded]:
    key, secret = new_key(), Secret(tmp_path)
    secret.holds(key_line("alice", key))
    flags = (
        *("--render-pods", ",".join(stack.render_service_urls)),
        *("--generate-pods", ",".join(stack.generate_service_urls)),
        *("--host", "0.0.0.0", "--api-keys-file", str(secret.file), "--log-level", "debug"),
    )
    async with service_process("router", *flags) as process:
        yield Guarded(process.spec.url, secret, key, process)


async def asked(client: aiohttp.ClientSession, url: str, headers: dict[str, str]) -> Reply:
    return await post(client, url + CHAT, chat(RED, WHAT_COLOR, max_tokens=8, temperature=0), headers)


async def test_a_key_opens_the_door(guarded: Guarded, client: aiohttp.ClientSession) -> None:
    """In either header; without one, or with another, nothing is served. The log has the key's name, never the key."""
    for headers in ({"Authorization": f"Bearer {guarded.key}"}, {"x-api-key": guarded.key}):
        reply = await asked(client, guarded.url, headers)
        assert reply.status == 200, reply.text()
        assert reply.json()["choices"][0]["message"]["content"] == "Red"
    for wrong in ({}, {"Authorization": f"Bearer {new_key()}"}):
        reply = await asked(client, guarded.url, wrong)
        assert (reply.status, reply.headers["WWW-Authenticate"]) == (401, "Bearer")
        assert reply.json()["error"]["type"] == "UnauthorizedError"
    log = guarded.process.log.path.read_text()
    requests = [json.loads(line) for line in log.splitlines() if f'"route": "{CHAT}"' in line]
    assert [(entry["status"], entry.get("key")) for entry in requests] == [(200, "alice")] * 2 + [(401, None)] * 2
    assert guarded.key not in log
    assert str(guarded.secret.directory) not in log


async def test_a_secret_is_replaced(guarded: Guarded, client: aiohttp.ClientSession) -> None:
    """The new keys count soon after; one that is broken changes nothing."""
    other = new_key()

    async def statuses() -> list[int]:
        keys = (guarded.key, other)
        return [(await post(client, guarded.url + CHAT, b"{}", {"x-api-key": key})).status for key in keys]

    assert await statuses() == [400, 401]
    guarded.secret.holds("what is this?")

    async def told() -> bool:
        return "file is bad" in guarded.process.log.path.read_text()

    await eventually(told, "the log says that the file is bad")
    assert await statuses() == [400, 401]
    guarded.secret.holds(key_line("bob", other))

    async def replaced() -> bool:
        return await statuses() == [401, 400]

    await eventually(replaced, "the new key counts")
