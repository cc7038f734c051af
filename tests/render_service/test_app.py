import aiohttp
import pytest

from render_service.app import make_app
from render_service.settings import RenderServiceSettings
from tests.support.scripted_pod import Does, json_answer, scripted_pod, streamed
from tests.support.service import QUICK, app_served

APIS = ("/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses")
PATHS = (
    ("POST", "/v1/chat/completions/render"),
    ("POST", "/v1/completions/render"),
    ("POST", "/v1/messages/render"),
    ("POST", "/v1/responses/render"),
    ("POST", "/v1/chat/completions/derender"),
    ("POST", "/v1/completions/derender"),
    *(("POST", f"{api}/derender/stream") for api in APIS),
    ("GET", "/v1/models"),
    ("GET", "/inference/v1/rendergen"),
)


@pytest.mark.parametrize(("method", "path"), PATHS)
async def test_vllm_s_paths_are_carried_as_they_are(method: str, path: str, caller: aiohttp.ClientSession) -> None:
    """The request to the same path, the answer back, and both unchanged."""
    async with scripted_pod({path: json_answer(b'{"answer": 1}')}) as pod:
        settings = RenderServiceSettings(vllm_url=pod.url, **QUICK)
        async with app_served(await make_app(settings), settings) as url:
            body = b'{"a" : 1}' if method == "POST" else b""
            async with caller.request(method, url + path, data=body or None) as answer:
                assert await answer.read() == b'{"answer": 1}'
        assert [(seen.method, seen.path, seen.body) for seen in pod.seen] == [(method, path, body)]


OTHERS = (*APIS, "/inference/v1/generate", "/tokenize", "/v1/messages/derender", "/v1/messages/count_tokens")


@pytest.mark.parametrize("path", OTHERS)
async def test_nothing_else_is(path: str, caller: aiohttp.ClientSession) -> None:
    """The door of a render server does not generate, and does not show what vLLM leaves open."""
    async with scripted_pod({path: json_answer(b"{}")}) as pod:
        settings = RenderServiceSettings(vllm_url=pod.url, **QUICK)
        async with app_served(await make_app(settings), settings) as url, caller.post(url + path, data=b"{}") as answer:
            assert answer.status == 404
        assert pod.begun == []


BUDGETS = {
    "/v1/chat/completions/render": "render_timeout_s",
    "/v1/responses/render": "render_timeout_s",
    "/v1/chat/completions/derender": "derender_timeout_s",
    "/v1/chat/completions/derender/stream": "derender_stream_timeout_s",
    "/v1/messages/derender/stream": "derender_stream_timeout_s",
}


@pytest.mark.parametrize(("path", "budget"), BUDGETS.items())
async def test_render_and_derender_have_their_own_budgets(
    path: str, budget: str, caller: aiohttp.ClientSession
) -> None:
    """504 that names the render server."""
    async with scripted_pod({path: streamed(Does.HANG)}) as pod:
        settings = RenderServiceSettings(vllm_url=pod.url, **QUICK | {budget: 0.5})
        async with app_served(await make_app(settings), settings) as url, caller.post(url + path, data=b"{}") as answer:
            assert answer.status == 504
            assert "render server" in (await answer.json())["error"]["message"]
