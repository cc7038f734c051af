"""Derender in a stream: what comes out is what one server would have answered, ids and times aside.

The engine's own answer is asked for beside it, each time, of the same vLLM that generated.
"""

from __future__ import annotations

import aiohttp
import pytest

from rendergen.launcher import Stack
from tests.e2e.calls import CHAT, chat, ok, post
from tests.e2e.derendered import context_of, derender, derendered, generated, rendered
from tests.e2e.joined import chat_joined, messages_joined, responses_joined, without_own
from tests.e2e.parity.bodies import USAGE, begun, completion
from tests.e2e.parity.chat_requests import CHAT_REQUESTS, ONLY_WHOLE
from tests.e2e.parity.completion_requests import COMPLETION_REQUESTS, COMPLETIONS_ONLY_WHOLE
from tests.e2e.parity.message_requests import MESSAGE_REQUESTS
from tests.e2e.parity.paths import COMPLETIONS, MESSAGES, RESPONSES
from tests.e2e.parity.response_requests import RESPONSE_REQUESTS

pytestmark = pytest.mark.plugin


@pytest.mark.parametrize("generate_streams", [True, False], ids=["generate streams", "generate whole"])
@pytest.mark.parametrize("case", CHAT_REQUESTS)
async def test_a_chat_stream_is_that_of_one_server(
    stack: Stack, client: aiohttp.ClientSession, case: str, generate_streams: bool
) -> None:
    """Joined deltas, finish and stop reasons, usage, logprobs, tool calls, and the order of the kinds of chunk."""
    request = {**CHAT_REQUESTS[case], "stream": True}
    ours = await derendered(client, stack, CHAT, request, generate_streams=generate_streams)
    theirs = await post(client, stack.vllm_engine_urls[0] + CHAT, request)
    assert ours.headers["content-type"] == theirs.headers["content-type"]
    assert chat_joined(ours.text()) == chat_joined(theirs.text())


@pytest.mark.parametrize("generate_streams", [True, False], ids=["generate streams", "generate whole"])
@pytest.mark.parametrize("case", [*CHAT_REQUESTS, *ONLY_WHOLE])
async def test_a_chat_completion_is_that_of_one_server(
    stack: Stack, client: aiohttp.ClientSession, case: str, generate_streams: bool
) -> None:
    """Every member, ids and times aside."""
    if generate_streams and case in ONLY_WHOLE:
        pytest.skip("generate's stream lacks it: test_what_generates_stream_lacks_is_refused")
    request = {**{**CHAT_REQUESTS, **ONLY_WHOLE}[case]}
    request.pop("stream_options", None)
    ours = await derendered(client, stack, CHAT, request, generate_streams=generate_streams)
    assert ours.status == 200, ours.text()
    assert without_own(ours.json()) == without_own(await ok(client, stack.vllm_engine_urls[0] + CHAT, request))


async def test_an_error_of_the_serving_layer_is_that_of_one_server(stack: Stack, client: aiohttp.ClientSession) -> None:
    """vLLM cannot echo in a stream with a template that takes parts, and says so in its own way.

    It says it within a 200. Here nothing of the stream has been sent by then, so that the same error has its status.
    """
    request = begun(echo=True, stream=True)
    ours = await derendered(client, stack, CHAT, request, generate_streams=True)
    theirs = chat_joined((await post(client, stack.vllm_engine_urls[0] + CHAT, request)).text())["error"]
    assert ours.json()["error"] == theirs
    assert ours.status == theirs["code"]


@pytest.mark.parametrize("generate_streams", [True, False], ids=["generate streams", "generate whole"])
@pytest.mark.parametrize("case", COMPLETION_REQUESTS)
async def test_a_text_stream_is_that_of_one_server(
    stack: Stack, client: aiohttp.ClientSession, case: str, generate_streams: bool
) -> None:
    """The same of `/v1/completions`."""
    request = {**COMPLETION_REQUESTS[case], "stream": True}
    ours = await derendered(client, stack, COMPLETIONS, request, generate_streams=generate_streams)
    theirs = await post(client, stack.vllm_engine_urls[0] + COMPLETIONS, request)
    assert chat_joined(ours.text()) == chat_joined(theirs.text())


@pytest.mark.parametrize("generate_streams", [True, False], ids=["generate streams", "generate whole"])
@pytest.mark.parametrize("case", [*COMPLETION_REQUESTS, *COMPLETIONS_ONLY_WHOLE])
async def test_a_text_completion_is_that_of_one_server(
    stack: Stack, client: aiohttp.ClientSession, case: str, generate_streams: bool
) -> None:
    """Every member, ids and times aside."""
    if generate_streams and case in COMPLETIONS_ONLY_WHOLE:
        pytest.skip("generate's stream lacks prompt logprobs: test_what_generates_stream_lacks_is_refused")
    request = {**{**COMPLETION_REQUESTS, **COMPLETIONS_ONLY_WHOLE}[case]}
    request.pop("stream_options", None)
    ours = await derendered(client, stack, COMPLETIONS, request, generate_streams=generate_streams)
    assert ours.status == 200, ours.text()
    assert without_own(ours.json()) == without_own(await ok(client, stack.vllm_engine_urls[0] + COMPLETIONS, request))


async def test_a_streamed_echo_with_logprobs(stack: Stack, client: aiohttp.ClientSession) -> None:
    """Of generate's whole answer, which has log probabilities of the prompt."""
    request = completion(echo=True, logprobs=2, max_tokens=4, stream=True)
    ours = await derendered(client, stack, COMPLETIONS, request, generate_streams=False)
    theirs = await post(client, stack.vllm_engine_urls[0] + COMPLETIONS, request)
    assert chat_joined(ours.text()) == chat_joined(theirs.text())


LACKING = {
    **{name: (CHAT, request, "prompt_logprobs") for name, request in ONLY_WHOLE.items()},
    **{name: (COMPLETIONS, request, "prompt_logprobs") for name, request in COMPLETIONS_ONLY_WHOLE.items()},
    "a streamed echo": (COMPLETIONS, completion(echo=True, logprobs=2, stream=True), "prompt_logprobs"),
    "candidates by id": (COMPLETIONS, completion(logprobs=2, logprob_token_ids=[5, 6]), "logprob_token_ids"),
}


@pytest.mark.parametrize("case", LACKING)
async def test_what_generates_stream_lacks_is_refused(stack: Stack, client: aiohttp.ClientSession, case: str) -> None:
    """Rather than left out without a word."""
    path, request, param = LACKING[case]
    reply = await derendered(client, stack, path, request, generate_streams=True)
    assert (reply.status, reply.json()["error"]["param"]) == (400, param)


async def test_two_thousand_tokens(stack: Stack, client: aiohttp.ClientSession) -> None:
    """A long stream is as right at its end as at its beginning."""
    request = chat("Count to 50", max_tokens=2000, ignore_eos=True, stream=True, **USAGE)
    ours = await derendered(client, stack, CHAT, request, generate_streams=True)
    theirs = chat_joined((await post(client, stack.vllm_engine_urls[0] + CHAT, request)).text())
    assert theirs["usages"]["all"]["completion_tokens"] == 2000
    assert chat_joined(ours.text()) == theirs


async def test_candidates_beside_the_sampled_token(stack: Stack, client: aiohttp.ClientSession) -> None:
    """Completions give one candidate more where the sampled token is none of them; generate has to be asked for it."""
    request = completion(logprobs=2, temperature=2.0, top_k=-1, seed=1, max_tokens=40)
    payload = await rendered(client, stack, COMPLETIONS, request)
    payload["sampling_params"]["logprobs"] += 1
    answer = await generated(client, stack, payload, stream=True)
    ours = await derender(client, stack, COMPLETIONS, context_of(payload, request) + answer)
    theirs = await ok(client, stack.vllm_engine_urls[0] + COMPLETIONS, request)
    assert {len(each) for each in theirs["choices"][0]["logprobs"]["top_logprobs"]} == {2, 3}
    assert without_own(ours.json()) == without_own(theirs)


@pytest.mark.parametrize("generate_streams", [True, False], ids=["generate streams", "generate whole"])
@pytest.mark.parametrize("case", MESSAGE_REQUESTS)
async def test_a_message_is_that_of_one_server(
    stack: Stack, client: aiohttp.ClientSession, case: str, generate_streams: bool
) -> None:
    """Anthropic's API: streamed, and not."""
    url = stack.vllm_engine_urls[0] + MESSAGES
    request = MESSAGE_REQUESTS[case]
    ours = await derendered(client, stack, MESSAGES, request, generate_streams=generate_streams)
    assert without_own(ours.json()) == without_own(await ok(client, url, request))
    request = {**request, "stream": True}
    ours = await derendered(client, stack, MESSAGES, request, generate_streams=generate_streams)
    assert messages_joined(ours.text()) == messages_joined((await post(client, url, request)).text())


@pytest.mark.parametrize("generate_streams", [True, False], ids=["generate streams", "generate whole"])
@pytest.mark.parametrize("case", RESPONSE_REQUESTS)
async def test_a_response_is_that_of_one_server(
    stack: Stack, client: aiohttp.ClientSession, case: str, generate_streams: bool
) -> None:
    """OpenAI's Responses: streamed, and not."""
    url = stack.vllm_engine_urls[0] + RESPONSES
    request = RESPONSE_REQUESTS[case]
    ours = await derendered(client, stack, RESPONSES, request, generate_streams=generate_streams)
    assert without_own(ours.json()) == without_own(await ok(client, url, request))
    request = {**request, "stream": True}
    ours = await derendered(client, stack, RESPONSES, request, generate_streams=generate_streams)
    assert responses_joined(ours.text()) == responses_joined((await post(client, url, request)).text())
