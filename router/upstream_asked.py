"""What a request asks of its answer, of which vLLM's own derender does not see to everything."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Self

from rendergen.payload import Limits, PayloadError, Piece, index_members, set_members, split_list
from router.api_request import ApiRequest

# What a caller may also say in `sampling_params`; derender reads it in the request.
_OF_DECODING = ("skip_special_tokens", "spaces_between_special_tokens")

_ASSISTANT = "assistant"

# More messages than a conversation has; not more than a moment takes.
_MESSAGES = Limits(members=1 << 16)


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request asks of its answer.

    Attributes:
        is_chat: the answer has messages; else it has texts.
        choices: how many of them.
        stops: the strings that end the text.
        keeps_stops: what ended the text, string or token, is to be part of it.
        tool_choice: the ``tool_choice`` member, raw JSON, empty without one.
        one_tool_call: no more than one tool is to be called.
        token_ids: the answer is to have them.
        candidates: how many log probabilities of other tokens it is to have at each place; None if no number is given.
        role: of the messages.
        usage: a stream is to end with the usage.
        usage_all_along: each of its chunks is to have it.
    """

    is_chat: bool
    choices: int
    stops: tuple[str, ...]
    keeps_stops: bool
    tool_choice: bytes
    one_tool_call: bool
    token_ids: bool
    candidates: int | None
    role: str
    usage: bool
    usage_all_along: bool

    @classmethod
    def of(cls, request: ApiRequest) -> Self:
        """What ``request``, which has been rendered, asks for."""
        is_chat = request.api.name == "chat"
        stream_options = _object(request.given("stream_options"))
        usage = stream_options.get("include_usage") is True
        return cls(
            is_chat=is_chat,
            choices=whole_number(asked_of(request, "n")) or 1,
            stops=stop_strings(request),
            keeps_stops=_is_true(request, "include_stop_str_in_output"),
            tool_choice=(request.given("tool_choice") or b"") if is_chat else b"",
            one_tool_call=is_chat and request.given("parallel_tool_calls") == b"false",
            token_ids=request.is_true("return_token_ids"),
            candidates=whole_number(request.given("top_logprobs" if is_chat else "logprobs")),
            role=_role(request) if is_chat else "",
            usage=usage,
            usage_all_along=usage and stream_options.get("continuous_usage_stats") is True,
        )

    @property
    def names_a_tool(self) -> bool:
        """One tool is named that is to be called."""
        return self.tool_choice.startswith(b"{")


def asked_of(request: ApiRequest, name: str) -> bytes | None:
    """The sampling param ``name``, raw JSON, wherever the request says it; null counts as absent."""
    value = request.sampling_overrides.get(name) or request.given(name)
    return None if value == b"null" else value


def stop_strings(request: ApiRequest) -> tuple[str, ...]:
    """The strings that end the text."""
    given = _decoded(asked_of(request, "stop"))
    listed = given if isinstance(given, list) else [given]
    return tuple(each for each in listed if isinstance(each, str) and each)


def whole_number(raw: bytes | None) -> int | None:
    """The whole number, if it is one; vLLM takes "3" and 3.0 for one, too."""
    try:
        return None if raw is None else int(json.loads(raw))
    except (ValueError, TypeError, OverflowError, RecursionError):
        return None


def context(request: ApiRequest) -> tuple[Piece, ...]:
    """The request as derender is to see it: without its media, which it would take for nothing."""
    pieces = tuple(request.blanked())
    said = request.sampling_overrides
    changed = {name: said[name] for name in _OF_DECODING if name in said}
    return tuple(set_members(b"".join(pieces), changed)) if changed else pieces


def _is_true(request: ApiRequest, name: str) -> bool:
    override = request.sampling_overrides.get(name)
    return request.is_true(name) if override is None else override == b"true"


def _role(request: ApiRequest) -> str:
    """The assistant's, unless the answer goes on with the last message."""
    if request.given("add_generation_prompt") is None or request.is_true("add_generation_prompt"):
        return _ASSISTANT
    try:
        messages = request.document.value("messages")
        last = split_list(messages, _MESSAGES)[-1]
        message = messages[last.start : last.end]
        role = index_members(message)["role"]
    except (PayloadError, LookupError):
        return _ASSISTANT
    decoded = _decoded(message[role.start : role.end])
    return decoded if isinstance(decoded, str) else _ASSISTANT


def _decoded(raw: bytes | None) -> Any:
    try:
        return None if raw is None else json.loads(raw)
    except (ValueError, RecursionError):
        return None


def _object(raw: bytes | None) -> dict[str, Any]:
    decoded = _decoded(raw)
    return decoded if isinstance(decoded, dict) else {}
