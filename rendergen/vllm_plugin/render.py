"""Render routes that answer with frames where they are asked for, and with signed JSON where not."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import Request, Response
from fastapi.responses import JSONResponse
from starlette.requests import ClientDisconnect
from vllm.entrypoints.anthropic.protocol import AnthropicMessagesRequest
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.completion.protocol import CompletionRequest
from vllm.entrypoints.openai.responses.protocol import ResponsesRequest
from vllm.entrypoints.scale_out.render.serving import ServingRender
from vllm.entrypoints.scale_out.token_in_token_out.protocol import GenerateRequest
from vllm.entrypoints.serve.engine.protocol import ErrorResponse
from vllm.entrypoints.serve.utils.api_utils import validate_json_request

from rendergen.payload import Piece
from rendergen.payload.frames import (
    MEDIA_TYPE,
    FramesPayload,
    MalformedFrames,
    write_frames,
)
from rendergen.vllm_plugin.attestation import Attestor
from rendergen.vllm_plugin.codec import frame_items, items_of_input, json_data, token_bytes
from rendergen.vllm_plugin.errors import BadPayload, Refusal
from rendergen.vllm_plugin.gate import RenderGate
from rendergen.vllm_plugin.http import PiecesResponse, closed, prefers, read_body, refusal, unless_gone
from rendergen.vllm_plugin.json_body import parsed

JSON = "application/json"
DEADLINE = "x-rendergen-deadline-ms"
"""Header: how many milliseconds the caller will wait."""


class RecordingRender(ServingRender):
    """vLLM's render, which keeps each rendered prompt instead of encoding its tensors.

    One is made for each request, by `record`.
    """

    inputs: list[Any]

    def record(self) -> RecordingRender:
        """One for a request of its own."""
        own = copy.copy(self)
        own.inputs = []
        return own

    def _extract_mm_features(self, engine_input: Any, *, mm_payload: Any = "tensors") -> Any:
        self.inputs.append((engine_input, mm_payload))
        return super()._extract_mm_features(engine_input, mm_payload="none")

    def metadata_fields(self, modality: str) -> frozenset[str]:
        """Names of the fields that an encoder cache's consumer needs beside those kept on the CPU."""
        return frozenset(self._placeholder_metadata_fields(modality))


@dataclass(frozen=True, slots=True)
class RenderRoutes:
    """The routes' handlers.

    Attributes:
        serving: renders.
        gate: how many at a time.
        attestor: says where a payload comes from.
        max_body_bytes: largest request taken.
    """

    serving: RecordingRender
    gate: RenderGate
    attestor: Attestor
    max_body_bytes: int

    async def chat(self, raw_request: Request) -> Response:
        """``POST /v1/chat/completions/render``."""

        async def render(serving: RecordingRender, request: ChatCompletionRequest) -> Any:
            return await serving.render_chat_request(request, raw_request)

        return await self._answer(raw_request, ChatCompletionRequest, render)

    async def completions(self, raw_request: Request) -> Response:
        """``POST /v1/completions/render``: as many payloads as there are prompts."""

        async def render(serving: RecordingRender, request: CompletionRequest) -> Any:
            return await serving.render_completion_request(request, raw_request)

        return await self._answer(raw_request, CompletionRequest, render)

    async def messages(self, raw_request: Request) -> Response:
        """``POST /v1/messages/render``."""

        async def render(serving: RecordingRender, request: AnthropicMessagesRequest) -> Any:
            return await serving.render_messages_request(request, raw_request)

        return await self._answer(raw_request, AnthropicMessagesRequest, render)

    async def responses(self, raw_request: Request) -> Response:
        """``POST /v1/responses/render``."""

        async def render(serving: RecordingRender, request: ResponsesRequest) -> Any:
            return await serving.render_responses_request(request)

        return await self._answer(raw_request, ResponsesRequest, render)

    async def _answer(
        self, raw_request: Request, model: Any, render: Callable[[RecordingRender, Any], Awaitable[Any]]
    ) -> Response:
        try:
            deadline = _deadline(raw_request)
            self.gate.require_room()
            await validate_json_request(raw_request)
            body = await read_body(raw_request, self.max_body_bytes)
            request, _ = await parsed(body, model)
            as_frames = prefers(raw_request.headers.get("accept"), MEDIA_TYPE, JSON)
            return await unless_gone(raw_request, self._rendered(request, render, deadline, as_frames))
        except Refusal as error:
            return refusal(error)
        except ClientDisconnect:
            return closed()

    async def _rendered(
        self,
        request: Any,
        render: Callable[[RecordingRender, Any], Awaitable[Any]],
        deadline: float | None,
        as_frames: bool,
    ) -> Response:
        serving = self.serving.record()
        async with self.gate.turn(deadline):
            result = await render(serving, request)
            if isinstance(result, ErrorResponse):
                return JSONResponse(result.model_dump(), status_code=result.error.code)
            is_list = isinstance(result, list)
            requests = result if is_list else [result]
            rendered = [Rendered(*each) for each in zip(requests, serving.inputs, strict=True)]
            if as_frames:
                return PiecesResponse(await asyncio.to_thread(self._frames, rendered), MEDIA_TYPE)
            return Response(await asyncio.to_thread(self._json, rendered, is_list), media_type=JSON)

    def _frames(self, rendered: Sequence[Rendered]) -> list[Piece]:
        pieces: list[Piece] = []
        for index, each in enumerate(rendered):
            items = each.items(self.serving.metadata_fields)
            token_ids = token_bytes(each.request.token_ids)
            attestation = self.attestor.attest(token_ids, items)
            payload = FramesPayload(
                request=each.request.model_dump(exclude={"token_ids", "features", "sampling_params"}),
                token_ids=token_ids,
                items=frame_items(items),
                sampling_params=each.sampling_params(),
                fingerprint=attestation.fingerprint,
                signature=attestation.signature,
                index=index,
                count=len(rendered),
            )
            try:
                pieces += write_frames(payload)
            except MalformedFrames as error:
                raise BadPayload(f"The request cannot be rendered as frames: {error}.") from error
        return pieces

    def _json(self, rendered: Sequence[Rendered], is_list: bool) -> bytes:
        documents = []
        for each in rendered:
            items = each.items(self.serving.metadata_fields)
            if each.request.features is not None and each.mm_payload == "tensors":
                each.request.features.kwargs_data, each.request.features.mm_metadata = json_data(items)
            attestation = self.attestor.attest(token_bytes(each.request.token_ids), items)
            documents.append({**each.request.model_dump(), "rendergen": attestation.member(items)})
        value = documents if is_list else documents[0]
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True)
class Rendered:
    """One rendered prompt.

    Attributes:
        request: vLLM's generate request, without tensors.
        recorded: the prompt with its tensors, and which of its parts the caller asked for (`mm_payload`).
    """

    request: GenerateRequest
    recorded: tuple[Any, str]

    @property
    def engine_input(self) -> Any:
        return self.recorded[0]

    @property
    def mm_payload(self) -> Any:
        return self.recorded[1]

    def items(self, metadata_fields: Callable[[str], frozenset[str]]) -> list[Any]:
        """Its multimodal items; without their tensors where the caller did not ask for those."""
        engine_input = self.engine_input
        if engine_input.get("type") != "multimodal":
            return []
        if self.mm_payload != "tensors":
            engine_input = {**engine_input, "mm_kwargs": {}}
        names = {modality: metadata_fields(modality) for modality in engine_input["mm_placeholders"]}
        return items_of_input(engine_input, names)

    def sampling_params(self) -> bytes:
        """As JSON, `max_tokens` with them, which vLLM leaves out where it is 16."""
        params = self.request.model_dump(include={"sampling_params"})["sampling_params"]
        params["max_tokens"] = self.request.sampling_params.max_tokens
        return json.dumps(params, separators=(",", ":")).encode()


def _deadline(request: Request) -> float | None:
    """Until when the caller waits, by the event loop's clock, counted from here."""
    text = request.headers.get(DEADLINE)
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 12:
        raise BadPayload(f"The header {DEADLINE} is no number of milliseconds.")
    return asyncio.get_running_loop().time() + int(text) / 1000
