"""Generate's answer as the outputs of an engine: what vLLM's own serving layer reads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from vllm.exceptions import GenerationError
from vllm.logprobs import Logprob
from vllm.outputs import RequestOutput
from vllm.sampling_params import RequestOutputKind, SamplingParams

from rendergen.sse import Event, EventReader, EventTooLarge
from rendergen.vllm_plugin.derender.body import RequestBody
from rendergen.vllm_plugin.derender.choices import Choice, text_params
from rendergen.vllm_plugin.derender.context import Context
from rendergen.vllm_plugin.derender.failures import AnsweredError, BrokenGeneration, CallerLeft, Failure
from rendergen.vllm_plugin.derender.generated import Generated, GeneratedChoice, Logprobs, decode
from rendergen.vllm_plugin.derender.limits import DerenderLimits
from rendergen.vllm_plugin.errors import BadPayload, Refusal, TooLarge

PromptLogprobs = list[dict[int, Logprob] | None] | None

_DONE = b"[DONE]"

# What is read before others have their turn: of nothing but empty lines it takes some milliseconds.
_STRETCH_BYTES = 4 * 1024
_BLANKS = b" \t\r\n"

# So many steps of a stream are taken before others on the event loop have their turn.
_STEPS_A_TURN = 16

# What is more is worked on off the event loop, where that can be done at once.
_FEW_TOKENS = 256
_FEW_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class _SpecDecodeMetrics:
    """Stands for the engine's own, of which the serving layer reads this alone."""

    values: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        return self.values


class Generation:
    """Reads generate's answer from the body, streamed or not, and gives it out once, as the engine would."""

    def __init__(
        self, body: RequestBody, context: Context, tokenizer: Any, max_model_len: int, limits: DerenderLimits
    ) -> None:
        self.failure: Failure | None = None
        """What ended it before its time. The serving layer is then told that the engine failed."""
        self.began = False
        """Whether anything of an answer came. Until then, an error can still be said by a status."""
        self.echoes_logprobs = False
        """Whether log probabilities of the prompt, where asked for, are part of a stream too."""
        self._body = body
        self.context = context
        self._prompt = context.prompt()
        self._tokenizer = tokenizer
        self._max_model_len = max_model_len
        self._limits = limits

    async def outputs(self, params: SamplingParams) -> AsyncGenerator[RequestOutput, None]:
        """What the engine would have put out for these sampling params.

        Raises vLLM's GenerationError where there is a `failure`, which the serving layer takes without a word.
        """
        try:
            choices = self._choices(params)
            if params.output_kind is RequestOutputKind.DELTA:
                async for output in self._deltas(choices, params):
                    yield output
            else:
                yield await self._whole(choices, params)
        except (Refusal, AnsweredError, CallerLeft) as failure:
            self.failure = failure
            raise GenerationError("generate's answer did not come to its end") from failure

    def _choices(self, params: SamplingParams) -> Sequence[Choice]:
        if params.n > self._limits.choices:
            raise BadPayload(f"n is {params.n}; at most {self._limits.choices} are derendered at once", param="n")
        if params.logprobs is None and params.logprob_token_ids:
            raise BadPayload("generate does not answer with candidates by token id", param="logprob_token_ids")
        how = text_params(params, self.context.sampling_params)
        return [Choice(i, self._prompt, how, self._tokenizer, self._max_model_len) for i in range(params.n)]

    async def _deltas(self, choices: Sequence[Choice], params: SamplingParams) -> AsyncIterator[RequestOutput]:
        output: RequestOutput | None = None
        count = 0
        async for generated, whole in self._generated():
            if self.echoes_logprobs:
                _check_prompt_logprobs(generated, params)
            prompt_logprobs = _prompt_logprobs(generated)
            for piece in generated.choices:
                choice = self._choice(choices, piece)
                choice.require_room(len(piece.token_ids or ()))
                of_prompt = prompt_logprobs  # with each choice's first output
                for step in _steps(piece) if whole or len(piece.token_ids or ()) > _FEW_TOKENS else (piece,):
                    choice.take(step)
                    outputs = [choice.delta(step)]
                    output = self._output(generated, outputs, of_prompt, choice.finish_reason is not None)
                    of_prompt = None
                    yield output
                    count += 1
                    if count % _STEPS_A_TURN == 0:
                        await self._body.turn()
            if output is not None:
                _note_metrics(output, generated)
        _check_finished(choices)

    async def _whole(self, choices: Sequence[Choice], params: SamplingParams) -> RequestOutput:
        last = Generated()
        async for generated, _ in self._generated():
            for piece in generated.choices:
                choice = self._choice(choices, piece)
                if len(piece.token_ids or ()) > _FEW_TOKENS:
                    await asyncio.to_thread(choice.take, piece)
                else:
                    choice.take(piece)
            _check_prompt_logprobs(generated, params)
            last = generated
        _check_finished(choices)
        output = self._output(last, [choice.whole() for choice in choices], _prompt_logprobs(last), True)
        _note_metrics(output, last)
        return output

    def _choice(self, choices: Sequence[Choice], piece: GeneratedChoice) -> Choice:
        if not 0 <= piece.index < len(choices):
            raise BrokenGeneration(f"generate answered with choice {piece.index}; the request has {len(choices)}")
        return choices[piece.index]

    def _output(
        self, generated: Generated, outputs: list[Any], prompt_logprobs: PromptLogprobs, finished: bool
    ) -> RequestOutput:
        details = generated.usage.prompt_tokens_details if generated.usage is not None else None
        return RequestOutput(
            request_id=self.context.request_id or "",
            prompt=self.context.prompt_text,
            prompt_token_ids=self._prompt,
            prompt_logprobs=prompt_logprobs,
            outputs=outputs,
            finished=finished,
            num_cached_tokens=details.cached_tokens if details is not None else None,
            num_cache_creation_tokens=details.created_cache_tokens if details is not None else None,
            kv_transfer_params=generated.kv_transfer_params,
            ec_transfer_params=generated.ec_transfer_params,
        )

    async def _generated(self) -> AsyncIterator[tuple[Generated, bool]]:
        """Each event, or the whole answer; and whether it is the whole."""
        first = b""
        while not first:
            chunk = await self._body.chunk()
            if not chunk:
                raise BrokenGeneration("the body ended where generate's answer should begin")
            first = chunk.lstrip(_BLANKS)
        if first.startswith(b"{"):  # no event stream begins so: its lines are `field: value` or `: comment`
            data = await self._body.rest(self._limits.answer_bytes, first)
            whole = await asyncio.to_thread(decode, data) if len(data) > _FEW_BYTES else decode(data)
            self.began = True
            yield whole, True
            return
        reader = EventReader(self._limits.event_bytes)
        count = 0
        chunk = first
        while chunk:
            for start in range(0, len(chunk), _STRETCH_BYTES):
                if start:
                    await self._body.turn()
                for event in _fed(reader, chunk[start : start + _STRETCH_BYTES]):
                    if not event.data:
                        continue
                    if event.data == _DONE:
                        return
                    count += 1
                    if count > self._limits.events:
                        raise BrokenGeneration(f"generate's stream has more than {self._limits.events} events")
                    generated = decode(event.data)
                    self.began = True
                    yield generated, False
            chunk = await self._body.chunk()


def _fed(reader: EventReader, chunk: bytes) -> list[Event]:
    try:
        return reader.feed(chunk)
    except EventTooLarge as error:
        raise TooLarge(
            f"an event of generate's stream is over the limit of {error.limit} bytes; ask for fewer log probabilities"
        ) from error


def _steps(piece: GeneratedChoice) -> Iterator[GeneratedChoice]:
    """The piece token by token, as an engine makes them: parsers of streams are written for that."""
    token_ids = piece.token_ids or []
    if not token_ids:
        yield piece
        return
    positions = piece.logprobs.content if piece.logprobs is not None else None
    last = len(token_ids) - 1
    for i, token_id in enumerate(token_ids[:last]):
        logprobs = Logprobs(positions[i : i + 1]) if positions is not None else None
        yield GeneratedChoice(piece.index, [token_id], logprobs)
    rest = Logprobs(positions[last:]) if positions is not None else None
    yield msgspec.structs.replace(piece, token_ids=token_ids[last:], logprobs=rest)


def _check_finished(choices: Sequence[Choice]) -> None:
    for choice in choices:
        if choice.finish_reason is None:
            raise BrokenGeneration(f"generate's answer ended before choice {choice.index} had finished")


def _check_prompt_logprobs(generated: Generated, params: SamplingParams) -> None:
    if params.prompt_logprobs is not None and generated.prompt_logprobs is None:
        raise BadPayload(
            "log probabilities of the prompt are not in generate's stream; ask generate with stream: false",
            param="prompt_logprobs",
        )


def _note_metrics(output: RequestOutput, generated: Generated) -> None:
    """Metrics come in an event after the last tokens; the serving layer reads them from the last output it got."""
    if generated.metrics is not None and generated.metrics.speculative_decoding is not None:
        output.outputs[0].spec_decode_metrics = _SpecDecodeMetrics(generated.metrics.speculative_decoding)


def _prompt_logprobs(generated: Generated) -> PromptLogprobs:
    if generated.prompt_logprobs is None:
        return None
    return [
        None
        if candidates is None
        else {
            token_id: Logprob(logprob=each.logprob, rank=each.rank, decoded_token=each.decoded_token)
            for token_id, each in candidates.items()
        }
        for candidates in generated.prompt_logprobs
    ]
