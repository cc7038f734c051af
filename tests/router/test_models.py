import json

import aiohttp

from router.models import models_handler
from tests.support.fleet import all_ready, fleet, serving
from tests.support.polling import eventually
from tests.support.scripted_pod import scripted_pod
from tests.support.service import handler_served

ODD = b'{ "id" : "a\\u0062", "object":"model","created":1.50E+2,"permission":[ {"x":null} ],"root":"\xed\x95\x9c" }'


async def test_the_models_of_all_pods_are_listed_once(caller: aiohttp.ClientSession) -> None:
    """As the pods gave them, byte for byte; of two with one id, that of the first pool."""
    async with scripted_pod() as render, scripted_pod() as g1, scripted_pod() as g2:
        g1.models = b'{"data":[' + ODD + b' , {"id":"b"}]}'
        g2.models = serving("b", "ab", "c")
        render.models = b'{"data":[{"id":"c","of":"render"},{"id":"r"}]}'
        async with fleet([render], [g1, g2]) as pods:
            await all_ready(pods.render)
            await eventually(lambda: set(pods.generate.models()) == {"ab", "b", "c"})
            async with (
                handler_served(models_handler((pods.generate, pods.render))) as url,
                caller.get(url + "/path") as answer,
            ):
                body = await answer.read()
                assert (answer.status, answer.content_type) == (200, "application/json")
    assert ODD in body
    listed = json.loads(body)
    assert listed["object"] == "list"
    assert [model["id"] for model in listed["data"]] == ["ab", "b", "c", "r"]
    assert listed["data"][1:3] == [{"id": "b"}, {"id": "c", "object": "model"}]


async def test_it_answers_while_any_pod_serves(caller: aiohttp.ClientSession) -> None:
    """503 before one is ready; a dead pod, or a dead role, takes nothing but its own models away."""
    async with scripted_pod(healthy=False) as render, scripted_pod(healthy=False) as generate:
        render.models, generate.models = serving("m", "r"), serving("m", "g")
        async with fleet([render], [generate]) as pods:

            async def answered() -> tuple[int, list[str]]:
                async with caller.get(url + "/path") as answer:
                    said = await answer.json()
                return answer.status, [model["id"] for model in said.get("data", ())]

            async def becomes(status: int, *names: str) -> None:
                async def is_so() -> bool:
                    return await answered() == (status, list(names))

                await eventually(is_so)

            async with handler_served(models_handler((pods.generate, pods.render))) as url:
                assert await answered() == (503, [])
                render.healthy = True
                await becomes(200, "m", "r")
                generate.healthy = True
                await becomes(200, "m", "g", "r")
                render.healthy = False
                await becomes(200, "m", "g")
                generate.healthy = False
                await becomes(503)


async def test_pods_that_do_not_say_what_they_serve_list_nothing(caller: aiohttp.ClientSession) -> None:
    """They are ready, so that it is no failure."""
    async with scripted_pod() as pod, fleet([pod], [pod]) as pods:
        await all_ready(pods.render)
        async with (
            handler_served(models_handler((pods.generate, pods.render))) as url,
            caller.get(url + "/path") as answer,
        ):
            assert (answer.status, await answer.json()) == (200, {"object": "list", "data": []})
