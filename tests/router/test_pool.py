import asyncio
from contextlib import ExitStack

import aiohttp
import pytest

from rendergen.service.errors import BadRequest, ModelNotFound, Unavailable
from rendergen.service.metrics import ServiceMetrics
from router.choice import Load
from router.fleet import Fleet
from router.pool import Pool, Wanted
from tests.support.fleet import FRAMES, all_ready, fleet, serving
from tests.support.polling import eventually
from tests.support.raw_pod import closed_port
from tests.support.router import CHAT, DERENDER, GENERATE, REQUEST, generate_pod, render_pod, routed
from tests.support.scripted_pod import ScriptedPod, scripted_pod

DERENDER_MESSAGES = "/v1/messages/derender/stream"


async def test_only_ready_pods_are_taken() -> None:
    """None before the first probe; then those that are ready, as they come and go."""
    async with (
        scripted_pod() as first,
        scripted_pod(healthy=False) as second,
        fleet([first, second], probe_timeout_s=0.1) as pods,
    ):
        pool = pods.render
        one, two = pool.pods
        assert not pool.any_ready()
        assert not pool.can_take()
        for ask in (pool.ready, pool.take().__enter__):
            with pytest.raises(Unavailable, match="No render pod is ready"):
                ask()
        await eventually(pool.any_ready)
        assert pool.ready() == [one]
        second.healthy = True
        await eventually(lambda: len(pool.ready()) == 2)
        first.healthy = None
        await eventually(lambda: pool.ready() == [two])


async def test_the_pod_with_the_least_in_flight_is_taken() -> None:
    """Requests and payload bytes count for as long as the context lasts, however it ends; equals go in turn."""
    async with scripted_pod() as first, scripted_pod() as second, fleet([first, second]) as pods:
        pool = pods.render
        one, two = await all_ready(pool)
        with ExitStack() as held:
            taken = [held.enter_context(pool.take()) for _ in range(3)]
            assert [each.pod for each in taken] == [one, two, one]
            taken[1].carry(20 * 1024 * 1024)
            taken[1].carry(1)
            assert pool.loads() == {one: Load(2, 0), two: Load(1, 20 * 1024 * 1024 + 1)}
            with pool.take() as fourth:
                assert fourth.pod is one
            with pytest.raises(ZeroDivisionError):
                fail_with(pool)
        assert pool.loads() == {one: Load(), two: Load()}
        with pool.take() as last:
            assert last.pod is two


def fail_with(pool: Pool) -> None:
    with pool.take() as taken:
        taken.carry(5)
        raise ZeroDivisionError


async def test_derendering_is_counted_apart() -> None:
    """A pod that derenders much is still taken to render in its turn."""
    async with scripted_pod() as first, scripted_pod() as second, fleet([first, second]) as pods:
        one, two = await all_ready(pods.render)
        with pods.derender.take(), pods.derender.take(Wanted(avoid=frozenset({two}))):
            assert pods.derender.loads() == {one: Load(2), two: Load()}
            assert pods.render.loads() == {one: Load(), two: Load()}


async def test_a_request_that_is_cancelled_gives_its_pod_back() -> None:
    """Whatever was in flight ends with it."""
    async with scripted_pod() as pod, fleet([pod]) as pods:
        [client] = await all_ready(pods.render)

        async def request() -> None:
            with pods.render.take() as taken:
                taken.carry(7)
                await asyncio.Event().wait()

        task = asyncio.create_task(request())
        await eventually(lambda: pods.render.loads() == {client: Load(1, 7)})
        task.cancel()
        await asyncio.wait([task])
        assert pods.render.loads() == {client: Load()}


async def test_the_router_that_has_just_started_knows_no_models() -> None:
    """503 for every name, and not 404: what it will serve it cannot tell yet."""
    async with scripted_pod(healthy=False) as pod, fleet([pod]) as pods:
        pod.models = serving("m")
        for model in ("m", "other", None):
            with pytest.raises(Unavailable):
                pods.render.ready(Wanted(model))
        await eventually(lambda: pod.probes > 2)
        with pytest.raises(Unavailable):
            pods.render.ready(Wanted("other"))
        pod.healthy = True
        await eventually(lambda: pods.render.can_take(Wanted("m")))
        with pytest.raises(ModelNotFound):
            pods.render.ready(Wanted("other"))


async def test_a_pod_that_has_never_been_ready_may_serve_any_model() -> None:
    """A name that nobody is known to serve is 503 until all have had their say, and 404 then."""
    async with scripted_pod() as first, scripted_pod(healthy=False) as second, fleet([first, second]) as pods:
        pool = pods.render
        first.models, second.models = serving("a"), serving("b")
        one, two = pool.pods
        await eventually(lambda: pool.can_take(Wanted("a")))
        with pytest.raises(Unavailable, match="`b`") as error:
            pool.ready(Wanted("b"))
        assert error.value.retry_after
        assert pool.ready() == [one]
        second.healthy = True
        await eventually(lambda: pool.can_take(Wanted("b")))
        assert (pool.ready(Wanted("a")), pool.ready(Wanted("b"))) == ([one], [two])
        second.healthy = False
        await eventually(lambda: not pool.can_take(Wanted("b")))
        with pytest.raises(Unavailable):  # known, and not ready
            pool.ready(Wanted("b"))
        with pytest.raises(ModelNotFound) as missing:
            pool.ready(Wanted("c"))
        assert missing.value.body() == {
            "error": {
                "message": "The model `c` does not exist.",
                "type": "NotFoundError",
                "param": "model",
                "code": 404,
            }
        }


async def test_pods_that_do_not_say_what_they_serve() -> None:
    """Serve anything while all are like that, and nothing as soon as one has said: it may be another model's."""
    async with scripted_pod() as first, scripted_pod() as second, fleet([first, second]) as pods:
        pool = pods.render
        one, _ = await all_ready(pool)
        assert len(pool.ready(Wanted("anything"))) == len(pool.ready()) == 2
        first.models = serving("a")
        await eventually(lambda: pool.ready() == [one])
        assert pool.ready(Wanted("a")) == [one]
        with pytest.raises(ModelNotFound):
            pool.ready(Wanted("anything"))


async def test_adapters_come_and_go() -> None:
    """A pod is asked again and again for what it serves."""
    async with scripted_pod() as pod, fleet([pod]) as pods:
        pod.models = serving("m")
        await eventually(lambda: pods.render.can_take(Wanted("m")))
        pod.models = serving("m", "adapter")
        await eventually(lambda: pods.render.can_take(Wanted("adapter")))
        pod.models = serving("m")
        await eventually(lambda: not pods.render.can_take(Wanted("adapter")))


async def test_without_a_name_there_must_be_one_model() -> None:
    """vLLM then takes the first that it lists; where that differs between pods, the answer names all there are."""
    async with scripted_pod() as first, scripted_pod() as second, fleet([first, second]) as pods:
        pool = pods.render
        first.models, second.models = serving("a"), serving("a", "adapter")
        both = list(await all_ready(pool))
        for model in (None, ""):
            assert pool.ready(Wanted(model)) == both
        second.models = serving("b", "a")
        await eventually(lambda: not pool.can_take())
        for model in (None, ""):
            with pytest.raises(BadRequest, match="`a`, `b`") as error:
                pool.ready(Wanted(model))
            assert error.value.param == "model"
        assert pool.ready(Wanted("a")) == both


async def test_a_name_is_repeated_up_to_a_length() -> None:
    """A caller's name may be megabytes."""
    async with scripted_pod() as pod, fleet([pod]) as pods:
        pod.models = serving("m")
        await all_ready(pods.render)
        with pytest.raises(ModelNotFound) as error:
            pods.render.ready(Wanted("x" * 1_000_000))
        assert len(error.value.message) < 400


async def test_pods_to_avoid_are_never_taken() -> None:
    """Also when there is nothing else; and a process that plays both parts is avoided in both."""
    async with scripted_pod() as first, scripted_pod() as second, fleet([first, second], [first, second]) as pods:
        one, two = await all_ready(pods.render)
        await all_ready(pods.generate)
        for pool in (pods.render, pods.generate):
            assert [pod.pod.url for pod in pool.ready(Wanted(avoid=frozenset({one})))] == [second.url]
            with pytest.raises(Unavailable, match="No other"):
                pool.ready(Wanted(avoid=frozenset({one, two})))
        second.healthy = False
        await eventually(lambda: pods.render.ready() == [one])
        assert not pods.render.can_take(Wanted(avoid=frozenset({one})))


async def test_what_a_pod_can_do_is_asked_for() -> None:
    """Frames, and a derender of the plugin's."""
    async with scripted_pod() as bare, scripted_pod() as able, fleet([bare, able]) as pods:
        able.speaks = FRAMES
        pool = pods.render
        _, two = await all_ready(pool)
        assert pool.ready(Wanted(frames=True)) == pool.ready(Wanted(derenders=DERENDER_MESSAGES)) == [two]
        assert [pool.speaks_frames(pod) for pod in pool.pods] == [False, True]
        assert [pool.derenders(pod, DERENDER_MESSAGES) for pod in pool.pods] == [False, True]
        assert not pool.can_take(Wanted(derenders="/v1/other/derender/stream"))
        with pytest.raises(Unavailable, match="plugin"):
            pool.ready(Wanted(derenders="/v1/other/derender/stream"))
        able.healthy = False
        await eventually(lambda: pool.ready() != list(pool.pods))
        with pytest.raises(Unavailable, match="frames"):
            pool.ready(Wanted(frames=True))


async def test_a_pod_that_refuses_connections_is_left_out_at_once() -> None:
    """Until the next probe, which does not wait for its time."""
    async with scripted_pod() as pod, fleet([pod], probe_interval_s=600, models_interval_s=600) as pods:
        [client] = await all_ready(pods.render)
        probes = pod.probes
        pods.render.failed(client)
        assert not pods.render.can_take()
        await eventually(pods.render.can_take)
        assert pod.probes == probes + 1


async def test_media_are_refused_over_json_where_it_serves_them_wrongly() -> None:
    """By the model that is named, or the one that is taken without a name; text is served."""
    async with scripted_pod() as pod, fleet([pod], json_unsafe_models=("mine",)) as pods:
        pool = pods.render
        pod.models = serving("google/gemma-3-4b-it", "Qwen/Qwen3-VL-8B-Instruct", "mine")
        await all_ready(pool)
        for model in ("google/gemma-3-4b-it", "mine", None, ""):
            pool.refuse_unsafe_over_json(model, 0)
            with pytest.raises(BadRequest, match="plugin"):
                pool.refuse_unsafe_over_json(model, 1)
        pool.refuse_unsafe_over_json("Qwen/Qwen3-VL-8B-Instruct", 3)


async def test_what_is_in_flight_is_shown_in_the_metrics() -> None:
    """By pod, in all of its parts together."""
    metrics = ServiceMetrics()
    async with scripted_pod() as both, scripted_pod() as other, fleet([both], [both, other], metrics=metrics) as pods:
        await all_ready(pods.render)
        assert shown(metrics, both.url) == (0, 0)
        await all_ready(pods.generate)
        with pods.render.take() as rendering, pods.derender.take(), pods.generate.take() as generating:
            rendering.carry(3)
            generating.carry(4)
            assert generating.pod.pod.url == both.url
            assert shown(metrics, both.url) == (3, 7)
            assert shown(metrics, other.url) == (0, 0)
        assert shown(metrics, both.url) == (0, 0)


def shown(metrics: ServiceMetrics, url: str) -> tuple[float | None, ...]:
    names = ("rendergen_router_pod_requests_in_flight", "rendergen_router_pod_payload_bytes_in_flight")
    return tuple(metrics.registry.get_sample_value(name, {"pod": url}) for name in names)


async def test_the_fleet_is_ready_with_a_pod_of_each_role() -> None:
    """One alone serves nothing."""
    async with scripted_pod() as render, scripted_pod(healthy=False) as generate, fleet([render], [generate]) as pods:
        await eventually(pods.render.any_ready)
        assert not pods.any_ready()
        generate.healthy = True
        await eventually(pods.any_ready)


async def test_one_dead_pod_leaves_the_rest() -> None:
    """It holds nothing up, and is taken by nobody."""
    async with closed_port() as dead, scripted_pod() as pod, fleet([dead, pod]) as pods:
        await eventually(pods.render.any_ready)
        assert {taken_url(pods) for _ in range(4)} == {pod.url}


def taken_url(pods: Fleet) -> str:
    with pods.render.take() as taken:
        return taken.pod.pod.url


@pytest.mark.parametrize("missing", ["render pod", "generate pod"])
async def test_with_none_ready_the_caller_may_try_again(
    missing: str, render: ScriptedPod, generate: ScriptedPod, caller: aiohttp.ClientSession
) -> None:
    """503 with Retry-After that names the role; the router itself is not ready, but alive."""
    gone = render if missing == "render pod" else generate
    async with routed([render], [generate]) as url:
        gone.healthy = False

        async def says(path: str, status: int) -> bool:
            async with caller.get(url + path) as answer:
                return answer.status == status

        await eventually(lambda: says("/readyz", 503))
        async with caller.post(url + CHAT, data=REQUEST) as answer:
            assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
            assert missing in (await answer.json())["error"]["message"]
        assert await says("/livez", 200)
        assert generate.begun == []
        gone.healthy = True
        await eventually(lambda: says("/readyz", 200))
        async with caller.post(url + CHAT, data=REQUEST) as answer:
            assert answer.status == 200


async def test_requests_go_to_the_pods_in_turn(caller: aiohttp.ClientSession) -> None:
    """Each step of its own: every render pod renders and derenders as much as the others."""
    async with render_pod() as r1, render_pod() as r2, generate_pod() as g1, generate_pod() as g2, generate_pod() as g3:
        async with routed([r1, r2], [g1, g2, g3]) as url:
            for _ in range(12):
                async with caller.post(url + CHAT, data=REQUEST) as answer:
                    assert answer.status == 200
        assert [len(pod.bodies(GENERATE)) for pod in (g1, g2, g3)] == [4, 4, 4]
        assert [len(pod.bodies(CHAT + "/render")) for pod in (r1, r2)] == [6, 6]
        assert [len(pod.bodies(DERENDER)) for pod in (r1, r2)] == [6, 6]


async def test_pods_that_are_not_ready_get_nothing(caller: aiohttp.ClientSession) -> None:
    """And everything is served by the others."""
    async with render_pod() as r1, render_pod() as r2, generate_pod() as g1, generate_pod() as g2:
        r1.healthy = g2.healthy = False
        async with routed([r1, r2], [g1, g2], until_ready=False) as url:
            await eventually(lambda: is_ready(url, caller))
            for _ in range(4):
                async with caller.post(url + CHAT, data=REQUEST) as answer:
                    assert answer.status == 200
        assert r1.begun == g2.begun == []


async def is_ready(url: str, caller: aiohttp.ClientSession) -> bool:
    async with caller.get(url + "/readyz") as answer:
        return answer.status == 200


async def test_one_server_can_play_both_parts(render: ScriptedPod, caller: aiohttp.ClientSession) -> None:
    """One `vllm serve --enable-scale-out` is a render pod and a generate pod."""
    async with generate_pod() as generate:
        render.answers |= generate.answers
    async with routed([render], [render]) as url, caller.post(url + CHAT, data=REQUEST) as answer:
        assert answer.status == 200
    assert render.begun == [CHAT + "/render", GENERATE, DERENDER]
