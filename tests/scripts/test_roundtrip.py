"""The round-trip script against a small server that plays the endpoints: what it sends, prints and complains about.

That it works with vLLM is what the end-to-end tests show.
"""

from __future__ import annotations

import asyncio
import base64
import io
import re
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from PIL import Image
from tokenizers import AddedToken, Tokenizer, models

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "roundtrip.py"
VOCABULARY = {"<end>": 0, "Red": 1, "Green": 2}
RENDERED = {
    "request_id": "chatcmpl-1",
    "token_ids": [1, 2, 3],
    "features": {"mm_hashes": {"image": ["h"]}, "kwargs_data": {"image": ["A" * 1234]}},
    "sampling_params": {"top_p": 0.5, "max_tokens": 99},
    "model": "tiny",
    "unknown": {"kept": True},
}


@dataclass
class Endpoints:
    """A server with both endpoints, whose answers a test may replace."""

    root: str
    rendered: web.Response | None = None
    generated: web.Response | None = None
    received: dict[str, Any] = field(default_factory=dict)

    async def models(self, _: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "tiny", "root": self.root}, {"id": "other", "root": self.root}]})

    async def render(self, request: web.Request) -> web.Response:
        self.received["render"] = await request.json()
        return self.rendered or web.json_response(RENDERED)

    async def generate(self, request: web.Request) -> web.Response:
        self.received["generate"] = await request.json()
        return self.generated or web.json_response({"choices": [{"token_ids": [1, 0], "finish_reason": "stop"}]})

    async def derender(self, request: web.Request) -> web.Response:
        self.received["derender"] = await request.json()
        return web.json_response({"choices": [{"message": {"content": "Red"}}]})

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/v1/models", self.models)
        app.router.add_post("/v1/chat/completions/render", self.render)
        app.router.add_post("/inference/v1/generate", self.generate)
        app.router.add_post("/v1/chat/completions/derender", self.derender)
        return app


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("tokenizer")
    words = Tokenizer(models.WordLevel(VOCABULARY, unk_token="<end>"))
    words.add_special_tokens([AddedToken("<end>", special=True)])
    words.save(str(path / "tokenizer.json"))
    return str(path)


@pytest.fixture
async def endpoints(tokenizer: str) -> Endpoints:
    return Endpoints(tokenizer)


@pytest.fixture
async def url(endpoints: Endpoints) -> AsyncIterator[str]:
    server = TestServer(endpoints.app())
    await server.start_server()
    try:
        yield str(server.make_url("/"))
    finally:
        await server.close()


async def run(*flags: str) -> tuple[int | None, str, str]:
    """Exit code, standard output and standard error of the script."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(SCRIPT), *flags), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


async def test_it_says_what_each_step_gave(url: str) -> None:
    """Keys, number of token ids, and type and length of each feature; then the answer, and exit code 0."""
    code, out, err = await run("--base-url", url)
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "POST /v1/chat/completions/render",
        "  keys       request_id, token_ids, features, sampling_params, model, unknown",
        "  token ids  3",
        "  image      feature 1 of 1: str of 1,234 characters",
        "POST /inference/v1/generate",
        "  token ids  [1, 0] (stop)",
        "answer: Red",
    ]


async def test_only_sampling_params_are_set(url: str, endpoints: Endpoints) -> None:
    """What render gave goes to generate as it is, with the caller's sampling params merged into the rendered ones."""
    await run("--base-url", url, "--max-tokens", "16")
    expected = {**RENDERED, "sampling_params": {"top_p": 0.5, "max_tokens": 16, "temperature": 0.0}}
    assert endpoints.received["generate"] == expected
    assert list(endpoints.received["generate"]) == list(RENDERED)


async def test_the_image_is_red(url: str, endpoints: Endpoints) -> None:
    """By default 224×224 red pixels and the question that the tiny model knows."""
    await run("--base-url", url)
    image, text = endpoints.received["render"]["messages"][0]["content"]
    with Image.open(io.BytesIO(base64.b64decode(image["image_url"]["url"].partition(",")[2]))) as picture:
        assert (picture.format, picture.size, picture.getpixel((7, 9))) == ("PNG", (224, 224), (230, 25, 30))
    assert text["text"] == "What color is this image? Answer in one word."


async def test_another_image_prompt_and_model(url: str, endpoints: Endpoints, tmp_path: Path) -> None:
    """A file is sent as it is, with its own media type."""
    (tmp_path / "a.jpg").write_bytes(b"any bytes")
    code, _, _ = await run(
        *("--base-url", url, "--image", str(tmp_path / "a.jpg"), "--prompt", "Well?", "--model", "other")
    )
    assert code == 0
    request = endpoints.received["render"]
    image, text = request["messages"][0]["content"]
    assert request["model"] == "other"
    assert text["text"] == "Well?"
    assert image["image_url"]["url"] == "data:image/jpeg;base64," + base64.b64encode(b"any bytes").decode()


@pytest.mark.parametrize(("word", "code"), [("red", 0), ("RED", 0), ("Re", 1), ("ed", 1), ("R.d", 1)])
async def test_the_expected_word_is_a_word(word: str, code: int, url: str) -> None:
    """The answer is Red: part of a word is not enough (red is in colored too), capitals do not matter."""
    assert (await run("--base-url", url, "--expect", word))[0] == code


async def test_a_wrong_answer(url: str) -> None:
    """Exit code 1 when the expected word is not in the answer, and the answer is shown."""
    code, out, err = await run("--base-url", url, "--expect", "Green")
    assert code == 1
    assert "answer: Red" in out
    assert err == "roundtrip: expected 'Green' in the answer, got 'Red'\n"


def refusal(status: int, body: object) -> web.Response:
    return web.json_response(body, status=status)


@pytest.mark.parametrize(
    ("endpoint", "response", "line"),
    [
        (
            "rendered",
            refusal(400, {"error": {"message": "too many images", "type": "BadRequestError"}}),
            "/v1/chat/completions/render answered 400: too many images",
        ),
        ("rendered", refusal(401, {"error": "Unauthorized"}), "/v1/chat/completions/render answered 401: Unauthorized"),
        ("generated", web.Response(status=404, text="Not Found"), "/inference/v1/generate answered 404: Not Found"),
        ("generated", web.Response(status=503), "/inference/v1/generate answered 503: (no message)"),
        ("generated", web.Response(text="oh"), "/inference/v1/generate gave no usable answer: Expecting value"),
        (
            "generated",
            refusal(200, {"choices": []}),
            "the server's answer is not what these endpoints give: IndexError",
        ),
        ("rendered", refusal(200, [1]), "the server's answer is not what these endpoints give:"),
    ],
)
async def test_what_the_server_says_is_told(
    url: str, endpoints: Endpoints, endpoint: str, response: web.Response, line: str
) -> None:
    """One line with the path, the status and the server's own message; exit code 1, no traceback."""
    setattr(endpoints, endpoint, response)
    code, _, err = await run("--base-url", url)
    assert code == 1
    assert err.startswith(f"roundtrip: {line}")
    assert len(err.splitlines()) == 1


async def test_nothing_listens(unused_tcp_port: int) -> None:
    """One line with the address."""
    address = f"http://127.0.0.1:{unused_tcp_port}"
    code, _, err = await run("--base-url", address)
    assert (code, err) == (1, f"roundtrip: nothing answers at {address}: [Errno 111] Connection refused\n")


async def test_a_model_that_is_not_served(url: str) -> None:
    """The line lists those that are."""
    code, _, err = await run("--base-url", url, "--model", "huge")
    assert (code, err) == (1, "roundtrip: model huge is not served here; it has tiny, other\n")


async def test_no_tokenizer(url: str, endpoints: Endpoints, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server's directory may be another machine's: the line says how to name one's own."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    endpoints.root = str(tmp_path / "elsewhere")
    code, _, err = await run("--base-url", url)
    assert code == 1
    assert err.startswith("roundtrip: no tokenizer: ")
    assert err.endswith("; give its directory or name with --tokenizer\n")


async def test_a_server_that_does_not_say_where_its_tokenizer_is_derenders(url: str, endpoints: Endpoints) -> None:
    """As the router does not: the token that ended the answer is left out."""
    endpoints.root = "tiny"
    code, out, _ = await run("--base-url", url)
    assert (code, out.splitlines()[-1]) == (0, "answer: Red")
    assert endpoints.received["derender"] == {
        "model": "tiny",
        "generate_response": {"choices": [{"token_ids": [1], "finish_reason": "stop"}]},
        "chat_request": endpoints.received["render"],
        "prompt_tokens": 3,
        "prompt_token_ids": [1, 2, 3],
    }


async def test_a_tokenizer_of_ones_own(url: str, endpoints: Endpoints, tokenizer: str, tmp_path: Path) -> None:
    """--tokenizer is used before what the server says."""
    endpoints.root = str(tmp_path / "elsewhere")
    assert (await run("--base-url", url, "--tokenizer", tokenizer))[0] == 0


async def test_a_missing_image(url: str, tmp_path: Path) -> None:
    """A file that cannot be read is one line."""
    code, _, err = await run("--base-url", url, "--image", str(tmp_path / "none.png"))
    assert (code, err) == (1, f"roundtrip: cannot read {tmp_path}/none.png: No such file or directory\n")


def test_it_uses_nothing_of_the_library() -> None:
    """Any client can copy it: it imports no package of this repository."""
    imported = re.findall(r"^\s*(?:import|from) (\w+)", SCRIPT.read_text(), re.MULTILINE)
    assert "urllib" in imported
    assert not {"rendergen", "router", "render_service", "generate_service"} & set(imported)
