"""Answers by vLLM's own derender, streamed: one request to it for some of generate's events, and back to events.

Its state goes to and fro with each request. While it has one, what comes waits and then goes together, so that it keeps
up under load. What is put right in its answers is the same as where they are not streamed, and what follows from text
being told in parts: where log probabilities begin in the text, and usage all along.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from rendergen import sse
from rendergen.payload import PayloadError, Piece, index_members
from rendergen.service.errors import PodFailed
from router.api_request import ApiRequest
from router.prompt import Prompt
from router.upstream_asked import Asked, context
from router.upstream_derender import PROMPT_TAIL_TOKENS
from router.upstream_gathering import Delta, Gathering, gathering
from router.upstream_logprobs import trimmed, with_bytes
from router.upstream_stops import HeldText

Ask = Callable[[tuple[Piece, ...]], Awaitable[bytes]]

_LARGE_BYTES = 128 * 1024

# How many tokens before a token derender looks at, for the text of a token that is part of a character.
_LOGPROB_CONTEXT = 4


async def stream(
    request: ApiRequest, prompt: Prompt, events: AsyncIterator[bytes], ask: Ask, completion_id: str
) -> AsyncGenerator[bytes, None]:
    """The answer to ``request`` as server-sent events, each item one or several whole ones.

    Nothing comes before derender's first answer has come.

    Args:
        request: the caller's, of chat or completions.
        prompt: what was generated from.
        events: the data of generate's events, ``[DONE]`` not among them.
        ask: sends a request to derender; gives the answer's body.
        completion_id: the completion's ``id``.

    Raises:
        PodFailed: what a pod sent is not what it should be, or generate's events ended too early; or whatever
            ``events`` and ``ask`` raise.
    """
    # Of a conversation of megabytes its last message has to be found: not on the event loop.
    large = request.document.size > _LARGE_BYTES
    asked = await asyncio.to_thread(Asked.of, request) if large else Asked.of(request)
    answer = _Answer(asked, prompt, completion_id)
    derender = _Derender(answer.asked.is_chat, ask, prompt, b"".join(context(request)))
    choices: dict[int, _Choice] = {}
    async with gathering(events) as gathered:
        while (delta := await gathered.take()) is not None:
            choice = choices.get(delta.index)
            if choice is None:
                choice = choices[delta.index] = _Choice(answer, derender)
            told = await choice.told(delta)
            if answer.begins():
                told = [*answer.beginning(), *told]
            if told:
                yield b"".join(told)
        unfinished = len(choices) < answer.asked.choices or any(not choice.finished for choice in choices.values())
        if unfinished:
            raise PodFailed("The generate pod's stream ended before every choice was finished.")
        yield b"".join(answer.end(gathered, choices.values()))


class _Answer:
    """What all events of the answer have in common."""

    def __init__(self, asked: Asked, prompt: Prompt, completion_id: str) -> None:
        self.asked = asked
        self.prompt = prompt
        self.prompt_tokens = prompt.tokens
        self._id = completion_id
        self._created = int(time.time())
        self._begun = False
        self._model: Any = None

    def begins(self) -> bool:
        """Whether this is the first time that it is asked."""
        begins, self._begun = not self._begun, True
        return begins

    def made_by(self, model: Any) -> None:
        """Derender has said what the model's name is."""
        self._model = model

    def event(self, choices: list[dict[str, Any]], **members: Any) -> bytes:
        """One event."""
        kind = "chat.completion.chunk" if self.asked.is_chat else "text_completion"
        common = {"id": self._id, "object": kind, "created": self._created, "model": self._model}
        return sse.written(_json({**common, "choices": choices, **members}))

    def beginning(self) -> list[bytes]:
        """In chat, the events that say the role, one for each choice."""
        if not self.asked.is_chat:
            return []
        ids = json.loads(self.prompt.ids()) if self.asked.token_ids else None
        usage = {"usage": self.usage(0)} if self.asked.usage_all_along else {}
        delta = {"role": self.asked.role, "content": ""}
        return [
            self.event(
                [{"index": index, "delta": delta, "logprobs": None, "finish_reason": None}],
                prompt_token_ids=ids,
                prompt_text=None,
                **usage,
            )
            for index in range(self.asked.choices)
        ]

    def end(self, gathered: Gathering, choices: Any) -> list[bytes]:
        """The usage, where it is asked for, and the end."""
        if not self.asked.usage:
            return [sse.DONE]
        usage = self.usage(sum(choice.tokens for choice in choices))
        if details := gathered.usage.get("prompt_tokens_details"):
            usage["prompt_tokens_details"] = details
        metrics = {"metrics": gathered.metrics} if gathered.metrics else {}
        return [self.event([], usage=usage, **metrics), sse.DONE]

    def usage(self, completion_tokens: int) -> dict[str, Any]:
        """The usage after so many tokens."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "total_tokens": self.prompt_tokens + completion_tokens,
            "completion_tokens": completion_tokens,
        }


@dataclass(frozen=True, slots=True)
class _Derendered:
    """An answer of derender's: its choice, the model's name, and the state that goes with the next request."""

    choice: dict[str, Any]
    model: Any
    state: bytes


class _Derender:
    """Derender, as it is asked for this request's answer."""

    def __init__(self, is_chat: bool, ask: Ask, prompt: Prompt, request: bytes) -> None:
        self._is_chat = is_chat
        self._ask = ask
        self._prompt_tokens = prompt.tokens
        self._tail = b"[%b]" % prompt.tail(PROMPT_TAIL_TOKENS)
        # A parser looks at the whole prompt each time; without one the end will do, but which it is nobody tells.
        self._prompt = prompt.ids() if is_chat else self._tail
        self._request = b',"%b":%b}' % (b"chat_request" if is_chat else b"completion_request", request)

    async def chunk(self, choice: dict[str, Any], state: bytes) -> _Derendered:
        """What more of a choice comes to, after ``state``."""
        head = b'{"stream":true,"prompt_tokens":%d,"prompt_token_ids":%b,"stream_state":%b,"generate_chunk":%b' % (
            self._prompt_tokens,
            self._prompt,
            state,
            _json({"choices": [choice]}),
        )
        answer = await self._ask((head, self._request))
        try:
            spans = index_members(answer)
            state = answer[spans["stream_state"].start : spans["stream_state"].end]
            chunk = json.loads(with_bytes(answer[spans["chunk"].start : spans["chunk"].end]))
            (told,) = chunk["choices"]
            return _Derendered(told, chunk["model"], state)
        except (PayloadError, LookupError, TypeError, ValueError, RecursionError) as error:
            raise _no_answer() from error

    async def logprobs(self, content: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The log probabilities of a whole answer with these: in a stream, a parser makes it leave them out."""
        # Of the text nothing is wanted, and a parser does not take none for an answer.
        choice = {"index": 0, "token_ids": [content[0]["token_id"]], "logprobs": {"content": content}}
        head = b'{"stream":false,"prompt_tokens":%d,"prompt_token_ids":%b,"generate_response":%b' % (
            self._prompt_tokens,
            self._tail,
            _json({"choices": [choice]}),
        )
        answer = await self._ask((head, self._request))
        try:
            resolved = list(json.loads(with_bytes(answer))["choices"][0]["logprobs"]["content"])
        except (LookupError, TypeError, ValueError, RecursionError) as error:
            raise _no_answer() from error
        if len(resolved) != len(content):
            raise _no_answer()
        return resolved


class _Choice:
    """One choice as far as it was told."""

    def __init__(self, answer: _Answer, derender: _Derender) -> None:
        self._answer = answer
        self._derender = derender
        self._state = b"null"
        self._text = HeldText(answer.asked.stops, keep=answer.asked.keeps_stops)
        self._last: list[int] = []
        self._logprob_offset = 0
        self._told_prompt = False
        self.tokens = 0
        self.finished = False

    async def told(self, delta: Delta) -> list[bytes]:
        """The events that say ``delta``."""
        asked = self._answer.asked
        if self.finished:
            raise PodFailed("The generate pod's stream goes on with a choice that was finished.")
        shown = delta.token_ids
        logprobs = self._trimmed(delta)
        stop = delta.stop_reason if delta.finish_reason == "stop" and isinstance(delta.stop_reason, str) else None
        if delta.finish_reason == "stop" and stop is None and not asked.keeps_stops:
            shown = shown[:-1]
        derendered = await self._derender.chunk(
            {
                "index": delta.index,
                "token_ids": shown,
                "logprobs": {"content": logprobs} if logprobs else None,
                "finish_reason": delta.finish_reason,
                "stop_reason": delta.stop_reason,
            },
            self._state,
        )
        self._state = derendered.state
        self._answer.made_by(derendered.model)
        self.tokens += len(delta.token_ids)
        self.finished = delta.finish_reason is not None
        parts = self._parts(derendered.choice, stop)
        told = {
            "logprobs": await self._logprobs(logprobs, derendered.choice.get("logprobs")),
            "finish_reason": self._finish_reason(delta, derendered.choice.get("finish_reason")),
        }
        self._last = (self._last + delta.token_ids)[-_LOGPROB_CONTEXT:]
        return self._events(delta, parts, told, has_ids=derendered.choice.get("token_ids") is not None)

    def _events(self, delta: Delta, parts: list[dict[str, Any]], told: dict[str, Any], *, has_ids: bool) -> list[bytes]:
        asked = self._answer.asked
        if asked.is_chat:
            has_ids = has_ids and asked.token_ids
            if not parts and (self.finished or told["logprobs"] is not None or has_ids):
                parts = [{}]
            choices: list[dict[str, Any]] = [{"delta": part} for part in parts]
        else:
            has_ids = asked.token_ids
            choices = [{"text": "".join(part["text"] for part in parts)}]
        nothing = {"logprobs": None, "finish_reason": None}
        choices = [{"index": delta.index, **choice, **nothing, "token_ids": None} for choice in choices]
        if choices:
            choices[-1] |= {**told, "token_ids": delta.token_ids if has_ids else None}
            if self.finished or not asked.is_chat:
                choices[-1]["stop_reason"] = delta.stop_reason
        if not asked.is_chat:
            ids = json.loads(self._answer.prompt.ids()) if has_ids and not self._told_prompt else None
            self._told_prompt = True
            choices[-1]["prompt_token_ids"] = ids
        usage = {"usage": self._answer.usage(self.tokens)} if asked.usage_all_along else {}
        return [self._answer.event([choice], **usage) for choice in choices]

    def _parts(self, choice: dict[str, Any], stop: str | None) -> list[dict[str, Any]]:
        """What there is to tell, of each kind for itself: reasoning, content and tool calls, or text."""
        try:
            if not self._answer.asked.is_chat:
                return [{kind: text} for kind, text in self._ready("text", choice["text"], stop, last=self.finished)]
            delta = choice["delta"]
            texts = [(kind, delta[kind]) for kind in ("reasoning", "content") if delta.get(kind)]
            calls = _without_nulls(delta.get("tool_calls") or [])
        except (LookupError, TypeError, AttributeError) as error:
            raise _no_answer() from error
        ready: list[tuple[str, str]] = []
        for kind, text in texts[:-1]:
            ready += self._ready(kind, text, None, last=False)
        kind, text = texts[-1] if texts else (self._text.kind, "")
        ready += self._ready(kind, text, stop, last=self.finished)
        if self._answer.asked.one_tool_call:
            calls = [call for call in calls if call.get("index") == 0]
        return [{kind: text} for kind, text in ready] + ([{"tool_calls": calls}] if calls else [])

    def _ready(self, kind: str, text: str, stop: str | None, *, last: bool) -> list[tuple[str, str]]:
        return self._text.finish(kind, text, stop) if last else self._text.feed(kind, text)

    def _finish_reason(self, delta: Delta, derendered: Any) -> str | None:
        # Derender says it of whatever ended an answer with a tool call, also of its length.
        return "tool_calls" if (delta.finish_reason, derendered) == ("stop", "tool_calls") else delta.finish_reason

    def _trimmed(self, delta: Delta) -> list[dict[str, Any]]:
        asked = self._answer.asked
        try:
            return trimmed(delta.logprobs or (), asked.candidates, is_chat=asked.is_chat)
        except (LookupError, TypeError, AttributeError) as error:
            raise PodFailed("The generate pod's stream has log probabilities that are none.") from error

    async def _logprobs(self, generated: list[dict[str, Any]], derendered: Any) -> Any:
        if not generated:
            return None
        if not self._answer.asked.is_chat:
            return self._placed(derendered)
        if derendered is not None:
            return derendered
        before = [{"token_id": token, "logprob": 0.0} for token in self._last]
        resolved = await self._derender.logprobs(before + generated)
        return {"content": resolved[len(before) :]}

    def _placed(self, logprobs: Any) -> Any:
        """The log probabilities with the places of their tokens in the text: all tokens before them count for it."""
        try:
            offsets = []
            for token in logprobs["tokens"]:
                offsets.append(self._logprob_offset)
                self._logprob_offset += len(token)
            return {**logprobs, "text_offset": offsets}
        except (LookupError, TypeError) as error:
            raise _no_answer() from error


def _without_nulls(calls: list[Any]) -> list[Any]:
    return [
        {
            name: {each: said for each, said in value.items() if said is not None} if name == "function" else value
            for name, value in call.items()
            if value is not None
        }
        for call in calls
    ]


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def _no_answer() -> PodFailed:
    return PodFailed("The render pod's answer is none that belongs into a stream.")
