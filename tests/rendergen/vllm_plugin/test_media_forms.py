"""What the scan for media takes for a medium, against what vLLM itself does with the same requests."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from urllib3.util import parse_url
from vllm.entrypoints.anthropic.protocol import AnthropicMessagesRequest
from vllm.entrypoints.anthropic.serving import AnthropicServingMessages
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.responses.protocol import ResponsesRequest
from vllm.entrypoints.openai.responses.utils import construct_input_messages
from vllm.exceptions import VLLMValidationError
from vllm.renderers.chat_utils import BaseMultiModalContentParser, _parse_chat_message_content

from rendergen.payload import MediaScanner, Medium

# How vLLM ends a request that it cannot use, some of them by accident.
REFUSALS = (VLLMValidationError, ValueError, AttributeError, TypeError, LookupError, AssertionError)


class Recorder(BaseMultiModalContentParser):
    """Stands where vLLM fetches and decodes, and notes what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.located: list[str] = []
        self.decoded: list[str] = []

    @property
    def model_config(self) -> Any:
        return SimpleNamespace(enable_prompt_embeds=False)

    def create_parser(self, **_: Any) -> Recorder:
        return self

    def _locate(self, value: Any, uuid: str | None = None) -> None:
        values = value if isinstance(value, list) else [value]
        self.located += [text for text in values if isinstance(text, str) and text]

    def _decode(self, value: Any, uuid: str | None = None) -> None:
        values = value.values() if isinstance(value, dict) else [value]
        self.decoded += [text for text in values if isinstance(text, str) and text]

    parse_image = parse_image_pil = parse_audio = parse_video = _locate
    parse_image_embeds = parse_audio_embeds = parse_video_embeds = _decode

    def parse_input_audio(self, input_audio: Any, uuid: str | None = None) -> None:
        self._decode(input_audio.get("data") if input_audio else None)

    def parse_prompt_embeds(self, data: str) -> None:
        """No medium."""


def chat_messages(api: str, conversation: Any) -> Iterable[Any]:
    """The messages that vLLM renders for a request to the API; none where it refuses the request."""
    try:
        match api:
            case "chat":
                return ChatCompletionRequest.model_validate({"model": "m", "messages": conversation}).messages
            case "messages":
                asked = {"model": "m", "max_tokens": 1, "messages": conversation}
                request = AnthropicMessagesRequest.model_validate(asked)
                return AnthropicServingMessages.to_chat_completion_request(request).messages
            case _:
                responses = ResponsesRequest.model_validate({"model": "m", "input": conversation})
                return construct_input_messages(request_input=responses.input)
    except REFUSALS:
        return []


def taken_by_vllm(api: str, conversation: Any) -> Recorder:
    """The strings that vLLM takes for media."""
    recorder = Recorder()
    for message in chat_messages(api, conversation):
        try:
            _parse_chat_message_content(message, recorder, "openai", interleave_strings=False)  # type: ignore[arg-type]
        except REFUSALS:
            continue
    return recorder


def found(conversation: Any) -> list[tuple[str, Medium]]:
    """The media that the scan finds."""
    document = json.dumps(conversation).encode()
    scanner = MediaScanner()
    scanner.feed(document, 0, 0)
    return [(json.loads(b'"%b"' % document[m.span.start : m.span.end]), m) for m in scanner.found]


def user(*parts: Any) -> list[Any]:
    """A conversation of one turn."""
    return [{"role": "user", "content": list(parts)}]


URL = "http://x/y"
INPUT_IMAGE = {"type": "input_image", "image_url": URL}
TAKEN: dict[str, tuple[str, Any]] = {
    "image_url": ("chat", user({"type": "image_url", "image_url": {"url": URL}})),
    "image_url, string": ("chat", user({"image_url": URL})),
    "image_url, uuid": ("chat", user({"type": "image_url", "image_url": URL, "uuid": "u"})),
    "text, uuid": ("chat", user({"type": "text", "text": "a", "image_url": URL, "uuid": "u"})),
    "unknown type, uuid": ("chat", user({"type": "x", "image_url": {"url": URL}, "uuid": "1"})),
    "input_image": ("chat", user({"type": "input_image", "image_url": URL, "detail": "auto"})),
    "audio_url": ("chat", user({"type": "audio_url", "audio_url": {"url": URL}})),
    "video_url": ("chat", user({"type": "video_url", "video_url": {"url": URL}})),
    "input_audio": ("chat", user({"type": "input_audio", "input_audio": {"data": URL, "format": "wav"}})),
    "image_embeds": ("chat", user({"type": "image_embeds", "image_embeds": URL})),
    "image_embeds, several": ("chat", user({"type": "image_embeds", "image_embeds": {"a": URL}})),
    "tool": ("chat", [{"role": "tool", "tool_call_id": "a", "content": user({"image_url": URL})[0]["content"]}]),
    "anthropic": ("messages", user({"type": "image", "source": {"type": "url", "url": URL}})),
    "anthropic, tool": (
        "messages",
        user(
            {
                "type": "tool_result",
                "tool_use_id": "a",
                "content": [{"type": "image", "source": {"type": "url", "url": URL}}],
            }
        ),
    ),
    "responses": ("responses", user(INPUT_IMAGE)),
    "responses, function": (
        "responses",
        [{"type": "function_call_output", "call_id": "a", "output": [{**INPUT_IMAGE, "detail": "auto"}]}],
    ),
}


@pytest.mark.parametrize("case", TAKEN.values(), ids=TAKEN)
def test_forms_that_vllm_takes(case: tuple[str, Any]) -> None:
    """This table is true of this vLLM, and the scan finds each."""
    api, conversation = case
    taken = taken_by_vllm(api, conversation)
    assert taken.located + taken.decoded == [URL]
    assert [text for text, _ in found(conversation)] == [URL]


strings = st.sampled_from([URL, "data:x", "file:///x", "u", ""])
parts_inside = st.deferred(lambda: st.lists(parts, max_size=2))
boxes = st.one_of(
    strings,
    st.none(),
    st.fixed_dictionaries(
        {},
        optional={
            "url": strings,
            "data": strings,
            "type": st.sampled_from(["url", "base64"]),
            "format": st.just("wav"),
            "detail": st.just("auto"),
            "media_type": strings,
        },
    ),
    st.lists(strings, max_size=2),
)
MEMBERS = [f"{kind}_{form}" for kind in ("image", "audio", "video") for form in ("url", "embeds")]
TYPES = [*MEMBERS, "input_image", "input_audio", "image_pil", "text", "input_text", "image", "tool_result", "tool_use"]
parts = st.one_of(
    st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(TYPES),
            "uuid": st.sampled_from(["u", None]),
            "text": strings,
            "source": boxes,
            "content": st.one_of(strings, parts_inside),
            "tool_use_id": st.just("t"),
            "input": st.dictionaries(st.sampled_from(MEMBERS), boxes, max_size=1),
            "detail": st.just("auto"),
            **{name: boxes for name in [*MEMBERS, "image_pil", "input_audio"]},
        },
    ),
    st.builds(
        lambda kind, box: {"type": kind, kind: box}, st.sampled_from([*MEMBERS, "image_pil", "input_audio"]), boxes
    ),
    st.builds(lambda box: {"type": "image", "source": box}, boxes),
    strings,
)
turns = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "tool", "developer"]), "content": st.one_of(strings, parts_inside)},
    optional={"tool_call_id": st.just("t"), "type": st.just("message"), "image_url": boxes, "reasoning": strings},
)
outputs = st.fixed_dictionaries(
    {"type": st.just("function_call_output"), "call_id": st.just("c"), "output": parts_inside}
)


@settings(derandomize=True, deadline=None, max_examples=500)
@given(st.sampled_from(["chat", "messages", "responses"]), st.lists(st.one_of(turns, turns, outputs), max_size=2))
def test_nothing_that_vllm_takes_is_missed(api: str, conversation: Any) -> None:
    """Whatever a request is made of, types and members that contradict each other too."""
    taken, media = taken_by_vllm(api, conversation), found(conversation)
    fetched = Counter(text for text in taken.located if not text.lower().startswith("data:"))
    assert not fetched - Counter(text for text, medium in media if not medium.inline)
    assert not Counter(taken.decoded) - Counter(text for text, medium in media if medium.inline)


@settings(derandomize=True, deadline=None, max_examples=500)
@given(
    st.lists(st.sampled_from([*"ab.:/@\\?#%[] \t\n", "http", "https", "://", "\u3002", "é"]), max_size=12).map("".join)
)
def test_host_is_the_one_that_vllm_compares(text: str) -> None:
    for _, medium in found([{"image_url": text}]):
        if medium.host is not None:
            assert parse_url(text).hostname == medium.host
