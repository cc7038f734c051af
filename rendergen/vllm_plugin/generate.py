"""The generate route, for frames and for JSON: everything is checked before the engine sees anything."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from fastapi import Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import PrivateAttr
from starlette.requests import ClientDisconnect
from vllm.entrypoints.scale_out.token_in_token_out.protocol import GenerateRequest, GenerateResponseBase
from vllm.entrypoints.scale_out.token_in_token_out.serving import ServingTokens
from vllm.entrypoints.serve.engine.protocol import ErrorResponse
from vllm.entrypoints.serve.utils.api_utils import load_aware_call, validate_json_request
from vllm.inputs import mm_input
from vllm.multimodal.inputs import MultiModalKwargsItems

from rendergen.payload.frame_reader import read_frames
from rendergen.payload.frames import (
    MEDIA_TYPE,
    MalformedFrames,
)
from rendergen.vllm_plugin.attestation import MEMBER, Attestation
from rendergen.vllm_plugin.codec import items_of_frames, items_of_json, place_of, token_bytes
from rendergen.vllm_plugin.errors import BadPayload, Refusal
from rendergen.vllm_plugin.http import closed, media_type, read_body, refusal, unless_gone
from rendergen.vllm_plugin.json_body import parsed, validated
from rendergen.vllm_plugin.trust.checks import Admitted, Checks

_ERROR_EVENT = 'data: {"error"'


class CheckedRequest(GenerateRequest):
    """vLLM's generate request, whose items have been checked and are at hand as tensors."""

    _items: tuple[Admitted, ...] = PrivateAttr(default=())


class _Prepared:
    """Stands where `ServingTokens` asks vLLM's renderer for a prompt: a checked request's is at hand."""

    def __init__(self, renderer: Any) -> None:
        self._inner = renderer
        self.renderer = renderer.renderer

    async def preprocess_completion(self, request: CheckedRequest, **options: Any) -> Any:
        """The engine's input for ``request``, in a list, as vLLM's own has it."""
        if not request._items:
            return await self._inner.preprocess_completion(request, **options)
        values: dict[str, list[Any]] = {}
        hashes: dict[str, list[str]] = {}
        places: dict[str, list[Any]] = {}
        for admitted in request._items:
            modality = admitted.item.modality
            values.setdefault(modality, []).append(admitted.fields)
            hashes.setdefault(modality, []).append(admitted.identity)
            places.setdefault(modality, []).append(place_of(admitted.item))
        return [
            mm_input(
                prompt_token_ids=request.token_ids,
                mm_kwargs=MultiModalKwargsItems(values),
                mm_hashes=hashes,
                mm_placeholders=places,
                cache_salt=request.cache_salt,
            )
        ]


def with_prepared_inputs(serving: ServingTokens) -> ServingTokens:
    """A `ServingTokens` like ``serving``, which takes `CheckedRequest`s."""
    own = copy.copy(serving)
    own.online_renderer = _Prepared(serving.online_renderer)
    return own


@dataclass(frozen=True, slots=True)
class GenerateRoute:
    """The route's handler.

    Attributes:
        serving: generates, made by `with_prepared_inputs`.
        checks: what a payload must pass.
        max_body_bytes: largest request taken.
    """

    serving: ServingTokens
    checks: Checks
    max_body_bytes: int

    async def __call__(self, raw_request: Request) -> Response:
        """``POST /inference/v1/generate``."""
        try:
            as_frames = media_type(raw_request.headers.get("content-type")) == MEDIA_TYPE
            if not as_frames:
                await validate_json_request(raw_request)
            body = await read_body(raw_request, self.max_body_bytes)
            request = await (self._of_frames(body) if as_frames else self._of_json(body))
            return await unless_gone(raw_request, _served(self.serving, request, raw_request=raw_request))
        except Refusal as error:
            return refusal(error)
        except ClientDisconnect:
            return closed()

    async def _of_frames(self, body: memoryview) -> CheckedRequest:
        return await asyncio.to_thread(self._read_frames, body)

    def _read_frames(self, body: memoryview) -> CheckedRequest:
        try:
            payload = read_frames(body)
        except MalformedFrames as error:
            raise BadPayload(f"The payload cannot be read: {error}.") from error
        if payload.count != 1:
            raise BadPayload(f"The payload is one of {payload.count}; they are to be sent one by one.")
        token_ids = np.frombuffer(payload.token_ids, dtype="<u4")
        try:
            params = json.loads(payload.sampling_params)
        except (ValueError, RecursionError) as error:
            raise BadPayload("The payload's sampling params are no JSON.") from error
        members = {**payload.request, "token_ids": token_ids.tolist(), "sampling_params": params}
        if members.keys() & {"features", MEMBER}:
            raise BadPayload("The payload's request has members that have a place of their own in frames.")
        request = validated(members, CheckedRequest)
        items = items_of_frames(payload.items)
        attestation = Attestation(payload.fingerprint, payload.signature)
        request._items = self.checks.admit(request, payload.token_ids, items, attestation)
        return request

    async def _of_json(self, body: memoryview) -> CheckedRequest:
        request, members = await parsed(body, CheckedRequest)
        await asyncio.to_thread(self._check_json, request, members.get(MEMBER))
        return request

    def _check_json(self, request: CheckedRequest, member: Any) -> None:
        attestation, masks = Attestation.read(member)
        items = [] if request.features is None else items_of_json(request.features, masks)
        if max(request.token_ids) >= 1 << 32:
            raise BadPayload("token_ids holds a number above 2^32.", param="token_ids")
        admitted = self.checks.admit(request, token_bytes(request.token_ids), items, attestation)
        request.features = None
        request._items = admitted


@load_aware_call
async def _served(serving: ServingTokens, request: CheckedRequest, *, raw_request: Request) -> Response:
    result = await serving.serve_tokens(request, raw_request)
    if isinstance(result, ErrorResponse):
        return JSONResponse(result.model_dump(), status_code=result.error.code)
    if isinstance(result, GenerateResponseBase):
        return JSONResponse(result.model_dump())
    return await _stream(cast(AsyncGenerator[str, None], result))


async def _stream(events: AsyncGenerator[str, None]) -> Response:
    """The stream, once its first event is there: vLLM finds some mistakes only then, and they have a status."""
    first = await anext(events, "")
    if first.startswith(_ERROR_EVENT):
        await events.aclose()
        error = json.loads(first.removeprefix("data:"))
        return JSONResponse(error, status_code=error["error"]["code"])

    async def whole() -> AsyncGenerator[str, None]:
        async with aclosing(events):
            yield first
            async for event in events:
                yield event

    return StreamingResponse(whole(), media_type="text/event-stream")
