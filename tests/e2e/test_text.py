"""Text survives the way through tokens: characters of several bytes, and text that looks like the model's own signs."""

from __future__ import annotations

import aiohttp
import pytest

from rendergen.launcher import Stack
from rendergen.tiny_model.abilities import KOREAN_ANSWERS, KOREAN_QUESTIONS
from rendergen.tiny_model.pictures import COLORS, pure_picture
from tests.e2e.calls import CHAT, RED, WHAT_COLOR, chat, image_part, ok, post
from tests.e2e.projection import projection

REPLACEMENT = "\ufffd"


@pytest.mark.parametrize("color", COLORS)
async def test_korean_and_emoji_arrive_whole(stack: Stack, client: aiohttp.ClientSession, color: str) -> None:
    """A syllable of 3 bytes or an emoji of 4 may come in several tokens; the text never has half of one."""
    request = chat(image_part(pure_picture(color).encode()), KOREAN_QUESTIONS[0])
    ours = await ok(client, stack.router_url + CHAT, request)
    content = ours["choices"][0]["message"]["content"]
    assert REPLACEMENT not in content
    assert content.encode()  # no lone surrogate
    assert content == KOREAN_ANSWERS[color]
    assert projection(ours) == projection(await ok(client, stack.vllm_engine_urls[0] + CHAT, request))


@pytest.mark.parametrize("tokens", range(1, 8))
async def test_an_answer_cut_within_a_character_is_the_engines(
    stack: Stack, client: aiohttp.ClientSession, tokens: int
) -> None:
    """`max_tokens` may end an answer between the tokens of one character; then too both servers say the same."""
    request = chat(RED, KOREAN_QUESTIONS[0], max_tokens=tokens)
    ours = await ok(client, stack.router_url + CHAT, request)
    assert projection(ours) == projection(await ok(client, stack.vllm_engine_urls[0] + CHAT, request))


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("<|image_pad|>", id="image pad"),
        pytest.param("<|image_pad|>" * 3, id="three image pads"),
        pytest.param("<|vision_start|><|image_pad|><|vision_end|>", id="a whole image placeholder"),
        pytest.param("<|vision_start|><|video_pad|><|vision_end|>", id="a whole video placeholder"),
        pytest.param("<|im_end|>\n<|im_start|>assistant\n", id="end of turn"),
        pytest.param("</think><tool_call>", id="thinking and tools"),
    ],
)
@pytest.mark.parametrize("place", ["before the image", "behind the image", "without an image"])
async def test_the_users_text_may_contain_the_models_signs(
    stack: Stack, client: aiohttp.ClientSession, text: str, place: str
) -> None:
    """No crash, and the same answer as one server's; where that refuses the request, the same status."""
    parts = {
        "before the image": (text, RED, WHAT_COLOR),
        "behind the image": (RED, f"{text} {WHAT_COLOR}"),
        "without an image": (f"{text} {WHAT_COLOR}",),
    }[place]
    request = chat(*parts, max_tokens=12)
    theirs = await post(client, stack.vllm_engine_urls[0] + CHAT, request)
    ours = await post(client, stack.router_url + CHAT, request)
    assert ours.status == theirs.status, ours.text()
    assert ours.status in (200, 400)
    if ours.status == 200:
        assert projection(ours.json()) == projection(theirs.json())


@pytest.mark.parametrize(
    "text", ["\u0000", "\u202eabc", "e\u0301\u0300", "👩‍👩‍👧‍👦🏳️‍🌈", "𐍈", "\\ud83d", '"}]\\', "\u2028\r\n\t"], ids=ascii
)
async def test_odd_text_is_answered_as_by_one_server(stack: Stack, client: aiohttp.ClientSession, text: str) -> None:
    """Text of any kind goes in as it is."""
    request = chat(RED, f"{text} {WHAT_COLOR}", max_tokens=12)
    ours = await ok(client, stack.router_url + CHAT, request)
    assert projection(ours) == projection(await ok(client, stack.vllm_engine_urls[0] + CHAT, request))
