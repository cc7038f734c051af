"""Between generate's tokens and the completion: what vLLM's derender is asked, and what is put right in its answer.

vLLM 0.32's derender differs from its own ``/v1/chat/completions`` in a few things that can be put right from here:

- With a tool or reasoning parser it decodes the token that ended the generation too, so that ``<|im_end|>`` ends the
  text. That token is held back from it, and counted again afterwards.
- It keeps generate's finish reason where a tool was called, which is ``stop``. OpenAI's is ``tool_calls``.
- It names the completion by generate's request id.

All of it is done on raw JSON: what is not put right passes unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from rendergen.payload import Limits, MalformedJson, Piece, TokenIds, index_members, set_members, split_list
from router.chat_request import ChatRequest

# Derender reads the end of the prompt to continue its text, a few tokens far.
PROMPT_TAIL_TOKENS = 32

# vLLM's own bound on `n` is 16,384.
_CHOICES = Limits(members=1 << 16)

_SPACE = b" \t\r\n"


@dataclass(frozen=True, slots=True)
class Prompt:
    """What derender must know of the prompt.

    Attributes:
        tokens: how many it has.
        tail: the last of them, raw JSON numbers with commas between them.
    """

    tokens: int
    tail: bytes

    @classmethod
    def of_json(cls, token_ids: bytes) -> Self:
        """Of a raw JSON list."""
        # Counted and cut without taking it apart: a prompt may have a hundred thousand tokens.
        listed = token_ids.strip(_SPACE)[1:-1].strip(_SPACE)
        tail = listed.rsplit(b",", PROMPT_TAIL_TOKENS)[-PROMPT_TAIL_TOKENS:]
        return cls(listed.count(b",") + 1 if listed else 0, b",".join(tail))

    @classmethod
    def of_frames(cls, token_ids: TokenIds) -> Self:
        """Of what is in the head of a payload in frames."""
        return cls(len(token_ids), b",".join(b"%d" % token for token in token_ids.last(PROMPT_TAIL_TOKENS)))


@dataclass(frozen=True, slots=True)
class GeneratedChoice:
    """One of generate's choices.

    Attributes:
        raw: the choice, a raw JSON object.
        tokens: its token ids, raw JSON numbers.
        ends_in_stop_token: the last token ended the generation and is no part of the text.
    """

    raw: bytes
    tokens: tuple[bytes, ...]
    ends_in_stop_token: bool

    @classmethod
    def read(cls, raw: bytes) -> Self:
        """Raises: PayloadError: it is no object."""
        members = _members(raw)
        stopped = members.get("finish_reason") == b'"stop"'
        by_string = members.get("stop_reason", b"null").startswith(b'"')
        return cls(raw, _items(members.get("token_ids")), stopped and not by_string)

    def text_tokens(self) -> list[Piece]:
        """The choice with only those tokens that are text; derender refuses none at all, so one always stays."""
        if not self.ends_in_stop_token or len(self.tokens) < 2:
            return [self.raw]
        return set_members(self.raw, {"token_ids": _list(self.tokens[:-1])})

    @property
    def is_empty(self) -> bool:
        """Nothing was generated but the token that ended it."""
        return self.ends_in_stop_token and len(self.tokens) == 1


@dataclass(frozen=True, slots=True)
class Generated:
    """Generate's answer.

    Attributes:
        raw: the answer, a raw JSON object.
        choices: its choices.
    """

    raw: bytes
    choices: tuple[GeneratedChoice, ...]

    @classmethod
    def read(cls, raw: bytes) -> Self:
        """Raises: PayloadError: it is no object with a list of choices, at least one."""
        choices = _elements(_members(raw), "choices")
        if not choices:
            raise MalformedJson(0, "there are no choices")
        return cls(raw, tuple(GeneratedChoice.read(choice) for choice in choices))

    def completion_tokens(self) -> int:
        """How many tokens were generated, those that ended it included."""
        return sum(len(choice.tokens) for choice in self.choices)

    def for_derender(self, *, keep_stop_tokens: bool) -> bytes:
        """The answer as derender is to see it."""
        if keep_stop_tokens:
            return self.raw
        choices = (b"".join(choice.text_tokens()) for choice in self.choices)
        return b"".join(set_members(self.raw, {"choices": b"[%b]" % b",".join(choices)}))


def derender_request(chat: ChatRequest, prompt: Prompt, generated: Generated) -> tuple[bytes, ...]:
    """The body of the derender request: the caller's body, generate's answer, and what it must know of the prompt.

    Args:
        chat: the caller's request.
        prompt: what the tokens continue.
        generated: generate's answer.
    """
    head = b'{"stream":false,"model":%b,"prompt_tokens":%d,"prompt_token_ids":[%b],"generate_response":' % (
        chat.model,
        prompt.tokens,
        prompt.tail,
    )
    answer = generated.for_derender(keep_stop_tokens=chat.keeps_stop_tokens)
    return (head, answer, b',"chat_request":', *chat.body, b"}")


def completion(chat: ChatRequest, answer: bytes, generated: Generated, completion_id: str) -> list[Piece]:
    """The completion for the caller, out of derender's.

    Args:
        chat: the caller's request.
        answer: derender's answer, a raw JSON object.
        generated: generate's.
        completion_id: the completion's ``id``.

    Raises:
        PayloadError: ``answer`` is no completion with as many choices as were generated.
    """
    members = _members(answer)
    choices = _elements(members, "choices")
    if len(choices) != len(generated.choices):
        raise MalformedJson(0, f"{len(choices)} choices where {len(generated.choices)} were generated")
    mended = [_mended(chat, *pair) for pair in zip(choices, generated.choices, strict=True)]
    values = {"id": b'"%b"' % completion_id.encode()}
    if mended != choices:
        values["choices"] = b"[%b]" % b",".join(mended)
    usage = members.get("usage", b"null")
    if usage.startswith(b"{"):
        values["usage"] = _recounted(usage, generated.completion_tokens())
    return set_members(answer, values)


def _mended(chat: ChatRequest, choice: bytes, generated: GeneratedChoice) -> bytes:
    members = _members(choice)
    values: dict[str, bytes] = {}
    if _called_tools(chat, _members(members.get("message", b"{}")), members.get("finish_reason")):
        values["finish_reason"] = b'"tool_calls"'
    if members.get("token_ids", b"null") != b"null":
        values["token_ids"] = _list(generated.tokens)
    if generated.is_empty and not chat.keeps_stop_tokens:
        values["message"] = b"".join(set_members(members["message"], {"content": b'""'}))
    return b"".join(set_members(choice, values)) if values else choice


def _called_tools(chat: ChatRequest, message: Mapping[str, bytes], finish_reason: bytes | None) -> bool:
    """OpenAI's rule: ``tool_calls`` where tools were called by choice or as required, but not one that was named."""
    if chat.tool_choice.startswith(b"{"):
        return False
    if chat.tool_choice == b'"required"' and finish_reason == b'"stop"':
        return True
    return bool(_items(message.get("tool_calls")))


def _recounted(usage: bytes, completion_tokens: int) -> bytes:
    counted = {"completion_tokens": b"%d" % completion_tokens}
    prompt_tokens = _members(usage).get("prompt_tokens", b"")
    if prompt_tokens.isdigit():
        counted["total_tokens"] = b"%d" % (int(prompt_tokens) + completion_tokens)
    return b"".join(set_members(usage, counted))


def _members(raw: bytes) -> dict[str, bytes]:
    return {name: raw[span.start : span.end] for name, span in index_members(raw).items()}


def _elements(members: Mapping[str, bytes], name: str) -> list[bytes]:
    raw = members.get(name, b"")
    return [raw[span.start : span.end] for span in split_list(raw, _CHOICES)]


def _items(raw: bytes | None) -> tuple[bytes, ...]:
    """The items of a raw JSON list of numbers; none for ``null``, and for what is no list."""
    listed = raw.strip(_SPACE) if raw is not None else b""
    inner = listed[1:-1].strip(_SPACE) if listed.startswith(b"[") else b""
    return tuple(item.strip(_SPACE) for item in inner.split(b",")) if inner else ()


def _list(items: tuple[bytes, ...]) -> bytes:
    return b"[%b]" % b",".join(items)
