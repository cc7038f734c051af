"""Requests of `/v1/completions`."""

from __future__ import annotations

from typing import Any

from tests.e2e.parity.bodies import END_OF_TURN, USAGE, USAGE_ALL_ALONG, completion, schema

# Of one prompt.
COMPLETION_REQUESTS: dict[str, dict[str, Any]] = {
    "plain": completion(),
    "by token ids": completion([16, 17, 18, 19]),
    "16 tokens, which are the default": {**completion(ignore_eos=True), "max_tokens": None},
    "usage": completion(**USAGE),
    "usage all along": completion(**USAGE_ALL_ALONG),
    "logprobs": completion(logprobs=3),
    "logprobs of the sampled tokens alone": completion(logprobs=0),
    "logprobs as token ids": completion(logprobs=2, return_tokens_as_token_ids=True),
    "odd logprobs": completion("빨간색", logprobs=4, temperature=2.0, seed=3, max_tokens=30),
    "a stop string": completion(max_tokens=40, stop=["9 1"]),
    "token ids": completion(return_token_ids=True),
    "three choices": completion(n=3, temperature=1.3, seed=4, **USAGE),
    "echoed": completion(echo=True, max_tokens=4),
    "echoed from token ids": completion([16, 17, 18, 19], echo=True),
    "echoed with token ids": completion(echo=True, return_token_ids=True),
    "a JSON schema": completion(response_format=schema("a"), max_tokens=20),
}

# These need log probabilities of the prompt, which generate's stream does not have.
COMPLETIONS_ONLY_WHOLE: dict[str, dict[str, Any]] = {
    "prompt logprobs": completion(prompt_logprobs=2),
    "echoed with logprobs": completion(echo=True, logprobs=2),
    "the prompt alone, with logprobs": completion(echo=True, logprobs=2, max_tokens=0),
}

MORE_COMPLETIONS: dict[str, dict[str, Any]] = {
    "no limit given": {name: value for name, value in completion(ignore_eos=True).items() if name != "max_tokens"},
    "one token": completion(max_tokens=1),
    "a stop string that is kept": completion(max_tokens=40, stop="9 1", include_stop_str_in_output=True),
    "a stop token": completion(stop_token_ids=[20], max_tokens=30),
    "the end ignored": completion("Count to 3", ignore_eos=True, max_tokens=20),
    "nothing but the end": completion(allowed_token_ids=[END_OF_TURN]),
    "a seed": completion(temperature=1.5, seed=7),
    "penalties": completion(frequency_penalty=1.0, presence_penalty=1.0, repetition_penalty=1.2),
    "a bias": completion(logit_bias={"600": 100}, max_tokens=3),
    "a choice": completion(structured_outputs={"choice": ["Green", "Blue"]}),
    "a regular expression": completion(structured_outputs={"regex": "[0-9]{3}"}),
    "a truncated prompt": completion(truncate_prompt_tokens=3),
    "no special tokens": completion(add_special_tokens=False, skip_special_tokens=False),
    "a suffix of nothing": completion(suffix=None, user="u", no_such_member=1),
    "candidates beside the sampled token": completion(logprobs=2, temperature=2.0, top_k=-1, seed=1, max_tokens=20),
    "odd text": completion("a\u2028b 👩‍👩‍👧 \x00", max_tokens=6),
    "no model": {name: value for name, value in completion().items() if name != "model"},
}

SEVERAL_PROMPTS: dict[str, dict[str, Any]] = {
    "two prompts": completion(["1 2 3 4", "7 8 9"], **USAGE),
    "two prompts by token ids": completion([[16, 17, 18, 19], [20, 21]]),
    "the same prompt twice": completion(["1 2 3", "1 2 3"]),
    "one prompt in a list": completion(["1 2 3 4"]),
    "five prompts": completion([f"{i} {i + 1} {i + 2}" for i in range(5)], max_tokens=5),
    "two prompts of two choices": completion(["1 2 3 4", "7 8 9"], n=2, temperature=1.1, seed=3, max_tokens=6, **USAGE),
    "two prompts with logprobs": completion(["1 2 3 4", "7 8 9"], logprobs=2, max_tokens=5),
    "two prompts echoed": completion(["1 2 3 4", "7 8 9"], echo=True, max_tokens=5),
    "two prompts with a stop string": completion(["1 2 3 4", "7 8 9"], stop=["11 1"], max_tokens=30),
    "two prompts with token ids": completion(["1 2 3 4", "7 8 9"], return_token_ids=True, max_tokens=5),
    "two prompts with usage all along": completion(["1 2 3 4", "7 8 9"], max_tokens=5, **USAGE_ALL_ALONG),
}
