import aiohttp
import pytest

from generate_service.app import make_app
from generate_service.settings import GenerateServiceSettings
from tests.support.polling import eventually
from tests.support.scripted_pod import Does, json_answer, scripted_pod, streamed
from tests.support.service import QUICK, app_served

PATHS = (
    ("POST", "/inference/v1/generate"),
    ("POST", "/inference/v1/abort_requests"),
    ("GET", "/v1/models"),
    ("GET", "/inference/v1/rendergen"),
)


@pytest.mark.parametrize(("method", "path"), PATHS)
async def test_vllm_s_paths_are_carried_as_they_are(method: str, path: str, caller: aiohttp.ClientSession) -> None:
    """The request to the same path, the answer back, and both unchanged."""
    async with scripted_pod({path: json_answer(b'{"answer": 1}')}) as pod:
        settings = GenerateServiceSettings(vllm_url=pod.url, **QUICK)
        async with app_served(await make_app(settings), settings) as url:
            body = b'{"a" : 1}' if method == "POST" else b""
            async with caller.request(method, url + path, data=body or None) as answer:
                assert await answer.read() == b'{"answer": 1}'
        assert [(seen.method, seen.path, seen.body) for seen in pod.seen] == [(method, path, body)]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/tokenize", "/load"])
async def test_nothing_else_is(path: str, caller: aiohttp.ClientSession) -> None:
    """The door of an engine takes payloads only, and does not show what vLLM leaves open."""
    async with scripted_pod({path: json_answer(b"{}")}) as pod:
        settings = GenerateServiceSettings(vllm_url=pod.url, **QUICK)
        async with app_served(await make_app(settings), settings) as url, caller.post(url + path, data=b"{}") as answer:
            assert answer.status == 404
        assert pod.begun == []


async def test_a_generation_has_a_budget(caller: aiohttp.ClientSession) -> None:
    """504 that names the engine, whose connection is closed: that is what aborts the generation."""
    path = PATHS[0][1]
    async with scripted_pod({path: streamed(Does.HANG)}) as pod:
        settings = GenerateServiceSettings(vllm_url=pod.url, **QUICK | {"generate_timeout_s": 0.5})
        async with app_served(await make_app(settings), settings) as url:
            async with caller.post(url + path, data=b"{}") as answer:
                assert answer.status == 504
                assert "engine" in (await answer.json())["error"]["message"]
            await eventually(lambda: pod.left == [path])
