import aiohttp
import pytest

from rendergen.service.errors import Unavailable
from rendergen.service.health import PodWatch
from rendergen.service.metrics import ServiceMetrics
from rendergen.service.pods import Pod, PodClient, open_session
from router.choice import InTurn
from router.pool import Pool
from tests.support.polling import eventually
from tests.support.router import CHAT, DERENDER, GENERATE, REQUEST, generate_pod, render_pod, routed
from tests.support.scripted_pod import ScriptedPod, scripted_pod
from tests.support.service import QUICK, PlainSettings


async def test_only_ready_pods_are_chosen() -> None:
    """None before the first probe; then those that are ready, as they come and go."""
    settings = PlainSettings(**QUICK | {"probe_timeout_s": 0.1})
    async with scripted_pod() as first, scripted_pod(healthy=False) as second, open_session(settings) as session:
        pods = [PodClient(session, Pod("render pod", pod.url)) for pod in (first, second)]
        watch = PodWatch(pods, settings, ServiceMetrics())
        pool = Pool("render pod", pods, watch, InTurn())
        assert not pool.any_ready()
        for ask in (pool.choose, pool.ready):
            with pytest.raises(Unavailable, match="No render pod is ready"):
                ask()
        async with watch.running():
            await eventually(pool.any_ready)
            assert {pool.choose() for _ in range(4)} == {pods[0]}
            second.healthy = True
            await eventually(lambda: watch.is_ready(pods[1]))
            assert [pool.choose() for _ in range(4)] in (pods * 2, pods[::-1] * 2)
            first.healthy = None
            await eventually(lambda: not watch.is_ready(pods[0]))
            assert pool.ready() == [pods[1]]


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
