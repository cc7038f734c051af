"""A stream by vLLM's derender, which is asked for some of it at a time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from rendergen.payload import Piece
from rendergen.service.errors import PodFailed, Unavailable
from router.api_request import ApiRequest
from router.apis import CHAT, COMPLETIONS
from router.prompt import Prompt
from router.upstream_stream import stream
from tests.support.polling import soon
from tests.support.requests import api_request

PROMPT = Prompt.of_json(b"[%b]" % b",".join(b"%d" % token for token in range(50)))
IDS = list(range(50))
END = 2


@dataclass
class Derender:
    """A derender of which each token is a letter: 7 is `h`. With a parser it names no log probabilities in streams.

    Attributes:
        parser: it has one.
        calls: what it was asked.
        said: in place of what it would say in a delta, one for each call.
        finish_reason: in place of generate's.
        answered: counts its answers in the stream.
    """

    parser: bool = False
    calls: list[dict[str, Any]] = field(default_factory=list)
    said: list[dict[str, Any]] = field(default_factory=list)
    finish_reason: str | None = None
    answered: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))

    async def ask(self, body: tuple[Piece, ...]) -> bytes:
        asked = json.loads(b"".join(body))
        self.calls.append(asked)
        await asyncio.sleep(0)
        if not asked["stream"]:
            (choice,) = asked["generate_response"]["choices"]
            return json.dumps({"choices": [{"logprobs": _named(choice["logprobs"])}]}).encode()
        (choice,) = asked["generate_chunk"]["choices"]
        text = "".join(map(letter, choice["token_ids"]))
        logprobs = choice["logprobs"] and _named(choice["logprobs"])
        told: dict[str, Any] = {
            "index": choice["index"],
            "finish_reason": self.finish_reason or choice["finish_reason"],
        }
        if "chat_request" in asked:
            told["delta"] = {"role": "assistant", "content": text or None, "reasoning": None}
            told["logprobs"] = None if self.parser else logprobs
            told["token_ids"] = choice["token_ids"] if asked["chat_request"].get("return_token_ids") else None
            if self.said:
                told["delta"] = self.said.pop(0)
        else:
            tops = logprobs and [{"x": 0} for _ in logprobs["content"]]
            names = logprobs and [each["token"] for each in logprobs["content"]]
            told |= {
                "text": text,
                "logprobs": logprobs and {"tokens": names, "text_offset": [99], "top_logprobs": tops},
            }
        self.answered.release()
        before = asked["stream_state"] or {"seen": []}
        state = {"seen": before["seen"] + choice["token_ids"]}
        return json.dumps({"chunk": {"model": "served", "choices": [told]}, "stream_state": state}).encode()


def letter(token: int) -> str:
    return chr(ord("a") + token)


def _named(logprobs: dict[str, Any]) -> dict[str, Any]:
    return {"content": [{**entry, "token": letter(entry["token_id"])} for entry in logprobs["content"]]}


def event(*tokens: int, index: int = 0, **members: Any) -> bytes:
    return json.dumps({"choices": [{"index": index, "token_ids": list(tokens), **members}]}).encode()


def ended(*tokens: int, index: int = 0, **members: Any) -> bytes:
    return event(*tokens, END, index=index, **{"finish_reason": "stop", "stop_reason": None, **members})


def logprobs(*tokens: int) -> dict[str, Any]:
    return {"content": [{"token_id": token, "logprob": -0.5} for token in tokens]}


async def chunks(request: ApiRequest, derender: Derender, *events: bytes, together: bool = False) -> list[Any]:
    """The stream's chunks, decoded; the end is `[DONE]`."""

    async def come() -> AsyncIterator[bytes]:
        for number, each in enumerate(events):
            if number and not together:
                await derender.answered.acquire()
            yield each

    found = b"".join([told async for told in stream(request, PROMPT, come(), derender.ask, "id")]).decode()
    assert found.endswith("\n\n")
    read = [each.removeprefix("data: ") for each in found.split("\n\n")[:-1]]
    return [each if each == "[DONE]" else json.loads(each) for each in read]


def texts(read: list[Any], index: int = 0) -> str:
    """The text of a choice."""
    choices = [choice for chunk in read if chunk != "[DONE]" for choice in chunk["choices"] if choice["index"] == index]
    return "".join(choice["delta"].get("content") or "" for choice in choices)


async def test_a_chat_stream() -> None:
    """The role, the text, the reason it ended, the end; the token that ended it is no text."""
    derender = Derender()
    read = await chunks(api_request(stream=True), derender, event(7), event(8), ended(9))
    created = read[0]["created"]
    common = {"id": "id", "object": "chat.completion.chunk", "created": created, "model": "served"}
    plain = {"index": 0, "logprobs": None, "finish_reason": None}
    prompt = {"prompt_token_ids": None, "prompt_text": None}
    last = {"delta": {"content": "j"}, "token_ids": None, "finish_reason": "stop", "stop_reason": None}
    assert read == [
        {**common, "choices": [{**plain, "delta": {"role": "assistant", "content": ""}}], **prompt},
        {**common, "choices": [{**plain, "delta": {"content": "h"}, "token_ids": None}]},
        {**common, "choices": [{**plain, "delta": {"content": "i"}, "token_ids": None}]},
        {**common, "choices": [{**plain, **last}]},
        "[DONE]",
    ]
    assert isinstance(created, int)


async def test_what_derender_is_asked() -> None:
    """The state that it gave, the whole prompt, and the caller's request; what comes meanwhile goes together."""
    derender = Derender()
    assert texts(await chunks(api_request(), derender, event(7), event(8), ended(9), together=True)) == "hij"
    first, *rest = derender.calls
    assert first["generate_chunk"]["choices"][0]["token_ids"][0] == 7
    assert (first["prompt_tokens"], first["prompt_token_ids"], first["stream_state"]) == (50, IDS, None)
    assert first["chat_request"] == {"model": "m", "messages": []}
    assert len(derender.calls) < 3
    derender = Derender()
    await chunks(api_request(), derender, event(7), event(8), ended(9))
    assert [call["stream_state"] for call in derender.calls] == [None, {"seen": [7]}, {"seen": [7, 8]}]
    assert all(call["prompt_token_ids"] == IDS for call in derender.calls)
    assert not rest or rest[0]["stream_state"] is not None


async def test_each_choice_has_a_state_of_its_own() -> None:
    """Choices come as they are generated; each has its role first."""
    derender = Derender()
    read = await chunks(api_request(n=2), derender, event(7), event(0, index=1), ended(8, index=1), ended(9))
    assert [chunk["choices"][0]["delta"].get("role") for chunk in read[:3]] == ["assistant", "assistant", None]
    assert [chunk["choices"][0]["index"] for chunk in read[:-1]] == [0, 1, 0, 1, 1, 0]
    assert (texts(read, 0), texts(read, 1)) == ("hj", "ai")
    assert [call["stream_state"] for call in derender.calls] == [None, None, {"seen": [0]}, {"seen": [7]}]


async def test_usage_at_the_end() -> None:
    """Of all choices, with what generate alone knows; the token that ended it counts."""
    details = {"cached_tokens": 4}
    usage = json.dumps({"choices": [], "usage": {"prompt_tokens_details": details}}).encode()
    request = api_request(n=2, stream_options={"include_usage": True})
    read = await chunks(request, Derender(), ended(7), ended(7, 8, index=1), usage)
    assert read[-2]["choices"] == []
    counted = {"prompt_tokens": 50, "completion_tokens": 5, "total_tokens": 55}
    assert read[-2]["usage"] == {**counted, "prompt_tokens_details": details}
    assert all("usage" not in chunk for chunk in read[:-2])


async def test_usage_all_along() -> None:
    """Each chunk says how many tokens its choice has come to; none does where only that is asked for."""
    options = {"include_usage": True, "continuous_usage_stats": True}
    read = await chunks(api_request(stream_options=options), Derender(), event(7), event(8, 9), ended())
    assert [chunk["usage"]["completion_tokens"] for chunk in read[:-1]] == [0, 1, 3, 4, 4]
    options["include_usage"] = False
    read = await chunks(api_request(stream_options=options), Derender(), ended(7))
    assert all("usage" not in chunk for chunk in read[:-1])


async def test_a_stop_string_over_several_events_is_cut_off() -> None:
    """Nothing of it is told, and nothing that came with its last token."""
    request = api_request(stop=["jkl", "zz"])
    end: dict[str, Any] = {"finish_reason": "stop", "stop_reason": "jkl"}
    for together in (False, True):
        come = [event(7), event(8), event(9), event(10), event(11, 12, **end)]
        read = await chunks(request, Derender(), *come, together=together)
        assert texts(read) == "hi"
        assert read[-2]["choices"][0]["stop_reason"] == "jkl"


async def test_what_could_have_been_a_stop_string_is_told_in_the_end() -> None:
    """It was not one."""
    assert texts(await chunks(api_request(stop="jkl"), Derender(), event(8), ended(9, 10))) == "ijk"


async def test_the_end_is_text_where_it_is_to_be_kept() -> None:
    """Derender is shown it then."""
    read = await chunks(api_request(include_stop_str_in_output=True), Derender(), event(7), ended())
    assert texts(read) == "h" + letter(END)


async def test_reasoning_and_content_are_told_apart() -> None:
    """A delta that has both becomes two, in their order; the reasons are the last one's."""
    derender = Derender(said=[{"reasoning": "why"}, {"reasoning": "?", "content": "so", "tool_calls": []}])
    read = await chunks(api_request(), derender, event(7), ended(8))
    deltas = [chunk["choices"][0]["delta"] for chunk in read[1:-1]]
    assert deltas == [{"reasoning": "why"}, {"reasoning": "?"}, {"content": "so"}]
    assert [chunk["choices"][0]["finish_reason"] for chunk in read[1:-1]] == [None, None, "stop"]


CALL = {"id": "c", "type": "function", "index": 0, "function": {"name": "f", "arguments": None}}


@pytest.mark.parametrize(("finish", "told"), [("stop", "tool_calls"), ("length", "length")])
async def test_tool_calls(finish: str, told: str) -> None:
    """Without nulls; the reason says that they were called, unless they were cut short."""
    derender = Derender(said=[{"content": "a", "tool_calls": [CALL]}], finish_reason="tool_calls")
    read = await chunks(api_request(), derender, ended(7, finish_reason=finish))
    call = {**CALL, "function": {"name": "f"}}
    assert [chunk["choices"][0]["delta"] for chunk in read[1:-1]] == [{"content": "a"}, {"tool_calls": [call]}]
    assert read[-2]["choices"][0]["finish_reason"] == told


async def test_one_tool_call_where_no_more_are_wanted() -> None:
    """The others are left out."""
    derender = Derender(said=[{"tool_calls": [{**CALL, "index": 1}, CALL]}])
    read = await chunks(api_request(parallel_tool_calls=False), derender, ended(7))
    assert [call["index"] for call in read[1]["choices"][0]["delta"]["tool_calls"]] == [0]


async def test_what_says_nothing_is_not_told() -> None:
    """As where a parser waits for more; the end is told in any case."""
    derender = Derender(said=[{"content": None}, {"content": ""}, {}])
    read = await chunks(api_request(), derender, event(7), event(8), ended(9))
    assert [chunk["choices"][0]["delta"] for chunk in read[1:-1]] == [{}]
    assert read[-2]["choices"][0]["finish_reason"] == "stop"


async def test_token_ids() -> None:
    """The prompt's with the role, and all that were generated; none where derender leaves them out."""
    request = api_request(return_token_ids=True)
    read = await chunks(request, Derender(), event(7), ended(8))
    assert read[0]["prompt_token_ids"] == IDS
    assert [chunk["choices"][0]["token_ids"] for chunk in read[1:-1]] == [[7], [8, END]]


async def test_log_probabilities() -> None:
    """As derender names them; without candidates that nobody asked for."""
    derender = Derender()
    read = await chunks(
        api_request(logprobs=True), derender, event(7, logprobs=logprobs(7)), ended(logprobs=logprobs(END))
    )
    content = [chunk["choices"][0]["logprobs"]["content"] for chunk in read[1:-1]]
    assert [[entry["token"] for entry in each] for each in content] == [["h"], ["c"]]
    assert all(call["stream"] for call in derender.calls)


async def test_log_probabilities_that_a_parser_makes_derender_leave_out() -> None:
    """They are asked for as of a whole answer, after the tokens before them, which the text of a token may need."""
    derender = Derender(parser=True)
    come = [event(token, logprobs=logprobs(token)) for token in (3, 4, 5, 6, 7)] + [ended(logprobs=logprobs(END))]
    read = await chunks(api_request(logprobs=True), derender, *come)
    content = [chunk["choices"][0]["logprobs"]["content"] for chunk in read[1:-1]]
    assert [[entry["token"] for entry in each] for each in content] == [["d"], ["e"], ["f"], ["g"], ["h"], ["c"]]
    extra = [call["generate_response"]["choices"][0] for call in derender.calls if not call["stream"]]
    shown = [[entry["token_id"] for entry in each["logprobs"]["content"]] for each in extra]
    assert shown == [[3], [3, 4], [3, 4, 5], [3, 4, 5, 6], [3, 4, 5, 6, 7], [4, 5, 6, 7, END]]
    assert all(len(each["token_ids"]) == 1 for each in extra)


async def test_a_completion_stream() -> None:
    """Texts alone, no role; all that a choice has is there."""
    derender = Derender()
    request = api_request(COMPLETIONS, return_token_ids=True, stream_options={"include_usage": True})
    read = await chunks(request, derender, event(7), ended(8))
    assert {chunk["object"] for chunk in read[:-1]} == {"text_completion"}
    choice = {"index": 0, "logprobs": None, "finish_reason": None, "stop_reason": None}
    assert [chunk["choices"] for chunk in read[:-1]] == [
        [{**choice, "text": "h", "token_ids": [7], "prompt_token_ids": IDS}],
        [{**choice, "text": "i", "token_ids": [8, END], "finish_reason": "stop", "prompt_token_ids": None}],
        [],
    ]
    assert derender.calls[0]["prompt_token_ids"] == IDS[-32:]
    assert derender.calls[0]["completion_request"]["model"] == "m"


async def test_the_places_of_log_probabilities_count_all_tokens_before() -> None:
    """Also those whose text is held back, and not the text that derender has told."""
    request = api_request(COMPLETIONS, logprobs=1, stop=["hijk"])
    come = [event(7, 8, logprobs=logprobs(7, 8)), ended(9, logprobs=logprobs(9, END))]
    read = await chunks(request, Derender(), *come)
    assert [chunk["choices"][0]["logprobs"]["text_offset"] for chunk in read[:-1]] == [[0, 1], [2, 3]]


BROKEN = {
    "no choice was finished": (event(7), {}),
    "a choice is missing": (ended(7), {"n": 2}),
    "no event": (b"{", {}),
    "no log probabilities": (ended(7, logprobs={"content": [5]}), {"logprobs": True}),
}


@pytest.mark.parametrize(("data", "members"), BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("api", [CHAT, COMPLETIONS])
async def test_a_stream_that_is_not_whole_does_not_end_well(api: Any, data: bytes, members: dict[str, Any]) -> None:
    """It is the generate pod's failure."""
    with pytest.raises(PodFailed, match="generate pod"):
        await chunks(api_request(api, **members), Derender(), data)


async def test_a_choice_ends_once() -> None:
    """Whatever comes after is no stream of generate's."""
    with pytest.raises(PodFailed, match="goes on with a choice"):
        await chunks(api_request(), Derender(), ended(7), event(8))


@pytest.mark.parametrize(
    "answer",
    [
        b"{",
        b"{}",
        b'{"chunk":{"choices":[],"model":"m"},"stream_state":{}}',
        b'{"chunk":{"choices":[5],"model":"m"},"stream_state":{}}',
        b'{"chunk":{"choices":[{}]},"stream_state":{}}',
        b'{"chunk":{"choices":[{}],"model":"m"},"stream_state":{}}',
        b'{"chunk":{"choices":[{"delta":{"tool_calls":[5]}}],"model":"m"},"stream_state":{}}',
    ],
)
@pytest.mark.parametrize("api", [CHAT, COMPLETIONS])
async def test_what_is_no_answer_of_derenders_is_its_failure(api: Any, answer: bytes) -> None:
    """The render pod's."""

    async def ask(_: tuple[Piece, ...]) -> bytes:
        return answer

    derender = Derender()
    derender.ask = ask  # type: ignore[method-assign, assignment]
    with pytest.raises(PodFailed, match="render pod"):
        await chunks(api_request(api), derender, ended(7), together=True)


async def test_a_request_that_fails_ends_the_stream() -> None:
    """With its error, after what was told before; nothing goes on in the background."""
    derender = Derender()
    closed = asyncio.Event()

    async def ask(body: tuple[Piece, ...]) -> bytes:
        if derender.calls:
            raise Unavailable("gone")
        return await derender.ask(body)

    async def come() -> AsyncIterator[bytes]:
        try:
            yield event(7)
            await derender.answered.acquire()
            yield event(8)
            await asyncio.Event().wait()
        finally:
            closed.set()

    answer = stream(api_request(), PROMPT, come(), ask, "id")
    assert b'"content":"h"' in await soon(anext(answer))
    with pytest.raises(Unavailable, match="gone"):
        await soon(anext(answer))
    await soon(closed.wait())


async def test_a_caller_that_leaves_ends_everything() -> None:
    """Generate's events are not read any longer."""
    closed = asyncio.Event()

    async def come() -> AsyncIterator[bytes]:
        try:
            yield event(7)
            await asyncio.Event().wait()
        finally:
            closed.set()

    answer = stream(api_request(), PROMPT, come(), Derender().ask, "id")
    assert await soon(anext(answer))
    await answer.aclose()  # type: ignore[attr-defined]
    assert closed.is_set()
