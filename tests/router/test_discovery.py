import asyncio
import logging
import socket
from collections.abc import Iterable
from urllib.parse import urlsplit

import pytest

from rendergen.service.metrics import ServiceMetrics
from rendergen.service.pods import PodClient, open_session
from router.discovery import Discovery, system_addresses
from router.pool import Wanted
from tests.support.fleet import all_ready, fleet
from tests.support.polling import eventually, soon
from tests.support.scripted_pod import scripted_pod
from tests.support.service import QUICK, PlainSettings

NAME = "dns+http://pods.test:8000"


class Names:
    """A resolver: what each name stands for now, or how it fails; None never answers."""

    def __init__(self, **known: list[str] | Exception | None) -> None:
        self.known = {f"{name}.test": answer for name, answer in known.items()}
        self.asked: list[tuple[str, int]] = []

    async def __call__(self, name: str, port: int) -> Iterable[str]:
        self.asked.append((name, port))
        answer = self.known[name]
        if answer is None:
            await asyncio.Event().wait()
        if isinstance(answer, Exception):
            raise answer
        return list(answer or ())


class Followed:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[list[str]] = []

    def follow(self, pods: Iterable[PodClient]) -> None:
        self.told.append([f"{pod.pod.role} {pod.pod.url}" for pod in pods])


class Found:
    """A running discovery of render pods by one entry or more."""

    def __init__(self, names: Names, *entries: str, timeout_s: float = 10.0) -> None:
        self.names = names
        self.followed = Followed()
        self._session = open_session(PlainSettings(**QUICK))
        self.discovery = Discovery(
            self._session, {"r": entries}, self.followed, interval_s=0.01, timeout_s=timeout_s, resolve=names
        )
        self._running = self.discovery.running()

    async def __aenter__(self) -> "Found":
        await self._running.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._running.__aexit__(None, None, None)
        await self._session.close()

    @property
    def urls(self) -> list[str]:
        return [pod.pod.url for pod in self.discovery.pods("r")]

    async def becomes(self, *urls: str) -> None:
        await eventually(lambda: self.urls == list(urls))

    async def asked_again(self) -> None:
        """Wait until an answer given from now on has been used."""
        asked = len(self.names.asked)
        await eventually(lambda: len(self.names.asked) >= asked + 2)


async def test_addresses_are_kept_as_they_are() -> None:
    """They are known from the start, each once, and no name is resolved for them."""
    names = Names()
    async with Found(names, "http://a:1", "https://b:2", "http://a:1") as found:
        assert found.urls == ["http://a:1", "https://b:2"]
        assert found.followed.told == [["r http://a:1", "r https://b:2"]]
        assert names.asked == []


async def test_every_address_of_a_name_is_a_pod() -> None:
    """Of both kinds, each once, in an order of ours; what is of one link alone is no address for us."""
    names = Names(pods=["10.0.0.10", "fd00::2", "10.0.0.9", "fd00:0::2", "fe80::1%eth0"])
    async with Found(names, "http://a:1", NAME) as found:
        await found.becomes("http://a:1", "http://10.0.0.9:8000", "http://10.0.0.10:8000", "http://[fd00::2]:8000")
        assert set(names.asked) == {("pods.test", 8000)}


async def test_pods_come_and_go_with_the_name() -> None:
    """It is resolved again and again; a pod that stays is the same, and whoever follows is told of changes alone."""
    names = Names(pods=["10.0.0.1", "10.0.0.2"])
    async with Found(names, NAME) as found:
        await found.becomes("http://10.0.0.1:8000", "http://10.0.0.2:8000")
        first, stays = found.discovery.pods("r")
        names.known["pods.test"] = ["10.0.0.3", "10.0.0.2"]
        await found.becomes("http://10.0.0.2:8000", "http://10.0.0.3:8000")
        assert found.discovery.pods("r")[0] is stays
        names.known["pods.test"] = ["10.0.0.2", "10.0.0.3"]
        await found.asked_again()
        assert len(found.followed.told) == 3
        names.known["pods.test"] = ["10.0.0.1"]
        await found.becomes("http://10.0.0.1:8000")
        assert found.discovery.pods("r")[0] is not first


FAILURES = {
    "an error": OSError("no such name"),
    "a name that cannot be one": UnicodeError("label too long"),
    "no address": [],
    "nothing that is one": ["nonsense"],
    "no answer": None,
}


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
async def test_a_name_that_does_not_resolve_keeps_its_pods(
    failure: list[str] | Exception | None, caplog: pytest.LogCaptureFixture
) -> None:
    """One line when it begins and one when it ends, however long it lasts."""
    caplog.set_level(logging.INFO, "router.discovery")
    names = Names(pods=["10.0.0.1"])
    async with Found(names, NAME, timeout_s=0.05) as found:
        await found.becomes("http://10.0.0.1:8000")
        names.known["pods.test"] = failure
        for _ in range(3):
            await found.asked_again()
        assert found.urls == ["http://10.0.0.1:8000"]
        names.known["pods.test"] = ["10.0.0.2"]
        await found.becomes("http://10.0.0.2:8000")
    lines = [record.message.split(":")[0] for record in caplog.records if record.message.startswith("name ")]
    assert lines == ["name does not resolve", "name resolves again"]


async def test_one_name_does_not_hold_up_another() -> None:
    """Each is resolved on its own."""
    names = Names(pods=["10.0.0.1"], slow=None)
    async with Found(names, "dns+http://slow.test:1", NAME, timeout_s=600) as found:
        await found.becomes("http://10.0.0.1:8000")
        await found.asked_again()


async def test_it_ends_with_its_context() -> None:
    """At once, in the middle of a resolution too; no task is left."""
    names = Names(pods=None)
    async with Found(names, NAME, timeout_s=600):
        await eventually(lambda: names.asked)
    await eventually(lambda: len(asyncio.all_tasks()) == 1)


async def test_the_system_resolves_localhost() -> None:
    """By its own resolver, off the request path: an address, and a pod at it."""
    assert set(await soon(system_addresses("localhost", 80))) <= {"127.0.0.1", "::1"}
    async with scripted_pod() as pod:
        entry = f"dns+http://localhost:{urlsplit(pod.url).port}"
        async with fleet([entry]) as pods:
            await eventually(pods.render.any_ready)
            assert pods.render.ready()[0].pod.url == pod.url


async def test_the_system_has_no_address_for_a_name_that_is_none() -> None:
    """An error, and no empty answer."""
    with pytest.raises((OSError, UnicodeError)):
        await soon(system_addresses("x" * 64 + ".invalid", 80))


def is_bindable(address: str) -> bool:
    with socket.socket() as bound:
        try:
            bound.bind((address, 0))
        except OSError:
            return False
    return True


@pytest.mark.skipif(not is_bindable("127.0.0.2"), reason="this system has one loopback address")
async def test_a_pod_that_is_gone_gets_nothing_new() -> None:
    """Its request goes on; its labels and what is known of it are dropped; one that comes is watched and taken."""
    metrics = ServiceMetrics()
    async with scripted_pod() as pod:
        port = urlsplit(pod.url).port
        names = Names(pods=["127.0.0.1"])
        async with fleet([f"dns+http://pods.test:{port}"], resolve=names, metrics=metrics) as pods:
            pool = pods.render
            [client] = await all_ready_of(pool, 1)
            with pool.take() as taken:
                taken.carry(3)
                assert pod.url in metrics.exposition().decode()
                names.known["pods.test"] = ["127.0.0.2"]
                await eventually(lambda: [each.pod.url for each in pool.pods] == [f"http://127.0.0.2:{port}"])
                assert not pool.can_take()
                probes = pod.probes
                names.known["pods.test"] = ["127.0.0.1", "127.0.0.2"]
                await eventually(lambda: len(pool.pods) == 2)
                await eventually(pool.can_take)
                assert pod.probes > probes
                [back] = pool.ready()
                assert back is not client
                names.known["pods.test"] = ["127.0.0.2"]
                await eventually(lambda: len(pool.pods) == 1)
                async with taken.pod.request("GET", "/health", headers={}, timeout_s=10) as answer:
                    assert answer.status == 200
            assert pod.url + '"' not in metrics.exposition().decode()
            assert not pool.can_take(Wanted())


async def all_ready_of(pool: object, number: int) -> list[PodClient]:
    await eventually(lambda: len(pool.pods) == number)  # type: ignore[attr-defined]
    return list(await all_ready(pool))  # type: ignore[arg-type]


async def test_one_pod_in_both_roles_is_asked_once() -> None:
    """One `vllm serve --enable-scale-out` is a pod of each role, and one process."""
    async with scripted_pod() as pod, fleet([pod], [pod], probe_interval_s=600, models_interval_s=600) as pods:
        await all_ready(pods.render)
        await all_ready(pods.generate)
        assert (pod.probes, pod.asked, pod.asked_models) == (1, 1, 1)
        [render], [generate] = pods.render.pods, pods.generate.pods
        assert (render.pod.role, generate.pod.role) == ("render pod", "generate pod")
