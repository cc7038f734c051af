"""Generate's answer as values, out of the JSON of an event or of the whole answer.

Decoding checks the types, so that nothing of another shape reaches what comes behind. Members that are not named here
are left out.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

import msgspec

from rendergen.vllm_plugin.derender.failures import AnsweredError, BrokenGeneration

TokenId = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]


class Candidate(msgspec.Struct, frozen=True):
    """A token with its log probability; `rank` is 1 for the most probable."""

    token_id: TokenId
    logprob: float
    rank: int | None = None


class Position(msgspec.Struct, frozen=True):
    """The token that was sampled at one position, and the candidates there, the sampled one first."""

    token_id: TokenId
    logprob: float
    rank: int | None = None
    top_logprobs: list[Candidate] = []


class Logprobs(msgspec.Struct, frozen=True):
    """One position for each token."""

    content: list[Position] | None = None


class GeneratedChoice(msgspec.Struct, frozen=True):
    """What is new of one choice."""

    index: int
    token_ids: list[TokenId] | None = None
    logprobs: Logprobs | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    routed_experts: str | None = None


class PromptTokensDetails(msgspec.Struct, frozen=True):
    """Of the prompt's tokens, those whose state was in the engine's cache."""

    cached_tokens: int | None = None
    created_cache_tokens: int | None = None


class Usage(msgspec.Struct, frozen=True):
    """Counts of tokens. We count ourselves, and take over only what generate alone knows."""

    prompt_tokens_details: PromptTokensDetails | None = None


class PromptLogprob(msgspec.Struct, frozen=True):
    """vLLM's own form of a candidate, in which log probabilities of the prompt travel."""

    logprob: float
    rank: int | None = None
    decoded_token: str | None = None


class Metrics(msgspec.Struct, frozen=True):
    """What is known of how it was generated."""

    speculative_decoding: dict[str, Any] | None = None


class Generated(msgspec.Struct, frozen=True):
    """One event, or the whole answer."""

    choices: list[GeneratedChoice] = []
    output_mode: str = "tokens"
    usage: Usage | None = None
    metrics: Metrics | None = None
    error: dict[str, Any] | None = None
    prompt_logprobs: list[dict[int, PromptLogprob] | None] | None = None
    kv_transfer_params: dict[str, Any] | None = None
    ec_transfer_params: dict[str, Any] | None = None


_T = TypeVar("_T")
_decoder = msgspec.json.Decoder(Generated)


def decode(data: bytes) -> Generated:
    """Raises AnsweredError for an error that generate reports, and BrokenGeneration for what is no answer of its."""
    try:
        generated = _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BrokenGeneration(f"what came as generate's answer is not one: {error}") from error
    if generated.error is not None:
        raise _answered(generated.error)
    if generated.output_mode != "tokens":
        raise BrokenGeneration(
            f"generate answered with output_mode={generated.output_mode!r}; derender needs 'tokens', its default"
        )
    return generated


def _answered(error: dict[str, Any]) -> AnsweredError:
    """Generate's own error, in OpenAI's form whatever of that came."""
    status = _status(error.get("code"))
    message, kind, param = error.get("message"), error.get("type"), error.get("param")
    body = {
        "message": message if isinstance(message, str) and message else "generate failed without saying why",
        "type": kind if isinstance(kind, str) and kind else "InternalServerError",
        "param": param if isinstance(param, str) else None,
        "code": status,
    }
    return AnsweredError(status, {"error": body})


def _status(code: object) -> int:
    """The HTTP status that an error's `code` stands for: vLLM puts the status there."""
    return code if isinstance(code, int) and 400 <= code <= 599 else 500
