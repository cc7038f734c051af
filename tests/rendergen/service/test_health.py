import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from aiohttp import web

from rendergen.service.capabilities import JSON_ONLY
from rendergen.service.health import PodWatch
from rendergen.service.metrics import ServiceMetrics
from rendergen.service.pods import CAPABILITIES, HEALTH, MODELS, Pod, PodClient, open_session
from tests.support.polling import eventually
from tests.support.raw_pod import Connection, Script, closed_port, full_port, raw_pod
from tests.support.scripted_pod import Does, json_answer, scripted_pod, streamed
from tests.support.service import QUICK, PlainSettings


@asynccontextmanager
async def watched(
    *urls: str, asks: bool = False, models_interval_s: float | None = None, **settings: float
) -> AsyncIterator[tuple[PodWatch, list[PodClient]]]:
    """A running watch of the pods at ``urls``."""
    chosen = PlainSettings(**QUICK | settings)
    async with open_session(chosen) as session:
        pods = [PodClient(session, Pod("render pod", url)) for url in urls]
        watch = PodWatch(pods, chosen, ServiceMetrics(), asks_capabilities=asks, models_interval_s=models_interval_s)
        assert not any(watch.is_ready(pod) for pod in pods)
        async with watch.running():
            yield watch, pods


async def test_a_pod_is_ready_when_it_says_so() -> None:
    """Not before it was asked, and only as long as it says so; it recovers."""
    async with scripted_pod() as pod, watched(pod.url) as (watch, [client]):
        for healthy in (True, False, True):
            pod.healthy = healthy
            await eventually(lambda: watch.is_ready(client) is pod.healthy)
            assert watch.any_ready() is healthy
            assert watch.any_ready([client]) is healthy
            assert not watch.any_ready([])


async def test_a_pod_that_falls_silent_is_not_ready() -> None:
    """It accepts the question and never answers: not ready after the probe's timeout, ready again when it answers."""
    async with scripted_pod() as pod, watched(pod.url, probe_timeout_s=0.1) as (watch, [client]):
        await eventually(lambda: watch.is_ready(client))
        pod.healthy = None
        await eventually(lambda: not watch.is_ready(client))
        pod.healthy = True
        await eventually(lambda: watch.is_ready(client))


async def test_a_pod_that_is_late_stays_ready() -> None:
    """A busy pod may be late once or twice in a row; it takes as many failures as the setting says."""
    async with scripted_pod() as pod, watched(pod.url, probe_timeout_s=0.1, probe_failures=3) as (watch, [client]):
        await eventually(lambda: watch.is_ready(client))
        probes, pod.healthy = pod.probes, None
        await eventually(lambda: pod.probes >= probes + 3)
        assert watch.is_ready(client)
        pod.healthy = True
        await eventually(lambda: pod.probes >= probes + 5)
        assert watch.is_ready(client)


async def test_one_silent_pod_does_not_hold_up_the_others() -> None:
    """Each pod has its own watch: with a probe that takes for ever, the others are asked as often as ever."""
    async with scripted_pod(healthy=None) as silent, scripted_pod() as good, full_port() as full:
        urls = (silent.url, full, good.url)
        async with watched(*urls, probe_timeout_s=600, connect_timeout_s=600) as (watch, [_, _, client]):
            await eventually(lambda: watch.is_ready(client))
            probes = good.probes
            await eventually(lambda: good.probes > probes + 5)
            good.healthy = False
            await eventually(lambda: not watch.is_ready(client))
            assert silent.probes == 1


async def deep_error(connection: Connection) -> None:
    body = b"[" * 60_000
    await connection.head()
    await connection.send(b"HTTP/1.1 500 X\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))


async def garbage(connection: Connection) -> None:
    await connection.head()
    await connection.send(b"\x00\xff" * 100)


async def resets(connection: Connection) -> None:
    connection.reset()


@pytest.mark.parametrize("script", [deep_error, garbage, resets])
async def test_whatever_a_pod_answers_the_watch_goes_on(script: Script) -> None:
    """It asks again and again, and sees the others."""
    async with (
        raw_pod(script) as bad,
        scripted_pod() as good,
        watched(bad.url, good.url) as (watch, [bad_client, good_client]),
    ):
        await eventually(lambda: watch.is_ready(good_client) and len(bad.connections) >= 3)
        assert not watch.is_ready(bad_client)


async def test_a_pod_that_cannot_be_reached_is_not_ready() -> None:
    """The port is closed; nothing ends for that."""
    async with closed_port() as url, scripted_pod() as good, watched(url, good.url) as (watch, [gone, client]):
        await eventually(lambda: watch.is_ready(client) and good.probes > 3)
        assert not watch.is_ready(gone)


async def test_the_watch_ends_with_its_context() -> None:
    """At once, in the middle of a probe too; no task is left."""
    async with AsyncExitStack() as stack:
        silent = await stack.enter_async_context(scripted_pod(healthy=None))
        async with watched(silent.url, probe_timeout_s=600):
            await eventually(lambda: silent.probes)
    await eventually(lambda: len(asyncio.all_tasks()) == 1)


async def test_readiness_is_shown_in_the_metrics() -> None:
    """One gauge a pod."""
    settings, metrics = PlainSettings(**QUICK), ServiceMetrics()
    async with scripted_pod() as pod, open_session(settings) as session:
        client = PodClient(session, Pod("render pod", pod.url))
        async with PodWatch([client], settings, metrics).running():
            for healthy in (True, False):
                pod.healthy = healthy
                shown = f'rendergen_pod_ready{{pod="{pod.url}"}} {float(healthy)}'.encode()
                await eventually(lambda sample=shown: sample in metrics.exposition())


FRAMES = b'{"payload_versions":[1],"fingerprint":"f"}'


async def test_what_a_pod_can_do_is_known_once_it_is_ready() -> None:
    """It is asked before it is taken for ready, and not again while it stays so."""
    async with scripted_pod(healthy=False) as pod, watched(pod.url, asks=True) as (watch, [client]):
        pod.speaks = FRAMES
        await eventually(lambda: pod.probes > 2)
        assert (pod.asked, watch.capabilities(client)) == (0, JSON_ONLY)
        pod.healthy = True
        await eventually(lambda: watch.is_ready(client))
        assert watch.capabilities(client).speaks_frames
        probes = pod.probes
        await eventually(lambda: pod.probes > probes + 3)
        assert pod.asked == 1


@pytest.mark.parametrize("gone", [False, None], ids=["not ready", "late"])
async def test_a_pod_that_comes_back_is_asked_again(gone: bool | None) -> None:
    """It may be another: without the plugin, or with it."""
    async with scripted_pod() as pod, watched(pod.url, asks=True, probe_timeout_s=0.1) as (watch, [client]):
        for number, speaks in enumerate((None, FRAMES, None), start=1):
            pod.speaks, pod.healthy = speaks, True
            await eventually(lambda expected=number: pod.asked == expected)
            await eventually(lambda: watch.is_ready(client))
            await eventually(lambda said=speaks: watch.capabilities(client).speaks_frames is (said is not None))
            probes, pod.healthy = pod.probes, gone
            await eventually(lambda before=probes: pod.probes > before + 1)


async def test_a_pod_that_fails_to_say_serves_by_json_and_is_asked_again() -> None:
    """Its readiness does not depend on it; until it says more it is taken to speak JSON."""
    async with (
        scripted_pod({CAPABILITIES: json_answer(b"", 503)}) as pod,
        watched(pod.url, asks=True) as (watch, [client]),
    ):
        await eventually(lambda: watch.is_ready(client) and len(pod.seen) > 2)
        assert watch.capabilities(client) == JSON_ONLY
        pod.answers[CAPABILITIES] = json_answer(FRAMES)
        await eventually(lambda: watch.capabilities(client).speaks_frames)
        asked, probes = len(pod.seen), pod.probes
        await eventually(lambda: pod.probes > probes + 3)
        assert len(pod.seen) == asked


async def test_a_pod_is_asked_only_where_it_matters() -> None:
    """A service in front of one vLLM carries whatever comes, and need not know."""
    async with scripted_pod() as pod, watched(pod.url) as (watch, [client]):
        await eventually(lambda: watch.is_ready(client))
        probes = pod.probes
        await eventually(lambda: pod.probes > probes + 2)
        assert pod.asked == 0


async def test_what_a_pod_speaks_is_shown_in_the_metrics() -> None:
    """One gauge a pod that was asked."""
    settings, metrics = PlainSettings(**QUICK), ServiceMetrics()
    async with scripted_pod() as pod, open_session(settings) as session:
        client = PodClient(session, Pod("render pod", pod.url))
        async with PodWatch([client], settings, metrics, asks_capabilities=True).running():
            for speaks in (None, FRAMES):
                pod.healthy, probes = False, pod.probes
                await eventually(lambda before=probes: pod.probes > before + 1)
                pod.speaks, pod.healthy = speaks, True
                shown = f'rendergen_pod_frames{{pod="{pod.url}"}} {float(speaks is not None)}'.encode()
                await eventually(lambda sample=shown: sample in metrics.exposition())


async def test_a_pod_that_failed_is_left_out_until_its_next_probe() -> None:
    """Which is made at once, and asks anew what it can do: it may be another by now."""
    async with (
        scripted_pod() as pod,
        watched(pod.url, asks=True, models_interval_s=600, probe_interval_s=600) as (watch, [client]),
    ):
        pod.models = serving("a")
        await eventually(lambda: watch.is_ready(client))
        assert not watch.capabilities(client).speaks_frames
        pod.speaks, pod.models = FRAMES, serving("b")
        watch.failed(client)
        assert not watch.is_ready(client)
        await eventually(lambda: watch.is_ready(client))
        assert (pod.probes, pod.asked, pod.asked_models) == (2, 2, 2)
        assert watch.capabilities(client).speaks_frames
        assert names(watch, client) == ["b"]


async def test_a_pod_that_failed_and_is_gone_stays_left_out() -> None:
    """Also where its probes are late, as a pod that was ready may be."""
    async with scripted_pod() as pod, watched(pod.url, probe_timeout_s=0.05, probe_failures=100) as (watch, [client]):
        await eventually(lambda: watch.is_ready(client))
        pod.healthy, probes = None, pod.probes
        watch.failed(client)
        await eventually(lambda: pod.probes > probes + 2)
        assert not watch.is_ready(client)


async def test_a_probe_from_before_a_failure_counts_for_nothing() -> None:
    """It asked a pod that may be no longer there; the next one does count, and what the pod can do is asked again."""
    answers = [asyncio.Event() for _ in range(3)]
    answers[0].set()
    asked = 0

    async def health(request: web.Request) -> web.StreamResponse:
        nonlocal asked
        asked += 1
        await answers[min(asked, 3) - 1].wait()
        return web.Response()

    async with scripted_pod() as pod, watched(pod.url, asks=True) as (watch, [client]):
        pod.answers[HEALTH] = health
        await eventually(lambda: watch.is_ready(client) and asked == 2)
        watch.failed(client)
        answers[1].set()
        await eventually(lambda: asked == 3)
        assert not watch.is_ready(client)
        pod.speaks = FRAMES
        answers[2].set()
        await eventually(lambda: watch.is_ready(client))
        assert watch.capabilities(client).speaks_frames


async def test_a_failure_of_a_pod_that_is_not_watched_is_nobody_s() -> None:
    """A request may outlast its pod."""
    async with scripted_pod() as pod, watched(pod.url) as (watch, [client]):
        watch.follow(())
        watch.failed(client)
        assert not watch.is_ready(client)


def serving(*names: str) -> bytes:
    return b'{"data":[%b]}' % b",".join(b'{"id":"%b"}' % name.encode() for name in names)


def names(watch: PodWatch, client: PodClient) -> list[str] | None:
    models = watch.models(client)
    return None if models is None else list(models)


async def test_the_models_of_a_pod_are_known_once_it_is_ready() -> None:
    """It is asked before it is taken for ready, and again after the interval."""
    async with scripted_pod(healthy=False) as pod, watched(pod.url, models_interval_s=0.05) as (watch, [client]):
        pod.models = serving("a")
        await eventually(lambda: pod.probes > 2)
        assert (pod.asked_models, names(watch, client), watch.was_asked_for_models(client)) == (0, None, False)
        pod.healthy = True
        await eventually(lambda: watch.is_ready(client))
        assert (names(watch, client), watch.was_asked_for_models(client)) == (["a"], True)
        pod.models = serving("a", "b")
        await eventually(lambda: names(watch, client) == ["a", "b"])


async def test_models_are_asked_for_no_more_often_than_said() -> None:
    """While the pod stays ready; whoever comes back is asked anew. What was known of it holds while it is away."""
    async with scripted_pod() as pod, watched(pod.url, models_interval_s=600) as (watch, [client]):
        pod.models = serving("a")
        await eventually(lambda: watch.is_ready(client))
        probes = pod.probes
        await eventually(lambda: pod.probes > probes + 3)
        assert pod.asked_models == 1
        pod.healthy = False
        await eventually(lambda: not watch.is_ready(client))
        assert names(watch, client) == ["a"]
        pod.models, pod.healthy = serving("b"), True
        await eventually(lambda: watch.is_ready(client))
        assert names(watch, client) == ["b"]


async def test_a_pod_that_fails_to_say_what_it_serves_is_ready() -> None:
    """It is asked again at each probe. While it stays ready, what it last said holds; after that it does not."""
    failing = json_answer(b"", 503)
    async with scripted_pod() as pod, watched(pod.url, models_interval_s=0.01) as (watch, [client]):
        pod.answers[MODELS] = failing
        await eventually(lambda: watch.is_ready(client) and len(pod.seen) > 2)
        assert (names(watch, client), watch.was_asked_for_models(client)) == (None, True)
        pod.answers[MODELS] = json_answer(serving("a"))
        await eventually(lambda: names(watch, client) == ["a"])
        pod.answers[MODELS], asked = failing, len(pod.seen)
        await eventually(lambda: len(pod.seen) > asked + 2)
        assert (names(watch, client), watch.is_ready(client)) == (["a"], True)
        pod.healthy = False
        await eventually(lambda: not watch.is_ready(client))
        assert names(watch, client) == ["a"]
        pod.healthy = True
        await eventually(lambda: watch.is_ready(client))
        assert names(watch, client) is None


async def test_a_pod_that_has_no_list_of_models_any_more() -> None:
    """Serves nobody knows what: what it said before does not hold."""
    async with scripted_pod() as pod, watched(pod.url, models_interval_s=0.01) as (watch, [client]):
        pod.models = serving("a")
        await eventually(lambda: names(watch, client) == ["a"])
        pod.models = b"[]"
        await eventually(lambda: names(watch, client) is None)
        assert watch.is_ready(client)


async def test_a_pod_that_hangs_on_its_models_is_ready_all_the_same() -> None:
    """After the time that a probe has."""
    async with (
        scripted_pod({MODELS: streamed(Does.HANG)}) as pod,
        watched(pod.url, models_interval_s=1, probe_timeout_s=0.1) as (watch, [client]),
    ):
        await eventually(lambda: watch.is_ready(client))
        assert names(watch, client) is None


async def test_services_do_not_ask_for_models() -> None:
    """They carry whatever comes."""
    async with scripted_pod() as pod, watched(pod.url, asks=True) as (watch, [client]):
        await eventually(lambda: watch.is_ready(client) and pod.probes > 3)
        assert (pod.asked_models, names(watch, client), watch.was_asked_for_models(client)) == (0, None, False)


async def test_pods_come_and_go() -> None:
    """Those that come are asked; those that are gone are not, and nothing is known of them; the rest stay."""
    async with (
        scripted_pod() as first,
        scripted_pod() as second,
        scripted_pod() as third,
        watched(first.url, second.url, asks=True, models_interval_s=600) as (watch, [one, two]),
    ):
        first.speaks = second.speaks = third.speaks = FRAMES
        first.models = second.models = third.models = serving("m")
        await eventually(lambda: watch.is_ready(one) and watch.is_ready(two))
        comes = PodClient(one._session, Pod("render pod", third.url))
        watch.follow([two, comes])
        assert watch.is_ready(two)
        assert not watch.is_ready(one)
        assert (watch.capabilities(one), watch.models(one)) == (JSON_ONLY, None)
        await eventually(lambda: watch.is_ready(comes))
        asked, probes = first.probes, second.probes
        await eventually(lambda: second.probes > probes + 3)
        assert (first.probes, second.asked, second.asked_models) == (asked, 1, 1)
        watch.follow([one, two])
        await eventually(lambda: watch.is_ready(one))
        assert not watch.is_ready(comes)


async def test_a_pod_that_goes_in_the_middle_of_its_probe() -> None:
    """Leaves neither a task nor a label."""
    settings, metrics = PlainSettings(**QUICK), ServiceMetrics()
    async with scripted_pod() as pod, scripted_pod() as other, open_session(settings) as session:
        pod.speaks = FRAMES
        clients = [PodClient(session, Pod("render pod", each.url)) for each in (pod, other)]
        watch = PodWatch(clients, settings, metrics, asks_capabilities=True)
        async with watch.running():
            await eventually(lambda: watch.is_ready(clients[0]) and watch.is_ready(clients[1]))
            assert pod.url in metrics.exposition().decode()
            pod.healthy, probes = None, pod.probes
            await eventually(lambda: pod.probes > probes)
            watch.follow(clients[1:])
            assert pod.url not in metrics.exposition().decode()
            probes = other.probes
            await eventually(lambda: other.probes > probes + 3)
            assert pod.url not in metrics.exposition().decode()
            assert other.url in metrics.exposition().decode()


async def test_pods_that_were_followed_before_it_runs_are_asked_once_it_does() -> None:
    """Each address once, in how many roles it may be."""
    settings = PlainSettings(**QUICK | {"probe_interval_s": 600})
    async with scripted_pod() as pod, open_session(settings) as session:
        clients = [PodClient(session, Pod(role, pod.url)) for role in ("render pod", "generate pod")]
        watch = PodWatch((), settings, ServiceMetrics())
        watch.follow(clients)
        async with watch.running():
            await eventually(lambda: all(map(watch.is_ready, clients)))
            assert watch.any_ready()
        assert pod.probes == 1
