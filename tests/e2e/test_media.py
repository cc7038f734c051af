"""Images of every kind: the answer is right, or a 400 says what is wrong with the image; never a 500."""

from __future__ import annotations

import asyncio
import base64
import textwrap
from typing import Any

import aiohttp
import pytest
from PIL import Image

from rendergen.launcher import Stack
from tests.e2e import odd_images
from tests.e2e.calls import CHAT, RED, RENDER, WHAT_COLOR, chat, encoded, image_part, noise, ok, post, solid, url_part
from tests.e2e.projection import projection
from tests.e2e.refusal import assert_refused

RED_PNG = encoded(solid())
RED_BASE64 = base64.b64encode(RED_PNG).decode()

REFUSED = {
    "PNG cut at 60 %": (image_part(odd_images.cut(encoded(noise(224, 1)))), "truncated|image"),
    "JPEG cut at 60 %": (image_part(odd_images.cut(encoded(noise(224, 1), "JPEG")), "image/jpeg"), "truncated|image"),
    "GIF cut at 60 %": (image_part(odd_images.cut(encoded(noise(224, 1), "GIF")), "image/gif"), "truncated|image"),
    "PNG with a broken chunk": (image_part(odd_images.png_with_broken_chunk()), "image"),
    "decompression bomb": (image_part(odd_images.bomb()), "pixels|too large"),
    "bomb below Pillow's limit": (image_part(odd_images.bomb(12000, 9000)), "truncated|image|pixels"),
    "1×10000": (image_part(encoded(solid(size=(1, 10000)))), "ratio|sides"),
    "10000×1": (image_part(encoded(solid(size=(10000, 1)))), "ratio|sides"),
    "HTML": (image_part(odd_images.HTML), "image"),
    "SVG": (image_part(odd_images.SVG, "image/svg+xml"), "image"),
    "nothing": (url_part("data:image/png;base64,"), "image"),
    "a URL that is no base64": (url_part("data:image/png,%89PNG"), "base64"),
    "base64 that is none": (url_part("data:image/png;base64,@@@@"), "base64"),
    "a data URL without a comma": (url_part("data:image/png;base64"), "data URL"),
    "unsupported DDS": (image_part(odd_images.unsupported_dds(), "image/vnd-ms.dds"), "image|format"),
    "broken AVIF": (image_part(odd_images.broken_avif(), "image/avif"), "image|decode"),
    "an empty URL": (url_part(""), "image"),
    "an ftp URL": (url_part("ftp://example.com/red.png"), "url"),
    "a relative URL": (url_part("red.png"), "url"),
    "a file URL": (url_part("file:///etc/hostname"), "data: URL"),
    "a file URL with a host": (url_part("file://etc/hostname"), "data: URL"),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_what_is_no_image_is_refused(stack: Stack, client: aiohttp.ClientSession, case: str) -> None:
    """400, or 413 for one too large, with the reason."""
    part, says = REFUSED[case]
    reply = await post(client, stack.router_url + CHAT, chat(part, WHAT_COLOR))
    assert_refused(reply, {400, 413}, says, stack=stack)


@pytest.mark.parametrize("case", REFUSED)
async def test_the_render_service_refuses_it_too(stack: Stack, client: aiohttp.ClientSession, case: str) -> None:
    """The same answer for a caller who renders itself."""
    part, says = REFUSED[case]
    reply = await post(client, stack.render_service_urls[0] + RENDER, chat(part, WHAT_COLOR))
    assert_refused(reply, {400, 413}, says, stack=stack)


async def test_the_services_go_on_after_broken_images(stack: Stack, client: aiohttp.ClientSession) -> None:
    """vLLM closes a connection after each failure of its own; no later request gets to feel that."""
    render = stack.render_service_urls[0] + RENDER
    bomb, good = chat(REFUSED["decompression bomb"][0], WHAT_COLOR), chat(WHAT_COLOR)

    async def alternate() -> list[int]:
        return [(await post(client, render, request)).status for _ in range(10) for request in (bomb, good)]

    for statuses in await asyncio.gather(*(alternate() for _ in range(8))):
        assert statuses == [400, 200] * 10


SERVED_AS_RED = {
    "JPEG called PNG": image_part(encoded(solid(), "JPEG", quality=95)),
    "PNG called JPEG": image_part(RED_PNG, "image/jpeg"),
    "no media type": url_part(f"data:;base64,{RED_BASE64}"),
    "a charset in the media type": url_part(f"data:image/png;charset=utf-8;base64,{RED_BASE64}"),
    "DATA: in capitals": url_part(f"DATA:image/png;base64,{RED_BASE64}"),
    "RGBA": image_part(encoded(solid().convert("RGBA"))),
    "palette": image_part(encoded(solid().convert("P", palette=Image.Palette.ADAPTIVE))),
    "palette with transparency": image_part(odd_images.palette_with_transparency()),
    "CMYK JPEG": image_part(encoded(solid().convert("CMYK"), "JPEG", quality=95), "image/jpeg"),
    "progressive JPEG": image_part(encoded(solid(), "JPEG", progressive=True, quality=95), "image/jpeg"),
    "WebP": image_part(encoded(solid(), "WEBP", lossless=True), "image/webp"),
    "BMP": image_part(encoded(solid(), "BMP"), "image/bmp"),
    "animated GIF": image_part(odd_images.animation("GIF"), "image/gif"),
    "animated WebP": image_part(odd_images.animation("WEBP"), "image/webp"),
}


@pytest.mark.parametrize("case", SERVED_AS_RED)
async def test_every_kind_of_red_is_red(stack: Stack, client: aiohttp.ClientSession, case: str) -> None:
    """The bytes decide what an image is, not its label; of an animation the first frame counts."""
    completion = await ok(client, stack.router_url + CHAT, chat(SERVED_AS_RED[case], WHAT_COLOR))
    assert completion["choices"][0]["message"]["content"] == "Red"


async def test_transparency_is_not_black(stack: Stack, client: aiohttp.ClientSession) -> None:
    """What shows through a transparent image is white."""
    clear = Image.new("RGBA", (224, 224), (0, 0, 0, 0))
    completion = await ok(client, stack.router_url + CHAT, chat(image_part(encoded(clear)), WHAT_COLOR))
    assert completion["choices"][0]["message"]["content"] == "White"


RIGHT_OR_REFUSED = {
    "1×1": image_part(encoded(solid(size=(1, 1)))),
    "26×28": image_part(encoded(solid(size=(26, 28)))),
    "500×19": image_part(encoded(solid(size=(500, 19)))),
    "1×199": image_part(encoded(solid(size=(1, 199)))),
    "base64 with line breaks": url_part("data:image/png;base64," + "\n".join(textwrap.wrap(RED_BASE64, 76))),
    "base64 with a space behind": url_part(f"data:image/png;base64,{RED_BASE64} "),
    "base64 without padding": url_part("data:image/png;base64," + RED_BASE64.rstrip("=")),
    "URL-safe base64": url_part("data:image/png;base64," + base64.urlsafe_b64encode(encoded(noise(64, 1))).decode()),
    "16 bits grey": image_part(encoded(Image.new("I;16", (64, 64), 40000))),
    "1 bit": image_part(encoded(Image.new("1", (64, 64), 1))),
}


@pytest.mark.parametrize("case", RIGHT_OR_REFUSED)
async def test_what_may_be_an_image_is_answered_as_by_one_server(
    stack: Stack, client: aiohttp.ClientSession, case: str
) -> None:
    """Served or refused as one server does it, and a refusal says that it is about the image."""
    request = chat(RIGHT_OR_REFUSED[case], WHAT_COLOR, max_tokens=16)
    ours = await post(client, stack.router_url + CHAT, request)
    theirs = await post(client, stack.vllm_engine_urls[0] + CHAT, request)
    assert ours.status == theirs.status, ours.text()
    if ours.status == 200:
        assert projection(ours.json()) == projection(theirs.json())
    else:
        assert_refused(ours, 400, "image|base64", stack=stack)


async def test_the_same_image_twice(stack: Stack, client: aiohttp.ClientSession) -> None:
    """Two items of one hash are two images still."""
    request = chat(RED, RED, "What colors are these images?")
    ours = await ok(client, stack.router_url + CHAT, request)
    assert ours["choices"][0]["message"]["content"] == "Red, red"
    assert projection(ours) == projection(await ok(client, stack.vllm_engine_urls[0] + CHAT, request))


async def test_more_images_than_the_model_allows(stack: Stack, client: aiohttp.ClientSession) -> None:
    """The limit is named."""
    reply = await post(client, stack.router_url + CHAT, chat(*[RED] * 5, WHAT_COLOR))
    assert_refused(reply, 400, r"\b4 image", stack=stack)


NOT_SERVED: dict[str, dict[str, Any]] = {
    "video": {"type": "video_url", "video_url": {"url": "data:video/mp4;base64,AAAA"}},
    "audio": {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
    "image_embeds": {"type": "image_embeds", "image_embeds": "AAAA"},
    "smell": {"type": "smell", "smell": "rose"},
}


@pytest.mark.parametrize("kind", NOT_SERVED)
async def test_kinds_of_media_that_the_model_does_not_take(
    stack: Stack, client: aiohttp.ClientSession, kind: str
) -> None:
    """The message names the kind."""
    reply = await post(client, stack.router_url + CHAT, chat(NOT_SERVED[kind], WHAT_COLOR))
    assert_refused(reply, 400, kind, stack=stack)
