"""Answers by vLLM's own derender, not streamed: what it is asked, and what is put right in its answer.

vLLM 0.32's derender differs from its own ``/v1/chat/completions`` and ``/v1/completions`` in a few things that can be
put right from here:

- With a tool or reasoning parser it decodes the token that ended the generation too, so that ``<|im_end|>`` ends the
  text. That token is held back from it, and counted again afterwards.
- Its parser is told the prompt only where generate's answer has it.
- It keeps generate's finish reason where a tool was called, which is ``stop``. OpenAI's is ``tool_calls``. It gives all
  tool calls where one was asked for.
- It leaves stop strings in the text.
- Generate has other numbers of candidates among the log probabilities than one server gives.
- The role is always the assistant's.
- It has no token ids of the prompt; in completions none at all, and no log probabilities of the prompt.
- It names the answer by generate's request id.

All of it is done on raw JSON: what is not put right passes unchanged. ``docs/bare-pods.md`` has what cannot be.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from rendergen.payload import Limits, MalformedJson, Piece, index_members, set_members, split_list
from router.api_request import ApiRequest
from router.prompt import Prompt
from router.upstream_asked import Asked, context
from router.upstream_logprobs import trimmed_json, with_bytes
from router.upstream_stops import cut

# Derender reads the end of the prompt to continue its text, a few tokens far.
PROMPT_TAIL_TOKENS = 32

# vLLM's own bound on `n` is 16,384.
_CHOICES = Limits(members=1 << 16)

_SPACE = b" \t\r\n"
_NULL = b"null"


@dataclass(frozen=True, slots=True)
class GeneratedChoice:
    """One of generate's choices.

    Attributes:
        raw: the choice, a raw JSON object.
        tokens: its token ids, raw JSON numbers.
        ends_in_stop_token: the last token ended the generation and is no part of the text.
        stop: the string that ended it, if one did.
        logprobs: its log probabilities, raw JSON.
    """

    raw: bytes
    tokens: tuple[bytes, ...]
    ends_in_stop_token: bool
    stop: str | None
    logprobs: bytes

    @classmethod
    def read(cls, raw: bytes) -> Self:
        """Raises: PayloadError: it is no object."""
        members = _members(raw)
        stopped = members.get("finish_reason") == b'"stop"'
        stop = _text(members.get("stop_reason"))
        return cls(
            raw=raw,
            tokens=_items(members.get("token_ids")),
            ends_in_stop_token=stopped and stop is None,
            stop=stop if stopped else None,
            logprobs=members.get("logprobs", _NULL),
        )

    def for_derender(self, asked: Asked) -> list[Piece]:
        """The choice with only those tokens that are text; derender refuses none at all, so one always stays.

        Raises:
            PayloadError: its log probabilities are none.
        """
        values: dict[str, bytes] = {}
        if self.ends_in_stop_token and len(self.tokens) > 1 and not asked.keeps_stops:
            values["token_ids"] = _list(self.tokens[:-1])
        if self.logprobs != _NULL:
            values["logprobs"] = trimmed_json(self.logprobs, asked.candidates, is_chat=asked.is_chat)
        return set_members(self.raw, values) if values else [self.raw]

    @property
    def is_empty(self) -> bool:
        """Nothing was generated but the token that ended it."""
        return self.ends_in_stop_token and len(self.tokens) == 1


@dataclass(frozen=True, slots=True)
class Generated:
    """Generate's answer.

    Attributes:
        raw: the answer, a raw JSON object.
        members: its members, raw JSON by name.
        choices: its choices.
    """

    raw: bytes
    members: Mapping[str, bytes]
    choices: tuple[GeneratedChoice, ...]

    @classmethod
    def read(cls, raw: bytes) -> Self:
        """Raises: PayloadError: it is no object with a list of choices, at least one."""
        members = _members(raw)
        choices = _elements(members, "choices")
        if not choices:
            raise MalformedJson(0, "there are no choices")
        return cls(raw, members, tuple(GeneratedChoice.read(choice) for choice in choices))

    def completion_tokens(self) -> int:
        """How many tokens were generated, those that ended it included."""
        return sum(len(choice.tokens) for choice in self.choices)

    def for_derender(self, asked: Asked, prompt: Prompt) -> list[Piece]:
        """The answer as derender is to see it."""
        # A parser may look at the prompt: whether it has begun the reasoning. It is told here alone.
        values = {"prompt_token_ids": prompt.ids()} if asked.is_chat else {}
        values["choices"] = b"[%b]" % b",".join(b"".join(choice.for_derender(asked)) for choice in self.choices)
        return set_members(self.raw, values)


def derender_request(request: ApiRequest, prompt: Prompt, generated: Generated) -> tuple[Piece, ...]:
    """The body of the derender request: the caller's request, generate's answer, and what it must know of the prompt.

    Args:
        request: the caller's, of chat or completions.
        prompt: what the tokens continue.
        generated: generate's answer.

    Raises:
        PayloadError: the prompt is no list.
    """
    asked = Asked.of(request)
    tokens, tail = b"%d" % prompt.tokens, b"[%b]" % prompt.tail(PROMPT_TAIL_TOKENS)
    answer = generated.for_derender(asked, prompt)
    if asked.is_chat:
        head = b'{"stream":false,"prompt_tokens":%b,"prompt_token_ids":%b,"generate_response":' % (tokens, tail)
        return (head, *answer, b',"chat_request":', *context(request), b"}")
    head = b'{"stream":false,"prompt_tokens":[%b],"prompt_token_ids":[%b],"generate_responses":[' % (tokens, tail)
    return (head, *answer, b'],"completion_request":', *context(request), b"}")


def completion(
    request: ApiRequest, prompt: Prompt, answer: bytes, generated: Generated, completion_id: str
) -> list[Piece]:
    """The completion for the caller, out of derender's.

    Args:
        request: the caller's.
        prompt: what was generated from.
        answer: derender's answer, a raw JSON object.
        generated: generate's.
        completion_id: the completion's ``id``.

    Raises:
        PayloadError: ``answer`` is no completion with as many choices as were generated.
    """
    asked = Asked.of(request)
    members = _members(answer)
    choices = _elements(members, "choices")
    if len(choices) != len(generated.choices):
        raise MalformedJson(0, f"{len(choices)} choices where {len(generated.choices)} were generated")
    prompt_ids = prompt.ids() if asked.token_ids else _NULL
    mended = [_mended(asked, *pair) for pair in zip(choices, generated.choices, strict=True)]
    values = {"id": json.dumps(completion_id).encode()}
    if generated.members.get("model", _NULL) != _NULL:
        values["model"] = generated.members["model"]
    if not asked.is_chat:
        of_prompt = {"prompt_token_ids": prompt_ids, "prompt_logprobs": generated.members.get("prompt_logprobs", _NULL)}
        mended = [b"".join(set_members(choice, of_prompt)) for choice in mended]
    if mended != choices:
        values["choices"] = b"[%b]" % b",".join(mended)
    usage = members.get("usage", _NULL)
    if usage.startswith(b"{"):
        values["usage"] = _recounted(usage, generated)
    if asked.is_chat and asked.token_ids:
        values["prompt_token_ids"] = prompt_ids
    return set_members(answer, values)


def _mended(asked: Asked, choice: bytes, generated: GeneratedChoice) -> bytes:
    members = _members(choice)
    values: dict[str, bytes] = {}
    logprobs = members.get("logprobs", _NULL)
    if (whole := with_bytes(logprobs)) != logprobs:
        values["logprobs"] = whole
    if asked.is_chat:
        message = members.get("message", b"{}")
        told = _members(message)
        if _called_tools(asked, told, members.get("finish_reason")):
            values["finish_reason"] = b'"tool_calls"'
        if members.get("token_ids", _NULL) != _NULL:
            values["token_ids"] = _list(generated.tokens)
        if mended := _mended_message(asked, told, generated):
            values["message"] = b"".join(set_members(message, mended))
    else:
        values |= _mended_text(asked, members, generated, "text")
        if asked.token_ids:
            values["token_ids"] = _list(generated.tokens)
    return b"".join(set_members(choice, values)) if values else choice


def _mended_message(asked: Asked, message: Mapping[str, bytes], generated: GeneratedChoice) -> dict[str, bytes]:
    values: dict[str, bytes] = {}
    if asked.role != "assistant":
        values["role"] = json.dumps(asked.role).encode()
    if asked.one_tool_call and message.get("tool_calls", _NULL).startswith(b"["):
        values["tool_calls"] = b"[%b]" % b",".join(_elements(message, "tool_calls")[:1])
    # The text that came last is the one that was ended.
    has_reasoning = bool(_text(message.get("reasoning")))
    kind = "content" if _text(message.get("content")) or not has_reasoning else "reasoning"
    values |= _mended_text(asked, message, generated, kind)
    if has_reasoning and values.get("content") == b'""':
        values["content"] = _NULL
    return values


def _mended_text(asked: Asked, members: Mapping[str, bytes], generated: GeneratedChoice, name: str) -> dict[str, bytes]:
    if generated.is_empty and not asked.keeps_stops:
        return {name: b'""'}
    text = _text(members.get(name))
    if generated.stop is None or text is None:
        return {}
    return {name: json.dumps(cut(text, generated.stop, keep=asked.keeps_stops)).encode()}


def _called_tools(asked: Asked, message: Mapping[str, bytes], finish_reason: bytes | None) -> bool:
    """OpenAI's rule: ``tool_calls`` where tools were called by choice or as required, but not one that was named."""
    if asked.names_a_tool:
        return False
    if asked.tool_choice == b'"required"' and finish_reason == b'"stop"':
        return True
    return bool(_items(message.get("tool_calls")))


def _recounted(usage: bytes, generated: Generated) -> bytes:
    completion_tokens = generated.completion_tokens()
    counted = {"completion_tokens": b"%d" % completion_tokens}
    prompt_tokens = _members(usage).get("prompt_tokens", b"")
    if prompt_tokens.isdigit():
        counted["total_tokens"] = b"%d" % (int(prompt_tokens) + completion_tokens)
    theirs = generated.members.get("usage", _NULL)
    if theirs.startswith(b"{") and (details := _members(theirs).get("prompt_tokens_details", _NULL)) != _NULL:
        counted["prompt_tokens_details"] = details
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


def _text(raw: bytes | None) -> str | None:
    """The string, if it is one."""
    if raw is None or not raw.startswith(b'"'):
        return None
    try:
        return str(json.loads(raw))
    except ValueError as error:
        raise MalformedJson(0, "a string is malformed") from error
