"""Which pods there are: those that the settings name, and those at the addresses of names that they say to resolve."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Protocol
from urllib.parse import urlsplit

import aiohttp

from rendergen.service.pods import Pod, PodClient
from rendergen.service.settings import DNS_PREFIX

log = logging.getLogger(__name__)

Resolve = Callable[[str, int], Awaitable[Iterable[str]]]


class Follower(Protocol):
    """Is told which pods there are."""

    def follow(self, pods: Iterable[PodClient], /) -> None:
        """These are all of them now, in all of their roles."""


async def system_addresses(name: str, port: int) -> list[str]:
    """All addresses of ``name`` by the system's resolver, as text.

    Raises:
        OSError: there are none, or they could not be had.
    """
    found = await asyncio.get_running_loop().getaddrinfo(name, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


class Discovery:
    """Keeps the pods of each role.

    Args:
        session: the process's HTTP client.
        entries: the settings' entries by role: ``http://HOST:PORT``, kept as they are, or ``dns+http://NAME:PORT``.
        follower: is told whenever pods come or go, and at first.
        interval_s: time between two resolutions of a name.
        timeout_s: longest wait for one.
        resolve: gives a name's addresses.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        entries: Mapping[str, Sequence[str]],
        follower: Follower,
        *,
        interval_s: float,
        timeout_s: float,
        resolve: Resolve = system_addresses,
    ) -> None:
        self._session = session
        self._entries = entries
        self._follower = follower
        self._interval_s = interval_s
        self._timeout_s = timeout_s
        self._resolve = resolve
        # What each name to resolve last stood for: base addresses of pods.
        self._found: dict[str, tuple[str, ...]] = {
            entry: () for role in entries for entry in entries[role] if entry.startswith(DNS_PREFIX)
        }
        self._failing: set[str] = set()
        self._pods: dict[str, dict[str, PodClient]] = {role: {} for role in entries}
        self._refresh()

    def pods(self, role: str) -> tuple[PodClient, ...]:
        """The pods of that role now, each once."""
        return tuple(self._pods[role].values())

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Resolve the names for as long as the context lasts."""
        async with asyncio.TaskGroup() as tasks:
            watches = [tasks.create_task(self._watch(entry)) for entry in self._found]
            try:
                yield
            finally:
                for watch in watches:
                    watch.cancel()

    async def _watch(self, entry: str) -> None:
        while True:
            addresses = await self._addresses(entry)
            before = self._found[entry]
            if addresses and addresses != before:
                came, gone = (
                    sorted(set(one) - set(other)) for one, other in ((addresses, before), (before, addresses))
                )
                log.info("pods of a name have changed", extra={"dns_name": entry, "came": came, "gone": gone})
                self._found[entry] = addresses
                self._refresh()
            await asyncio.sleep(self._interval_s)

    async def _addresses(self, entry: str) -> tuple[str, ...]:
        """The base addresses that the name stands for now; none if that could not be learned."""
        parts = urlsplit(entry.removeprefix("dns+"))
        assert parts.hostname is not None
        assert parts.port is not None
        cause = "it has no address"
        found: tuple[str, ...] = ()
        try:
            async with asyncio.timeout(self._timeout_s):
                found = _urls(await self._resolve(parts.hostname, parts.port), parts.port)
        except TimeoutError:
            cause = f"no answer within {self._timeout_s:g} s"
        except (OSError, ValueError) as error:  # ValueError: what cannot be a host's name at all, or is no address
            cause = str(error)
        if found and entry in self._failing:
            self._failing.remove(entry)
            log.info("name resolves again", extra={"dns_name": parts.hostname})
        elif not found and entry not in self._failing:
            self._failing.add(entry)
            extra = {"dns_name": parts.hostname, "cause": cause}
            log.warning("name does not resolve: the last known pods are kept", extra=extra)
        return found

    def _refresh(self) -> None:
        """Bring the pods to what settings and names say; a pod that stays is the same object."""
        for role, entries in self._entries.items():
            before = self._pods[role]
            urls = dict.fromkeys(url for entry in entries for url in self._found.get(entry, (entry,)))
            self._pods[role] = {url: before.get(url) or PodClient(self._session, Pod(role, url)) for url in urls}
        self._follower.follow([pod for pods in self._pods.values() for pod in pods.values()])


def _urls(addresses: Iterable[str], port: int) -> tuple[str, ...]:
    """Base addresses in an order of their own: name servers change theirs from answer to answer.

    Raises:
        ValueError: one is no address.
    """
    read = {ipaddress.ip_address(address) for address in addresses if "%" not in address}  # %: of one link alone
    ordered = sorted(read, key=lambda address: (address.version, int(address)))
    return tuple(
        f"http://[{address}]:{port}" if address.version == 6 else f"http://{address}:{port}" for address in ordered
    )
