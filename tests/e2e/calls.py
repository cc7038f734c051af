"""Requests as a caller sends them, and what comes back."""

from __future__ import annotations

import base64
import io
import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
from PIL import Image

from rendergen.tiny_model import TINY_MODEL_NAME
from rendergen.tiny_model.abilities import ONE_WORD_QUESTIONS

CHAT = "/v1/chat/completions"
RENDER = "/v1/chat/completions/render"
DERENDER = "/v1/chat/completions/derender"
GENERATE = "/inference/v1/generate"

WHAT_COLOR = ONE_WORD_QUESTIONS[0]


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP answer, read to its end."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    def text(self) -> str:
        return self.body.decode()


async def post(client: aiohttp.ClientSession, url: str, body: Any, headers: Mapping[str, str] | None = None) -> Reply:
    """POST ``body``: bytes or a stream as they are, anything else as JSON."""
    if not isinstance(body, bytes) and not hasattr(body, "__aiter__"):
        body = json.dumps(body).encode()
    if isinstance(body, bytes):
        body = io.BytesIO(body)  # aiohttp warns of large bodies that are bytes
    all_headers = {"Content-Type": "application/json", **(headers or {})}
    async with client.post(url, data=body, headers=all_headers) as answer:
        return Reply(answer.status, answer.headers, await answer.read())


async def ok(client: aiohttp.ClientSession, url: str, body: Any) -> Any:
    """POST ``body`` and give the JSON of the answer, which must be a success."""
    reply = await post(client, url, body)
    assert reply.status == 200, reply.text()
    return reply.json()


def chat(*parts: str | dict[str, Any], **members: Any) -> dict[str, Any]:
    """A chat request of one user's message, at temperature 0 unless ``members`` say otherwise."""
    content = [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts]
    return {
        "model": TINY_MODEL_NAME,
        "messages": [{"role": "user", "content": content}],
        "temperature": 0,
        **members,
    }


def image_part(data: bytes, media_type: str = "image/png") -> dict[str, Any]:
    """A content part that carries an image's bytes as a ``data:`` URL."""
    return url_part(f"data:{media_type};base64,{base64.b64encode(data).decode()}")


def url_part(url: str) -> dict[str, Any]:
    """A content part that names an image by its URL."""
    return {"type": "image_url", "image_url": {"url": url}}


def encoded(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    """The image as a file's bytes."""
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def solid(color: tuple[int, int, int] = (255, 0, 0), size: tuple[int, int] = (224, 224)) -> Image.Image:
    """One colour all over: red if not told otherwise."""
    return Image.new("RGB", size, color)


def noise(side: int, seed: int) -> Image.Image:
    """A square of noise: nothing in it compresses, and no two are the same."""
    return Image.frombytes("RGB", (side, side), random.Random(seed).randbytes(3 * side * side))


RED = image_part(encoded(solid()))
