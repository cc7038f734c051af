"""A pod's client as a service has it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rendergen.service.pods import Body, Pod, PodClient, open_session
from tests.support.polling import soon
from tests.support.service import QUICK, PlainSettings

MIB = 1024 * 1024


@asynccontextmanager
async def client_of(url: str, **settings: float) -> AsyncIterator[PodClient]:
    """A client of the pod at ``url``, which it knows as the render pod."""
    async with open_session(PlainSettings(**QUICK, **settings)) as session:
        yield PodClient(session, Pod("render pod", url))


async def asked(client: PodClient, body: Body = b"{}", method: str = "POST", timeout_s: float = 15.0) -> bytes:
    """The whole answer to one request; fails if it does not end, whatever the client's own budget does."""

    async def ask() -> bytes:
        async with client.request(method, "/x", headers={}, body=body, timeout_s=timeout_s) as answer:
            return await answer.read(64 * MIB)

    return await soon(ask())


async def pieces(*parts: bytes) -> AsyncIterator[bytes]:
    """``parts`` as a body that is made while it is sent, and cannot be sent twice."""
    for part in parts:
        yield part
