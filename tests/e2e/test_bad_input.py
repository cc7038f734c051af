"""Requests that cannot be served are refused with the status of the table in docs/ARCHITECTURE.md and a useful message.

Each is refused the same way by the router's chat path, by its render path, and by the render service.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest

from rendergen.launcher import Stack
from tests.e2e.calls import CHAT, RED, RENDER, WHAT_COLOR, Reply, chat, post
from tests.e2e.refusal import assert_refused


@dataclass(frozen=True, slots=True)
class Bad:
    """A request that must be refused.

    Attributes:
        body: of the request; what is not bytes is sent as JSON.
        says: a regular expression that the message must contain, letters of either case.
        status: HTTP status to expect.
        headers: to send.
        chat_only: refused by the chat path alone: the render path passes it on to vLLM, which takes it.
    """

    body: Any
    says: str
    status: int = 400
    headers: dict[str, str] | None = None
    chat_only: bool = False


def without(name: str) -> dict[str, Any]:
    """A good request but for one missing member."""
    request = chat(RED, WHAT_COLOR)
    del request[name]
    return request


TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
GOOD = json.dumps(chat("Count to 3")).encode()

BODIES = {
    "cut JSON": Bad(GOOD[:-1], "JSON"),
    "JSON with a comma too many": Bad(GOOD[:-1] + b",}", "JSON"),
    "nothing": Bad(b"", "JSON|body|required"),
    "null": Bad(b"null", "JSON|body|required"),
    "a list": Bad(b"[]", "JSON|object|dictionary"),
    "a string": Bad(b'"x"', "JSON|object|dictionary"),
    "two objects": Bad(GOOD + GOOD, "JSON"),
    "not UTF-8": Bad(GOOD.replace(b"Count", b"\xff\xfe"), "UTF-8|JSON|pars"),
    "100,000 brackets": Bad(GOOD[:-1] + b',"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "JSON|pars|inside"),
    "a number of 5,000 digits": Bad(GOOD[:-1] + b',"seed":' + b"9" * 5000 + b"}", "JSON|pars|seed|number"),
    "a member twice": Bad(GOOD[:-1] + b',"model":"x"}', "twice", chat_only=True),
    "a form": Bad(b"model=tiny-vlm", "JSON|media type", headers={"Content-Type": "application/x-www-form-urlencoded"}),
    "plain text": Bad(GOOD, "media type|content.type|JSON", headers={"Content-Type": "text/plain"}),
    "a broken gzip": Bad(GOOD, "body|encoding", headers={"Content-Encoding": "gzip"}),
}

MEMBERS = {
    "no messages": Bad(without("messages"), "messages"),
    "an unknown model": Bad(chat(RED, model="no-such-model"), "no-such-model", status=404),
    "a model that is a number": Bad(chat(RED, model=5), "model"),
    "no message at all": Bad(chat(messages=[]), "message|conversation"),
    "messages that are text": Bad(chat(messages="Hello"), "messages"),
    "a message without role": Bad(chat(messages=[{"content": "Hello"}]), "role"),
    "content that is a number": Bad(chat(messages=[{"role": "user", "content": 5}]), "content"),
    "a part that is a number": Bad(chat(5), "valid|content"),  # type: ignore[arg-type]
    "a part without type": Bad(chat({"text": "Hello"}), "type"),
    "an image_url without url": Bad(chat({"type": "image_url", "image_url": {}}), "url"),
    "a lone surrogate": Bad(b'{"model":"tiny-vlm","messages":[{"role":"user","content":"\\ud83d"}]}', "."),
    "a prompt longer than the context": Bad(chat("Count to 50. " * 4000), "context length|4096"),
    "more tokens than the context": Bad(chat(RED, max_tokens=100_000), "max_tokens"),
    "a chat template": Bad(chat(RED, chat_template="{{ 1/0 }}"), "template"),
    "processor settings": Bad(chat(RED, mm_processor_kwargs={"max_pixels": 10**12}), "mm_processor_kwargs"),
    "a tool that is not there": Bad(
        chat(RED, tools=[TOOL], tool_choice={"type": "function", "function": {"name": "g"}}), "tool"
    ),
    "a tool choice without tools": Bad(chat(RED, tool_choice="required"), "tools"),
    "tools that are text": Bad(chat(RED, tools="f"), "tools"),
    "a schema without schema": Bad(chat(RED, response_format={"type": "json_schema"}), "json_schema"),
    "an unknown response format": Bad(chat(RED, response_format={"type": "yaml"}), "response_format"),
    "structured outputs that are a number": Bad(chat(RED, structured_outputs=5), "."),
}

NUMBERS: dict[str, tuple[Any, ...]] = {
    "temperature": (float("nan"), float("inf"), float("-inf"), -1, "hot"),
    "top_p": (0, 2, float("nan")),
    "top_k": (-5,),
    "min_p": (2, float("nan")),
    "repetition_penalty": (0,),
    "frequency_penalty": (9,),
    "presence_penalty": (-9,),
    "max_tokens": (0, -1, 1.5, "x"),
    "min_tokens": (-1,),
    "n": (0, -1, 10**9),
    "seed": (10**30, "x"),
    "logit_bias": ({"x": 1},),
    "top_logprobs": (5,),
    "stop": ("",),
    "stop_token_ids": (["x"],),
    "bad_words": ([""],),
}
SAMPLING = {
    f"{name} {value!r}": Bad(chat(RED, WHAT_COLOR, **{name: value}), name)
    for name, values in NUMBERS.items()
    for value in values
}

CASES = {**BODIES, **MEMBERS, **SAMPLING}

DOORS = ("router chat", "router render", "render service")


@pytest.mark.parametrize(
    ("case", "door"),
    [(case, door) for case, bad in CASES.items() for door in DOORS if door == "router chat" or not bad.chat_only],
)
async def test_bad_requests_are_refused(stack: Stack, client: aiohttp.ClientSession, case: str, door: str) -> None:
    """Status, form and message, and nothing of our inside."""
    bad = CASES[case]
    url = {
        "router chat": stack.router_url + CHAT,
        "router render": stack.router_url + RENDER,
        "render service": stack.render_service_urls[0] + RENDER,
    }[door]
    reply = await post(client, url, bad.body, bad.headers)
    assert_refused(reply, bad.status, bad.says, stack=stack)


# What the render server takes and the engine does not.
ENGINES = {
    "a bias for a token that is not there": Bad(chat(RED, logit_bias={"9999999": 1}), "logit_bias|vocab"),
    "a stop token that is not there": Bad(chat(RED, stop_token_ids=[10**7]), "stop_token_ids|vocab"),
    "a negative stop token": Bad(chat(RED, stop_token_ids=[-5]), "stop_token_ids|vocab|token"),
    "allowed tokens that are not there": Bad(chat(RED, allowed_token_ids=[10**7]), "allowed_token_ids|vocab"),
    "no allowed tokens": Bad(chat(RED, allowed_token_ids=[]), "allowed_token_ids"),
    "more logprobs than allowed": Bad(chat(RED, logprobs=True, top_logprobs=1000), "logprobs"),
    "a broken regex": Bad(chat(RED, structured_outputs={"regex": "("}), "regex|grammar|parse|pattern"),
    "a broken grammar": Bad(chat(RED, structured_outputs={"grammar": "nonsense"}), "grammar|parse"),
    "an empty choice": Bad(chat(RED, structured_outputs={"choice": []}), "choice"),
    "a broken JSON schema": Bad(
        chat(RED, response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "no"}}}),
        "schema|json|grammar|type",
    ),
    "overrides that are a number": Bad(chat(RED, sampling_params=5), "sampling_params"),
    "an override that is NaN": Bad(chat(RED, sampling_params={"temperature": float("nan")}), "temperature"),
    "an override of the wrong kind": Bad(chat(RED, sampling_params={"max_tokens": "many"}), "max_tokens"),
    "an override out of range": Bad(chat(RED, sampling_params={"top_p": 7}), "top_p"),
}


@pytest.mark.parametrize("case", ENGINES)
async def test_what_the_engine_refuses_is_refused(stack: Stack, client: aiohttp.ClientSession, case: str) -> None:
    """The second step of a chat request may be the one that finds the fault."""
    bad = ENGINES[case]
    reply = await post(client, stack.router_url + CHAT, bad.body)
    assert_refused(reply, bad.status, bad.says, stack=stack)


async def test_the_stack_still_answers(stack: Stack, client: aiohttp.ClientSession) -> None:
    """Nothing of all this has hurt a process, and no pod counts as broken for its callers' mistakes."""
    for _ in range(5):
        assert (await post(client, stack.router_url + CHAT, chat("nothing", temperature=-1))).status == 400
    reply = await post(client, stack.router_url + CHAT, chat(RED, WHAT_COLOR))
    assert reply.json()["choices"][0]["message"]["content"] == "Red"
    for url in (stack.router_url, *stack.render_service_urls, *stack.generate_service_urls):
        async with client.get(url + "/readyz") as answer:
            assert answer.status == 200


@pytest.mark.parametrize("door", ["router", "render service", "generate service"])
@pytest.mark.parametrize(("method", "path", "status"), [("GET", CHAT, 405), ("POST", "/v1/nonsense", 404)])
async def test_wrong_paths_and_methods(
    stack: Stack, client: aiohttp.ClientSession, door: str, method: str, path: str, status: int
) -> None:
    """Errors of the framework have OpenAI's form too."""
    url = {
        "router": stack.router_url,
        "render service": stack.render_service_urls[0],
        "generate service": stack.generate_service_urls[0],
    }[door]
    if door != "router":
        status = 404  # the services have no chat path
    async with client.request(method, url + path) as answer:
        reply = Reply(answer.status, answer.headers, await answer.read())
    assert_refused(reply, status, path, stack=stack)
