"""vLLM's own derender, as the router asks it: with what is put right the answer is one server's, ids and times aside.

``docs/bare-pods.md`` has what is not put right.
"""

from __future__ import annotations

import re
from typing import Any

import aiohttp
import pytest

from rendergen.launcher import Stack
from rendergen.service.errors import BadRequest
from router.upstream_refusals import refuse
from tests.e2e.bare import Pace, api_request, derendered_stream, derendered_whole
from tests.e2e.calls import CHAT, chat, ok, post
from tests.e2e.joined import chat_joined, without_own
from tests.e2e.parity.bodies import (
    END_OF_TURN,
    NAMED_TOOL,
    THINKING,
    USAGE,
    USAGE_ALL_ALONG,
    begun,
    completion,
    example,
    red,
    schema,
    with_tool,
)
from tests.e2e.parity.chat_requests import CHAT_REQUESTS
from tests.e2e.parity.comparison import differences, without_what_bare_pods_lack
from tests.e2e.parity.completion_requests import COMPLETION_REQUESTS
from tests.e2e.parity.paths import COMPLETIONS

TWO = {"n": 2, "temperature": 1.0, "seed": 1}

MORE_CHAT_REQUESTS = {
    "a stop string in the reasoning": example("thinking", stop=["has"]),
    "a stop string in either": example("thinking", stop=["."]),
    "the end of reasoning as a stop string": example("thinking", stop=["</think>"]),
    "a stop string right after the reasoning": example("thinking", stop=["\n\n"]),
    "a stop string of one letter, at once": chat("Count to 30", stop=["1"]),
    "a stop string of several bytes": example("Korean", stop=["색"]),
    "some stop strings of which one comes": chat("Count to 30", stop=["1 1", "9 10 11", "xyz"]),
    "the same, kept": chat("Count to 30", stop=["1 1", "9 10 11", "xyz"], include_stop_str_in_output=True),
    "a stop string with logprobs": chat("Count to 30", stop=["7 8"], logprobs=True, top_logprobs=2, **USAGE),
    "a stop string and token ids": chat("Count to 30", stop=["7 8"], return_token_ids=True, **USAGE),
    "stop strings of three choices": chat("Count to 30", stop=["7", "9"], n=3, temperature=1.4, seed=3, **USAGE),
    "a stop string in JSON": red(response_format=schema("color"), max_tokens=40, stop=["}"]),
    "a stop string where tools are not to be called": with_tool(tool_choice="none", stop=["d"]),
    "an answer to go on with, stopped": begun(stop=["red", "Red", "r"]),
    "a user's role in two choices": red(add_generation_prompt=False, max_tokens=6, **TWO),
    "two choices with a tool": with_tool(**TWO, **USAGE_ALL_ALONG),
    "a tool with the end kept": with_tool(include_stop_str_in_output=True),
    "a tool that must be called, cut short": with_tool(tool_choice="required", max_tokens=4),
    "a tool that is named, cut short": with_tool(tool_choice=NAMED_TOOL, max_tokens=4),
    "a tool that is named, with logprobs": with_tool(
        tool_choice=NAMED_TOOL, logprobs=True, top_logprobs=1, return_token_ids=True
    ),
    "a tool after reasoning": with_tool(**THINKING, **USAGE),
    "reasoning left out without logprobs": example("thinking", include_reasoning=False, **USAGE),
    "reasoning left out, token ids asked for": example("thinking", include_reasoning=False, return_token_ids=True),
    "no thinking": chat("Count to 50", chat_template_kwargs={"enable_thinking": False}, **USAGE),
    "no candidates": red(logprobs=True, top_logprobs=0),
    "many candidates": red(logprobs=True, top_logprobs=20),
    "token ids of two choices": red(return_token_ids=True, **TWO, **USAGE_ALL_ALONG),
    "garbage of two choices": chat(
        "Count to 50", temperature=2.0, seed=9, n=2, max_tokens=60, ignore_eos=True, logprobs=True, top_logprobs=3
    ),
    "garbage without spaces": red(
        spaces_between_special_tokens=False, ignore_eos=True, max_tokens=20, temperature=2.0, seed=3
    ),
    "far beyond the end": chat("Count to 9", max_tokens=300, ignore_eos=True, **USAGE),
    "a stop token that is kept": chat("Count to 20", stop_token_ids=[20], include_stop_str_in_output=True),
    "words that must not come": chat("Count to 20", bad_words=["5"], max_tokens=40),
}

MORE_COMPLETION_REQUESTS = {
    "stop strings of three choices": completion(max_tokens=40, stop=["9 1", "7"], n=3, temperature=1.0, seed=1),
    "a stop string that is kept": completion(max_tokens=40, stop=["9 1"], include_stop_str_in_output=True),
    "a stop string with logprobs": completion(max_tokens=40, stop=["9 1"], logprobs=2, return_token_ids=True),
    "special tokens kept": completion(max_tokens=40, skip_special_tokens=False),
    "the end kept": completion(max_tokens=40, skip_special_tokens=False, include_stop_str_in_output=True),
    "garbage without spaces": completion(
        max_tokens=60,
        ignore_eos=True,
        skip_special_tokens=False,
        spaces_between_special_tokens=False,
        temperature=2.0,
        seed=1,
    ),
    "garbage of many bytes": completion("빨간색", temperature=2.0, seed=5, max_tokens=80, ignore_eos=True),
    "a candidate more": completion(logprobs=2, temperature=2.0, top_k=-1, seed=1, max_tokens=40),
    "logprobs of two choices": completion(logprobs=2, temperature=2.0, seed=1, n=2, return_token_ids=True, **USAGE),
    "usage all along of two choices": completion(**{**TWO, **USAGE_ALL_ALONG}),
    "a stop token": completion(stop_token_ids=[29]),
    "one token": completion(max_tokens=1),
    "nothing but the end": completion(allowed_token_ids=[END_OF_TURN]),
    "a stop string in JSON": completion(response_format=schema("a"), max_tokens=20, stop=["}"]),
}

# A stream cannot have them, and vLLM says so.
ONLY_WHOLE = {
    "prompt logprobs": (CHAT, chat("Count to 3", prompt_logprobs=1)),
    "prompt logprobs of a completion": (COMPLETIONS, completion(prompt_logprobs=2)),
}

# Each of these is wrong if it is asked for all the same.
WRONG = {
    "a tool call stopped": (CHAT, with_tool(stop=["}"])),
    "a stop string too early": (CHAT, chat("Count to 30", stop="4", min_tokens=20)),
    "logprobs as token ids": (CHAT, red(logprobs=True, return_tokens_as_token_ids=True)),
    "logprobs as token ids in a completion": (COMPLETIONS, completion(logprobs=1, return_tokens_as_token_ids=True)),
    "logprobs of reasoning left out": (CHAT, example("thinking", include_reasoning=False, logprobs=True)),
    "candidates by id": (CHAT, red(logprobs=True, logprob_token_ids=[5, 6])),
    "the prompt's text": (CHAT, red(return_prompt_text=True)),
    "an answer to go on with, echoed": (CHAT, begun(echo=True)),
    "echoed": (COMPLETIONS, completion(echo=True)),
}

MORE = {
    **{name: (CHAT, request) for name, request in MORE_CHAT_REQUESTS.items()},
    **{f"completion: {name}": (COMPLETIONS, request) for name, request in MORE_COMPLETION_REQUESTS.items()},
}
ALL = {
    **{name: (CHAT, request) for name, request in CHAT_REQUESTS.items()},
    **{f"completion: {name}": (COMPLETIONS, request) for name, request in COMPLETION_REQUESTS.items()},
    **MORE,
}
REFUSED = {
    "a stop string too early",
    "a tool call stopped",
    "logprobs as token ids",
    "reasoning left out",
    "completion: echoed",
    "completion: echoed from token ids",
    "completion: echoed with token ids",
    "completion: logprobs as token ids",
}

# Special tokens amid the text, which vLLM's parser leaves out where several tokens come at once, on one server as well.
# A null where hidden reasoning would be, which one server has only with a parser.
OTHERWISE = {
    ("reasoning of odd text", Pace.TOGETHER): {".choices.content"},
    **{
        (f"reasoning left out{more}", pace): {".choices.members"}
        for more in (" without logprobs", ", token ids asked for")
        for pace in Pace
    },
}
_INDEX = re.compile(r"\[\d+\]|\.\d+\b")


@pytest.mark.parametrize("case", [*MORE, *ONLY_WHOLE])
async def test_an_answer_is_that_of_one_server(stack: Stack, client: aiohttp.ClientSession, case: str) -> None:
    """Every member, ids and times aside."""
    path, request = {**MORE, **ONLY_WHOLE}[case]
    request = {name: value for name, value in request.items() if name != "stream_options"}
    refuse(api_request(path, request))
    assert await differing(stack, client, path, request) == []


@pytest.mark.parametrize("pace", Pace)
@pytest.mark.parametrize("case", [name for name in ALL if name not in REFUSED])
async def test_a_stream_is_that_of_one_server(
    stack: Stack, client: aiohttp.ClientSession, case: str, pace: Pace
) -> None:
    """Joined deltas, finish and stop reasons, usage, logprobs, tool calls, and the order of the kinds of chunk."""
    path, request = ALL[case]
    request = {**request, "stream": True}
    refuse(api_request(path, request))
    ours = chat_joined(await derendered_stream(client, stack, path, request, pace))
    theirs = chat_joined((await post(client, stack.vllm_engine_urls[0] + path, request)).text())
    found = [*differences(without_what_bare_pods_lack(ours), without_what_bare_pods_lack(theirs))]
    places = {_INDEX.sub("", each.partition(" ")[0]) for each in found}
    assert places == OTHERWISE.get((case, pace), set()), found


@pytest.mark.parametrize("case", sorted(REFUSED))
def test_what_cannot_be_served_is_refused(case: str) -> None:
    """Of the requests that the plugin serves."""
    with pytest.raises(BadRequest):
        refuse(api_request(*ALL[case]))


@pytest.mark.parametrize("case", WRONG)
async def test_what_is_refused_would_be_wrong(stack: Stack, client: aiohttp.ClientSession, case: str) -> None:
    """Else there would be no need for it."""
    path, request = WRONG[case]
    with pytest.raises(BadRequest):
        refuse(api_request(path, request))
    assert await differing(stack, client, path, request)


async def differing(stack: Stack, client: aiohttp.ClientSession, path: str, request: dict[str, Any]) -> list[str]:
    """Where our answer differs from one server's."""
    ours = await derendered_whole(client, stack, path, request)
    theirs = await ok(client, stack.vllm_engine_urls[0] + path, request)
    return [*differences(*(without_what_bare_pods_lack(without_own(each)) for each in (ours, theirs)))]
