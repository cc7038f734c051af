"""Sampling params that would reach the engine and should not."""

from __future__ import annotations

from typing import Any

import pytest
from vllm import SamplingParams
from vllm.sampling_params import RepetitionDetectionParams, StructuredOutputsParams

from rendergen.vllm_plugin.errors import BadPayload
from rendergen.vllm_plugin.trust.sampling import check_sampling_params

VOCAB = 768
NAN, INFINITY = float("nan"), float("inf")


def check(params: SamplingParams, **options: Any) -> None:
    """As the tiny model's server does."""
    check_sampling_params(params, vocab_size=VOCAB, max_model_len=4096, **options)


def nested(levels: int) -> Any:
    """A list in a list in a list …"""
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


GOOD: dict[str, dict[str, Any]] = {
    "defaults": {},
    "greedy": {"temperature": 0.0, "max_tokens": 4031, "skip_reading_prefix_cache": False},
    "all at once": {
        "temperature": 1.5,
        "top_p": 0.1,
        "top_k": 7,
        "min_p": 0.2,
        "presence_penalty": -2.0,
        "frequency_penalty": 2.0,
        "repetition_penalty": 1.2,
        "seed": 2**63 - 1,
        "n": 4,
        "stop": ["END", "끝", "🟥"],
        "stop_token_ids": [0, 767],
        "min_tokens": 3,
        "logprobs": 5,
        "prompt_logprobs": 0,
        "bad_words": ["Red"],
        "logit_bias": {0: -100.0, 767: 100.0},
        "allowed_token_ids": [0, 767],
        "thinking_token_budget": 5,
        "extra_args": {"custom": {"depth": [1, 2.5, "é", None, True]}},
    },
    "the last seed": {"seed": 2**64 - 2, "n": 2},
    "a grammar": {"structured_outputs": StructuredOutputsParams(json={"type": "object", "properties": {}})},
    "repetition": {"repetition_detection": RepetitionDetectionParams(10, 1, 3)},
    "ids to score": {"logprob_token_ids": [0, 767]},
    "ids to score the prompt with": {"prompt_logprob_token_ids": [[0, 767], [-1, 5]]},
    "no limit": {"max_tokens": None},
    "a trace": {"trace_decode_token_ids": [0, 767]},
    "deep, but not too deep": {"extra_args": {"a": nested(30)}},
}


@pytest.mark.parametrize("case", GOOD)
def test_good_params(case: str) -> None:
    """What callers may ask for."""
    check(SamplingParams(**GOOD[case]))


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "a bias of NaN": ({"logit_bias": {5: NAN}}, "logit_bias is nan"),
    "an infinite bias": ({"logit_bias": {5: -INFINITY}}, "logit_bias is -inf"),
    "a bias beyond float32": ({"logit_bias": {5: 1e39}}, "logit_bias of token 5 is 1e\\+39"),
    "a bias below float32": ({"logit_bias": {5: -1e39}}, "must be between"),
    "a bias of no token": ({"logit_bias": {768: 1.0}}, "logit_bias has token id 768, .* are 0 to 767"),
    "a bias of a negative token": ({"logit_bias": {-1: 1.0}}, "token id -1"),
    "a stop token that is none": ({"stop_token_ids": [768]}, "stop_token_ids has token id 768"),
    "a huge stop token": ({"stop_token_ids": [2**70]}, "stop_token_ids has an integer that does not fit"),
    "an allowed token that is none": ({"allowed_token_ids": [1, -1]}, "allowed_token_ids has token id -1"),
    "a scored token that is none": ({"logprob_token_ids": [10**9]}, "logprob_token_ids has token id 1000000000"),
    "a scored prompt token that is none": ({"prompt_logprob_token_ids": [[1], [768]]}, "token id 768"),
    "padding beyond -1": ({"prompt_logprob_token_ids": [[-2]]}, "token id -2"),
    "more rows than a prompt has": ({"prompt_logprob_token_ids": [[1]] * 4096}, "4096 rows"),
    "more ids than there are": ({"allowed_token_ids": [5] * 70_000}, "70000 token ids"),
    "a traced token that is none": ({"trace_decode_token_ids": [768]}, "token id 768"),
    "an empty trace": ({"trace_decode_token_ids": []}, "empty"),
    "a trace for two": ({"trace_decode_token_ids": [1], "n": 2}, "needs n = 1"),
    "a trace and bad words": ({"trace_decode_token_ids": [1], "bad_words": ["x"]}, "combined with bad_words"),
    "a penalty that becomes 0": ({"repetition_penalty": 1e-300}, "repetition_penalty is 1e-300"),
    "a penalty that becomes infinite": ({"repetition_penalty": 1e300}, "repetition_penalty is 1e\\+300"),
    "a seed of 70 bits": ({"seed": 2**70}, "seed has an integer that does not fit 64 bits"),
    "a seed that is the last, for two": ({"seed": 2**64 - 1, "n": 2}, "must be at most 18446744073709551614"),
    "a count of 70 bits": ({"max_tokens": 2**70}, "max_tokens has an integer"),
    "half an emoji": ({"stop": ["\ud83d"]}, "stop has text with half of a surrogate pair"),
    "half an emoji as a key": ({"extra_args": {"\ud83d": 1}}, "extra_args has text"),
    "NaN among extras": ({"extra_args": {"a": [{"b": NAN}]}}, "extra_args is nan"),
    "NaN in a grammar": (
        {"structured_outputs": StructuredOutputsParams(json={"const": NAN})},
        "structured_outputs is nan",
    ),
    "a huge pattern": ({"repetition_detection": RepetitionDetectionParams(2**70, 1, 2)}, "repetition_detection has"),
    "too deep": ({"extra_args": {"a": nested(40)}}, "nested deeper than 32"),
    "a transfer by the side door": (
        {"extra_args": {"kv_transfer_params": {}}},
        "kv_transfer_params, which .* not allow",
    ),
    "the other transfer": ({"extra_args": {"ec_transfer_params": None}}, "ec_transfer_params"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_params(case: str) -> None:
    """Refused, in words that name the field."""
    params, says = BAD[case]
    with pytest.raises(BadPayload, match=says) as refusal:
        check(SamplingParams(**params))
    assert refusal.value.param is not None
    assert refusal.value.param.removeprefix("sampling_params.") in params


@pytest.mark.parametrize("name", ["temperature", "top_p", "min_p", "presence_penalty", "repetition_penalty"])
@pytest.mark.parametrize("value", [NAN, INFINITY, -INFINITY])
def test_every_float(name: str, value: float) -> None:
    """Set after vLLM has looked, so that our own check is what finds it."""
    params = SamplingParams()
    setattr(params, name, value)
    with pytest.raises(BadPayload, match=f"{name} is"):
        check(params)


def test_transfers_can_be_allowed() -> None:
    """By the same setting as the request's own members."""
    check(SamplingParams(extra_args={"kv_transfer_params": {"do_remote_decode": True}}), allow_transfer_params=True)
