"""Sampling params that the engine and its sampler can take.

vLLM checks most of them itself, some only for some backends, and some after they have reached the engine. What is
checked here holds whatever the backend: every number is finite and fits the 64 bits that carry it to the engine, every
token id is one of the model's, and nothing comes in by a side door.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from vllm import SamplingParams

from rendergen.vllm_plugin.errors import BadPayload
from rendergen.vllm_plugin.trust.values import check_values

TOKEN_IDS = ("stop_token_ids", "allowed_token_ids", "logprob_token_ids", "trace_decode_token_ids", "logit_bias")
"""Fields whose elements (or keys) are token ids: each becomes an index into the logits."""

NOT_WITH_TRACE = (
    *("prompt_logprobs", "prompt_logprob_token_ids", "structured_outputs", "repetition_detection"),
    *("thinking_token_budget", "bad_words"),
)
"""Fields that vLLM's replay of given tokens excludes: it answers 500 for them."""

TRANSFER_PARAMS = ("kv_transfer_params", "ec_transfer_params")
"""Members of `extra_args` that make an engine fetch another pod's caches."""


MAX_TOKEN_IDS = 65_536
"""How many ids one field may list: each is looked at again for every request in the batch, and no vocabulary's worth of
duplicates says more."""

_FLOAT32 = np.finfo(np.float32)


def check_sampling_params(
    params: SamplingParams, *, vocab_size: int, max_model_len: int, allow_transfer_params: bool = False
) -> None:
    """Check every field.

    Args:
        params: as vLLM made them, which has checked ranges.
        vocab_size: how many logits the model has.
        max_model_len: tokens of context.
        allow_transfer_params: whether `extra_args` may have what makes the engine fetch another pod's caches.

    Raises BadPayload, naming the field.
    """
    for name in params.__struct_fields__:
        check_values(name, getattr(params, name), param=f"sampling_params.{name}")
    for name in TOKEN_IDS:
        _check_token_ids(name, getattr(params, name), vocab_size)
    if params.prompt_logprob_token_ids is not None:
        _check_prompt_logprob_ids(params.prompt_logprob_token_ids, vocab_size, max_model_len)
    _check_seed(params)
    _check_float32("repetition_penalty", params.repetition_penalty, float(_FLOAT32.tiny))
    for token, bias in (params.logit_bias or {}).items():
        _check_float32(f"logit_bias of token {token}", bias, -float(_FLOAT32.max))
    _check_trace(params)
    if not allow_transfer_params:
        for name in TRANSFER_PARAMS:
            if name in (params.extra_args or {}):
                raise _bad("extra_args", f"extra_args holds {name}, which this server does not allow")


def _check_token_ids(name: str, ids: Any, vocab_size: int) -> None:
    if not ids:
        return
    most = max(MAX_TOKEN_IDS, vocab_size)
    if len(ids) > most:
        raise _bad(name, f"{name} has {len(ids)} token ids, and may have at most {most}")
    for token in ids:
        if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token < vocab_size:
            raise _bad(name, f"{name} has token id {str(token)[:40]}, and this model's are 0 to {vocab_size - 1}")


def _check_prompt_logprob_ids(rows: Any, vocab_size: int, max_model_len: int) -> None:
    """One row of ids for a prompt token, -1 where a row is shorter than others."""
    name = "prompt_logprob_token_ids"
    if len(rows) >= max_model_len:
        raise _bad(name, f"{name} has {len(rows)} rows, and a prompt here has at most {max_model_len - 1}")
    for row in rows:
        for token in np.asarray(row).ravel().tolist():
            if not isinstance(token, int) or not -1 <= token < vocab_size:
                raise _bad(name, f"{name} has token id {str(token)[:40]}, and this model's are 0 to {vocab_size - 1}")


def _check_seed(params: SamplingParams) -> None:
    """Each of n samples has a seed of its own, counted up from the one that was given."""
    if params.seed is not None and params.seed + params.n > 2**64:
        raise _bad("seed", f"seed is {params.seed}, and with n = {params.n} must be at most {2**64 - params.n}")


def _check_float32(name: str, value: float, low: float) -> None:
    """The value survives being made a float32, as samplers do: neither infinite nor, with `low` above 0, zero."""
    if not low <= value <= float(_FLOAT32.max):
        raise _bad(name.split(" ")[0], f"{name} is {value}, and must be between {low:.3g} and {_FLOAT32.max:.3g}")


def _check_trace(params: SamplingParams) -> None:
    name = "trace_decode_token_ids"
    if params.trace_decode_token_ids is None:
        return
    if not params.trace_decode_token_ids:
        raise _bad(name, f"{name} is empty: leave it out")
    if params.n != 1:
        raise _bad(name, f"{name} needs n = 1, not {params.n}")
    for other in NOT_WITH_TRACE:
        value = getattr(params, other)
        if value is not None and not (isinstance(value, list) and not value):
            raise _bad(name, f"{name} cannot be combined with {other}")


def _bad(name: str, message: str) -> BadPayload:
    return BadPayload(message, param=f"sampling_params.{name}")
