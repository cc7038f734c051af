"""One choice's tokens, rebuilt into what the engine's own output was made of: text, log probabilities, reasons."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from functools import cache
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
from vllm.outputs import CompletionOutput
from vllm.sampling_params import SamplingParams
from vllm.v1.engine.detokenizer import IncrementalDetokenizer
from vllm.v1.engine.logprobs import LogprobsProcessor
from vllm.v1.outputs import LogprobsLists

from rendergen.vllm_plugin.derender.failures import BrokenGeneration
from rendergen.vllm_plugin.derender.generated import GeneratedChoice, Position
from rendergen.vllm_plugin.derender.needs import TEXT_PARAMS
from rendergen.vllm_plugin.errors import BadPayload


def text_params(own: SamplingParams, rendered: Mapping[str, Any] | None) -> SamplingParams:
    """How tokens become text: as vLLM makes of the request, and as rendered where that says otherwise.

    Raises BadPayload when the rendered ones are no sampling params.
    """
    values = {name: getattr(own, name) for name in TEXT_PARAMS}
    values.update((name, rendered[name]) for name in TEXT_PARAMS if rendered and name in rendered)
    try:
        values = {name: msgspec.convert(value, _types()[name]) for name, value in values.items()}
        return SamplingParams(**values, logprobs=own.logprobs, max_tokens=None)
    except ValueError as error:
        raise BadPayload(f"sampling_params: {error}", param="sampling_params") from error


@cache
def _types() -> Mapping[str, Any]:
    return {field.name: field.type for field in msgspec.structs.fields(SamplingParams)}


class Choice:
    """Takes what generate says of one choice, piece by piece."""

    def __init__(
        self, index: int, prompt_token_ids: list[int], params: SamplingParams, tokenizer: Any, max_tokens: int
    ) -> None:
        self.index = index
        self._max_tokens = max_tokens
        self.finish_reason: str | None = None
        self._stop_reason: int | str | None = None
        self._token_ids: list[int] = []
        self._params = params
        self._routed_experts: np.ndarray | None = None
        # All that the two read of the engine's request.
        request = SimpleNamespace(
            sampling_params=params, request_id="", prompt_token_ids=prompt_token_ids, prompt_embeds=None
        )
        tokenizer = tokenizer if params.detokenize else None
        self._detokenizer = IncrementalDetokenizer.from_new_request(tokenizer, request)
        self._logprobs = LogprobsProcessor.from_new_request(tokenizer, request)

    def require_room(self, token_count: int) -> None:
        """Raises BrokenGeneration if so many tokens more are too many: to be asked before any work is done on them."""
        if len(self._token_ids) + token_count > self._max_tokens:
            raise BrokenGeneration(
                f"generate answered with more tokens in choice {self.index} than the model's context has, "
                f"{self._max_tokens}"
            )

    def take(self, piece: GeneratedChoice) -> None:
        """Add new tokens. Raises BrokenGeneration when they cannot be this choice's next ones."""
        if self.finish_reason is not None:
            raise BrokenGeneration(f"generate went on with choice {self.index} after it had finished it")
        token_ids = piece.token_ids or []
        self.require_room(len(token_ids))
        self._token_ids.extend(token_ids)
        # The engine ends at a stop string by its text; the token of any other stop is no part of the text.
        stopped = piece.finish_reason == "stop" and not isinstance(piece.stop_reason, str)
        self._detokenizer.update(token_ids, stopped)
        if self._params.logprobs is not None:
            self._take_logprobs(piece, len(token_ids))
        if piece.routed_experts is not None:
            self._routed_experts = _array(piece.routed_experts)
        self.finish_reason = piece.finish_reason
        self._stop_reason = piece.stop_reason

    def delta(self, piece: GeneratedChoice) -> CompletionOutput:
        """What the engine would put out for this piece in a stream. To be called after `take`, for each piece."""
        token_ids = piece.token_ids or []
        logprobs = self._logprobs.logprobs
        if logprobs:
            logprobs = logprobs[-len(token_ids) :] if token_ids else logprobs[:0]
        return self._output(token_ids, logprobs, delta=True)

    def whole(self) -> CompletionOutput:
        """What the engine would put out in the end where nothing is streamed."""
        return self._output(self._token_ids, self._logprobs.logprobs, delta=False)

    def _output(self, token_ids: list[int], logprobs: Any, *, delta: bool) -> CompletionOutput:
        return CompletionOutput(
            index=self.index,
            text=self._detokenizer.get_next_output_text(self.finish_reason is not None, delta),
            token_ids=token_ids,
            cumulative_logprob=self._logprobs.cumulative_logprob,
            logprobs=logprobs,
            routed_experts=self._routed_experts,
            finish_reason=self.finish_reason,
            stop_reason=self._stop_reason,
        )

    def _take_logprobs(self, piece: GeneratedChoice, token_count: int) -> None:
        positions = (piece.logprobs.content if piece.logprobs is not None else None) or []
        if len(positions) != token_count:
            raise BrokenGeneration(
                f"generate gave log probabilities of {len(positions)} tokens for {token_count}; "
                "they were asked for in the request, so they must be in the sampling params that generate is given"
            )
        if not positions:
            return
        rows = [self._candidates(position) for position in positions]
        # vLLM's own code makes text of them: a byte's token has none of its own, the one that ends a character has all.
        lists = LogprobsLists(
            [np.array([token_id for token_id, _ in row]) for row in rows],
            [np.array([logprob for _, logprob in row]) for row in rows],
            [np.array(position.rank or 0) for position in positions],
        )
        self._logprobs.update_from_output(
            SimpleNamespace(new_logprobs=lists, new_prompt_logprobs_tensors=None, prompt_token_id_logprobs=None)
        )

    def _candidates(self, position: Position) -> list[tuple[int, float]]:
        """Token ids with their log probabilities, the sampled one first, and as many as the engine would keep."""
        row = [(position.token_id, position.logprob)]
        row += [(other.token_id, other.logprob) for other in position.top_logprobs if other.token_id != row[0][0]]
        wanted: int = self._params.logprobs
        if wanted == -1:
            return row
        # The most probable ones, and the sampled one where it is none of them.
        return row[: wanted + (position.rank is None or position.rank > wanted)]


def _array(encoded: str) -> np.ndarray:
    try:
        loaded = np.load(io.BytesIO(base64.b64decode(encoded)), allow_pickle=False)
    except (ValueError, EOFError, OSError, MemoryError) as error:
        raise BrokenGeneration("generate's `routed_experts` is no array") from error
    if not isinstance(loaded, np.ndarray):
        raise BrokenGeneration("generate's `routed_experts` is no array")
    return loaded
