import aiohttp
import pytest

from rendergen.service.door import Route, make_door
from tests.support.polling import eventually
from tests.support.scripted_pod import Does, json_answer, scripted_pod, streamed
from tests.support.service import QUICK, PlainSettings, app_served

ROUTES = (Route("POST", "/a", 15), Route("POST", "/slow", 0.1), Route("GET", "/b", 15))


async def test_a_door_carries_its_routes_and_no_others(caller: aiohttp.ClientSession) -> None:
    """A path that the server has and the table has not is a 404 here."""
    settings = PlainSettings(**QUICK)
    answers = {path: json_answer(path.encode()) for path in ("/a", "/b", "/c")}
    async with scripted_pod(answers) as pod:
        async with app_served(await make_door("engine", pod.url, ROUTES, settings), settings) as url:
            async with caller.post(url + "/a", data=b"x") as answer:
                assert await answer.read() == b"/a"
            async with caller.get(url + "/b?c=d") as answer:
                assert await answer.read() == b"/b"
            for method, path, status in (("GET", "/a", 405), ("POST", "/b", 405), ("POST", "/c", 404)):
                async with caller.request(method, url + path) as answer:
                    assert answer.status == status
        assert [(seen.method, seen.path, seen.body) for seen in pod.seen] == [("POST", "/a", b"x"), ("GET", "/b", b"")]


async def test_each_route_has_its_budget(caller: aiohttp.ClientSession) -> None:
    """504 that names the server by its role."""
    settings = PlainSettings(**QUICK)
    async with scripted_pod() as pod:
        pod.answers["/slow"] = streamed(Does.HANG)
        async with (
            app_served(await make_door("engine", pod.url, ROUTES, settings), settings) as url,
            caller.post(url + "/slow", data=b"x") as answer,
        ):
            assert answer.status == 504
            assert "engine" in (await answer.json())["error"]["message"]


@pytest.mark.parametrize("path", ["/readyz", "/health"])
async def test_a_door_is_ready_when_its_server_is(path: str, caller: aiohttp.ClientSession) -> None:
    """Readiness follows the server's health; liveness does not."""
    settings = PlainSettings(**QUICK | {"probe_timeout_s": 0.1})
    async with (
        scripted_pod(healthy=False) as pod,
        app_served(await make_door("engine", pod.url, ROUTES, settings), settings) as url,
    ):

        async def says(asked: str, status: int) -> bool:
            async with caller.get(url + asked) as answer:
                return answer.status == status

        for healthy, status in ((False, 503), (True, 200), (None, 503)):
            pod.healthy, probes = healthy, pod.probes
            await eventually(lambda before=probes: pod.probes > before + 1)
            await eventually(lambda expected=status: says(path, expected))
            assert await says("/livez", 200)


async def test_a_door_leaves_nothing_behind(caller: aiohttp.ClientSession) -> None:
    """When it is shut, its connections to the server are closed."""
    settings = PlainSettings(**QUICK)
    async with scripted_pod({"/a": json_answer(b"{}")}) as pod:
        async with app_served(await make_door("engine", pod.url, ROUTES, settings), settings) as url:
            async with caller.post(url + "/a", data=b"x") as answer:
                await answer.read()
            assert pod.connections
        await eventually(lambda: pod.connections == 0)
