"""What vLLM's derender is asked for an answer that is not streamed, and what is put right in what it says."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rendergen.payload import PayloadError
from router.api_request import ApiRequest
from router.apis import CHAT, COMPLETIONS
from router.prompt import Prompt
from router.upstream_derender import Generated, completion, derender_request
from tests.support.requests import api_request

REQUEST = api_request()
PROMPT = Prompt.of_json(b"[%b]" % b",".join(b"%d" % token for token in range(100)))


def generated(*choices: dict[str, Any], **members: Any) -> Generated:
    """Generate's answer with these choices."""
    return Generated.read(json.dumps({"request_id": "g", **members, "choices": list(choices)}).encode())


def asked(request: ApiRequest, tokens: Generated) -> dict[str, Any]:
    """What derender is asked, decoded."""
    found = json.loads(b"".join(derender_request(request, PROMPT, tokens)))
    assert isinstance(found, dict)
    return found


def completed(request: ApiRequest, answer: dict[str, Any], tokens: Generated) -> dict[str, Any]:
    """The completion for the caller, decoded."""
    found = json.loads(b"".join(completion(request, PROMPT, json.dumps(answer).encode(), tokens, "x")))
    assert isinstance(found, dict)
    return found


def told(request: ApiRequest, choice: dict[str, Any], tokens: dict[str, Any]) -> dict[str, Any]:
    """The one choice of the completion for the caller."""
    (found,) = completed(request, {"choices": [choice]}, generated(tokens))["choices"]
    assert isinstance(found, dict)
    return found


SHOWN = {
    "the end-of-sequence token": ({"token_ids": [7, 8, 2], "finish_reason": "stop", "stop_reason": None}, [7, 8]),
    "a stop token": ({"token_ids": [7, 8, 9], "finish_reason": "stop", "stop_reason": 9}, [7, 8]),
    "no reason given": ({"token_ids": [7, 2], "finish_reason": "stop"}, [7]),
    "a stop string": ({"token_ids": [7, 8], "finish_reason": "stop", "stop_reason": "END"}, [7, 8]),
    "the length": ({"token_ids": [7, 8], "finish_reason": "length", "stop_reason": None}, [7, 8]),
    "nothing but the end": ({"token_ids": [2], "finish_reason": "stop", "stop_reason": None}, [2]),
    "no tokens": ({"token_ids": None, "finish_reason": "stop", "stop_reason": None}, None),
}


@pytest.mark.parametrize(("choice", "tokens"), SHOWN.values(), ids=SHOWN)
def test_derender_is_not_shown_the_token_that_ended_the_generation(choice: dict[str, Any], tokens: Any) -> None:
    """It would decode it into the text. It refuses an empty list, so a lone one stays."""
    chat = asked(REQUEST, generated(choice, choice))
    assert [shown["token_ids"] for shown in chat["generate_response"]["choices"]] == [tokens, tokens]
    (response,) = asked(api_request(COMPLETIONS), generated(choice))["generate_responses"]
    assert [shown["token_ids"] for shown in response["choices"]] == [tokens]


@pytest.mark.parametrize(
    "request_",
    [api_request(include_stop_str_in_output=True), api_request(overrides={"include_stop_str_in_output": b"true"})],
)
def test_a_stop_token_that_is_to_be_in_the_text_is_shown(request_: ApiRequest) -> None:
    """Wherever the request says so."""
    answer = generated({"token_ids": [7, 2], "finish_reason": "stop"})
    assert asked(request_, answer)["generate_response"]["choices"][0]["token_ids"] == [7, 2]


def test_what_derender_is_told_of_a_chat() -> None:
    """The end of the prompt for its text, the whole of it for its parser, and the caller's request."""
    found = asked(REQUEST, generated({"token_ids": [7]}, usage=None))
    ids = list(range(100))
    assert (found["stream"], found["prompt_tokens"], found["prompt_token_ids"]) == (False, 100, ids[-32:])
    assert found["generate_response"]["prompt_token_ids"] == ids
    assert found["chat_request"] == {"model": "m", "messages": []}
    assert "model" not in found  # it says the served name then, as one server does


def test_what_derender_is_told_of_a_completion() -> None:
    """The same, for one prompt of several."""
    found = asked(api_request(COMPLETIONS), generated({"token_ids": [7]}))
    assert (found["stream"], found["prompt_tokens"]) == (False, [100])
    assert found["prompt_token_ids"] == [list(range(100))[-32:]]
    assert found["completion_request"] == {"model": "m", "prompt": "p"}


def test_decoding_is_as_the_sampling_params_say() -> None:
    """A caller may say it beside the request; derender reads it in there."""
    found = asked(
        api_request(overrides={"skip_special_tokens": b"false", "top_k": b"1"}), generated({"token_ids": [7]})
    )
    assert found["chat_request"] == {"model": "m", "messages": [], "skip_special_tokens": False}


def test_derender_is_given_the_candidates_that_one_server_gives() -> None:
    """Generate has one where none was asked for."""
    entry = {"token_id": 7, "logprob": -1.0, "top_logprobs": [{"token_id": 7, "logprob": -1.0}]}
    answer = generated({"token_ids": [7], "logprobs": {"content": [entry]}})
    (choice,) = asked(api_request(logprobs=True), answer)["generate_response"]["choices"]
    assert choice["logprobs"] == {"content": [{**entry, "top_logprobs": []}]}


def test_all_tokens_are_counted() -> None:
    """Usage counts what was generated, over all choices, whatever derender was shown; the rest of it stays."""
    ended = {"token_ids": [7, 8, 2], "finish_reason": "stop"}
    tokens = generated(ended, {"token_ids": [7, 8], "finish_reason": "length"})
    usage = {"prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 14, "x": 1}
    answer = completed(REQUEST, {"choices": [{}, {}], "usage": usage}, tokens)
    assert answer["usage"] == {**usage, "completion_tokens": 5, "total_tokens": 15}


def test_what_only_generate_knows_is_taken_from_it() -> None:
    """The tokens that were cached, and the model's name, which is an adapter's where there is one."""
    tokens = generated({"token_ids": [7]}, model="adapter", usage={"prompt_tokens_details": {"cached_tokens": 3}})
    answer = completed(REQUEST, {"choices": [{}], "usage": {"prompt_tokens": 1}, "model": "base"}, tokens)
    assert (answer["model"], answer["id"]) == ("adapter", "x")
    assert answer["usage"]["prompt_tokens_details"] == {"cached_tokens": 3}


def test_token_ids_in_a_chat_are_all_that_were_generated() -> None:
    """What derender was not shown is there again; where it leaves them out, as for hidden reasoning, they stay out."""
    tokens = {"token_ids": [7, 2], "finish_reason": "stop"}
    request = api_request(return_token_ids=True)
    assert told(request, {"token_ids": [7]}, tokens) == {"token_ids": [7, 2]}
    assert told(request, {"token_ids": None}, tokens) == {"token_ids": None}
    answer = completed(request, {"choices": [{}]}, generated(tokens))
    assert answer["prompt_token_ids"] == list(range(100))


def test_a_completion_has_the_token_ids_that_derender_leaves_out() -> None:
    """In each choice, and the log probabilities of the prompt."""
    tokens = generated({"token_ids": [7, 2], "finish_reason": "stop"}, prompt_logprobs=[None])
    answer = completed(api_request(COMPLETIONS, return_token_ids=True), {"choices": [{"text": "a"}]}, tokens)
    assert answer["choices"] == [
        {"text": "a", "token_ids": [7, 2], "prompt_token_ids": list(range(100)), "prompt_logprobs": [None]}
    ]
    answer = completed(api_request(COMPLETIONS), {"choices": [{"text": "a"}]}, tokens)
    assert answer["choices"] == [{"text": "a", "prompt_token_ids": None, "prompt_logprobs": [None]}]


CALL = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
NAMED = {"type": "function", "function": {"name": "f"}}
REASONS = {
    "called by choice": (None, CALL, "stop", "tool_calls"),
    "called by choice, said so": ("auto", CALL, "stop", "tool_calls"),
    "called as required": ("required", CALL, "stop", "tool_calls"),
    "required, none read": ("required", [], "stop", "tool_calls"),
    "required, cut off": ("required", [], "length", "length"),
    "the one that was named": (NAMED, CALL, "stop", "stop"),
    "none called": (None, [], "stop", "stop"),
    "no list of calls": (None, None, "length", "length"),
}


@pytest.mark.parametrize(("tool_choice", "calls", "given", "reason"), REASONS.values(), ids=REASONS)
def test_the_finish_reason_says_that_tools_were_called(tool_choice: Any, calls: Any, given: str, reason: str) -> None:
    """OpenAI's rule, as vLLM's own chat endpoint has it; derender leaves generate's reason."""
    choice = {"message": {"content": None, "tool_calls": calls}, "finish_reason": given}
    found = told(api_request(tool_choice=tool_choice), choice, {"token_ids": [7], "finish_reason": "length"})
    assert found == {**choice, "finish_reason": reason}


@pytest.mark.parametrize(("parallel", "calls"), [(False, 1), (True, 2), (None, 2)])
def test_one_tool_call_where_no_more_are_wanted(parallel: bool | None, calls: int) -> None:
    """The first one."""
    choice = {"message": {"tool_calls": [*CALL, {}]}}
    found = told(api_request(parallel_tool_calls=parallel), choice, {"token_ids": [7], "finish_reason": "stop"})
    assert found["message"]["tool_calls"] == [*CALL, {}][:calls]


def test_an_empty_generation_is_an_empty_text() -> None:
    """Where the first token was the last, derender was shown it and decoded it."""
    tokens = {"token_ids": [2], "finish_reason": "stop"}
    message = {"role": "assistant", "content": "<|im_end|>"}
    assert told(REQUEST, {"message": message}, tokens)["message"] == {"role": "assistant", "content": ""}
    assert told(api_request(COMPLETIONS), {"text": "<|im_end|>"}, tokens)["text"] == ""


STOPPED = {
    "content": ({"content": "1 2E3", "reasoning": None}, {"content": "1 2", "reasoning": None}),
    "content after reasoning": ({"content": "1 2E3", "reasoning": "why"}, {"content": "1 2", "reasoning": "why"}),
    "nothing after reasoning": ({"content": "E3", "reasoning": "why"}, {"content": None, "reasoning": "why"}),
    "nothing at all": ({"content": "E", "reasoning": None}, {"content": "", "reasoning": None}),
    "reasoning": ({"content": None, "reasoning": "whyE?"}, {"content": None, "reasoning": "why"}),
}


@pytest.mark.parametrize(("message", "left"), STOPPED.values(), ids=STOPPED)
def test_a_stop_string_ends_the_text(message: dict[str, Any], left: dict[str, Any]) -> None:
    """Derender leaves it, and what came with its last token."""
    tokens = {"token_ids": [7, 8], "finish_reason": "stop", "stop_reason": "E"}
    assert told(api_request(stop="E"), {"message": message}, tokens)["message"] == left


def test_a_stop_string_ends_a_completion() -> None:
    """It stays where it is to be kept, and what came after it does not."""
    tokens = {"token_ids": [7, 8], "finish_reason": "stop", "stop_reason": "빨"}
    assert told(api_request(COMPLETIONS), {"text": "1 2빨3"}, tokens)["text"] == "1 2"
    kept = api_request(COMPLETIONS, include_stop_str_in_output=True)
    assert told(kept, {"text": "1 2빨3"}, tokens)["text"] == "1 2빨"


ROLES = {
    "a prompt for the assistant": ({}, "assistant"),
    "said so": ({"add_generation_prompt": True}, "assistant"),
    "the last message goes on": ({"add_generation_prompt": False}, "user"),
}


@pytest.mark.parametrize(("members", "role"), ROLES.values(), ids=ROLES)
def test_the_role_is_the_last_messages_where_that_goes_on(members: dict[str, Any], role: str) -> None:
    """Derender always says that it is the assistant's."""
    messages = [{"role": "system", "content": "x"}, {"content": "y", "role": "user"}]
    request = api_request(messages=messages, **members)
    choice = {"message": {"role": "assistant", "content": "z"}}
    assert told(request, choice, {"token_ids": [7], "finish_reason": "length"})["message"]["role"] == role


def test_a_token_without_text_has_no_bytes() -> None:
    """An empty list, where derender has null."""
    raw = b'{"choices":[{"message":{},"logprobs":{"content":[{"token":"","bytes":null}]}}]}'
    answer = completion(REQUEST, PROMPT, raw, generated({"token_ids": [7]}), "x")
    assert b'"logprobs":{"content":[{"token":"","bytes":[]}]}' in b"".join(answer)


def test_what_is_not_put_right_keeps_its_bytes() -> None:
    """Numbers, escapes, order and white space are derender's."""
    raw = b'{ "id":"v","choices":[ {"message":{"content":"\\ud55c"}, "x":1.50E+2} ] , "created":1}'
    tokens = generated({"token_ids": [7], "finish_reason": "length"})
    assert b"".join(completion(REQUEST, PROMPT, raw, tokens, "x")) == raw.replace(b'"v"', b'"x"')


@pytest.mark.parametrize(
    "raw", [b"[]", b"{}", b'{"choices":{}}', b'{"choices":[]}', b'{"choices":[1]}', b'{"choices":[{}']
)
def test_an_answer_without_choices_is_refused(raw: bytes) -> None:
    """Generate's and derender's alike."""
    with pytest.raises(PayloadError):
        Generated.read(raw)
    for api in (CHAT, COMPLETIONS):
        with pytest.raises(PayloadError):
            completion(api_request(api), PROMPT, raw, generated({"token_ids": [7]}), "x")


def test_as_many_choices_come_back_as_were_generated() -> None:
    """One that is missing would be told by nothing else."""
    with pytest.raises(PayloadError, match="1 choices where 2 were generated"):
        completion(REQUEST, PROMPT, b'{"choices":[{}]}', generated({"token_ids": [7]}, {"token_ids": [7]}), "x")
