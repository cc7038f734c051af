import json
from typing import Any

import pytest

from rendergen.payload import PayloadError
from router.chat_request import ChatRequest
from router.derender import Generated, Prompt, completion, derender_request

REQUEST = ChatRequest(
    body=(b'{"model":"m",', b'"messages":[]}'),
    headers={},
    model=b'"m"',
    tool_choice=b"",
    keeps_stop_tokens=False,
    sampling_overrides={},
)

PROMPT = Prompt(1, b"1")


def request(**members: Any) -> ChatRequest:
    """The plain request, with some members set."""
    fields = {name: getattr(REQUEST, name) for name in ChatRequest.__dataclass_fields__}
    return ChatRequest(**{**fields, **members})


def generated(*choices: dict[str, Any]) -> Generated:
    """Generate's answer with these choices."""
    return Generated.read(json.dumps({"request_id": "g", "choices": list(choices)}).encode())


def completed(chat: ChatRequest, answer: dict[str, Any], tokens: Generated) -> dict[str, Any]:
    """The completion for the caller, decoded."""
    found = json.loads(b"".join(completion(chat, json.dumps(answer).encode(), tokens, "chatcmpl-x")))
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
    context = json.loads(b"".join(derender_request(REQUEST, PROMPT, generated(choice, choice))))
    assert [shown["token_ids"] for shown in context["generate_response"]["choices"]] == [tokens, tokens]


def test_a_stop_token_that_is_to_be_in_the_text_is_shown() -> None:
    """With include_stop_str_in_output generate's answer goes on as it is."""
    answer = generated({"token_ids": [7, 2], "finish_reason": "stop"})
    context = b"".join(derender_request(request(keeps_stop_tokens=True), PROMPT, answer))
    assert answer.raw in context


def test_all_tokens_are_counted() -> None:
    """Usage counts what was generated, over all choices, whatever derender was shown; the rest of it stays."""
    tokens = generated(
        {"token_ids": [7, 8, 2], "finish_reason": "stop"}, {"token_ids": [7, 8], "finish_reason": "length"}
    )
    usage = {"prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 14, "prompt_tokens_details": {"cached": 1}}
    answer = completed(REQUEST, {"choices": [{}, {}], "usage": usage}, tokens)
    assert answer["usage"] == {**usage, "completion_tokens": 5, "total_tokens": 15}


def test_token_ids_in_the_answer_are_all_that_were_generated() -> None:
    """return_token_ids: what derender was not shown is there again; where it was not asked for, it stays null."""
    tokens = generated({"token_ids": [7, 2], "finish_reason": "stop"})
    assert completed(REQUEST, {"choices": [{"token_ids": [7]}]}, tokens)["choices"] == [{"token_ids": [7, 2]}]
    assert completed(REQUEST, {"choices": [{"token_ids": None}]}, tokens)["choices"] == [{"token_ids": None}]


CALL = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
REASONS = {
    "called by choice": (b"", CALL, "stop", "tool_calls"),
    "called by choice, said so": (b'"auto"', CALL, "stop", "tool_calls"),
    "called as required": (b'"required"', CALL, "stop", "tool_calls"),
    "required, none read": (b'"required"', [], "stop", "tool_calls"),
    "required, cut off": (b'"required"', [], "length", "length"),
    "the one that was named": (b'{"type":"function"}', CALL, "stop", "stop"),
    "none called": (b"", [], "stop", "stop"),
    "no list of calls": (b"", None, "length", "length"),
}


@pytest.mark.parametrize(("tool_choice", "calls", "given", "told"), REASONS.values(), ids=REASONS)
def test_the_finish_reason_says_that_tools_were_called(tool_choice: bytes, calls: Any, given: str, told: str) -> None:
    """OpenAI's rule, as vLLM's own chat endpoint has it; derender leaves generate's reason."""
    choice = {"message": {"content": None, "tool_calls": calls}, "finish_reason": given}
    tokens = generated({"token_ids": [7], "finish_reason": "length"})
    answer = completed(request(tool_choice=tool_choice), {"choices": [choice]}, tokens)
    assert answer["choices"] == [{**choice, "finish_reason": told}]


def test_an_empty_generation_is_an_empty_text() -> None:
    """Where the first token was the last, derender was shown it and decoded it."""
    tokens = generated({"token_ids": [2], "finish_reason": "stop"})
    message = {"role": "assistant", "content": "<|im_end|>"}
    answer = completed(REQUEST, {"choices": [{"message": message}]}, tokens)
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": ""}


def test_what_is_not_put_right_keeps_its_bytes() -> None:
    """Numbers, escapes, order and white space are derender's."""
    raw = b'{ "id":"v","choices":[ {"message":{"content":"\\ud55c"}, "x":1.50E+2} ] , "created":1}'
    tokens = generated({"token_ids": [7], "finish_reason": "length"})
    assert b"".join(completion(REQUEST, raw, tokens, "chatcmpl-x")) == raw.replace(b'"v"', b'"chatcmpl-x"')


@pytest.mark.parametrize(
    "raw", [b"[]", b"{}", b'{"choices":{}}', b'{"choices":[]}', b'{"choices":[1]}', b'{"choices":[{}']
)
def test_an_answer_without_choices_is_refused(raw: bytes) -> None:
    """Generate's and derender's alike."""
    with pytest.raises(PayloadError):
        Generated.read(raw)
    with pytest.raises(PayloadError):
        completion(REQUEST, raw, generated({"token_ids": [7]}), "chatcmpl-x")


def test_as_many_choices_come_back_as_were_generated() -> None:
    """One that is missing would be told by nothing else."""
    with pytest.raises(PayloadError, match="1 choices where 2 were generated"):
        completion(REQUEST, b'{"choices":[{}]}', generated({"token_ids": [7]}, {"token_ids": [7]}), "chatcmpl-x")
