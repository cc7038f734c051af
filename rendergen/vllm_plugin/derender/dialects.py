"""The APIs whose answers are derendered: what each reads, and how it says its answers and errors."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, Protocol

from vllm.entrypoints.anthropic.protocol import AnthropicMessagesRequest
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.completion.protocol import CompletionRequest
from vllm.entrypoints.openai.responses.protocol import ResponsesRequest

from rendergen.vllm_plugin.derender.context import Context
from rendergen.vllm_plugin.derender.generation import Generation
from rendergen.vllm_plugin.derender.servings import Servings
from rendergen.vllm_plugin.errors import BadPayload


class Dialect(Protocol):
    """One API."""

    path: str
    request_type: Any
    """A pydantic model, which the caller's request must be."""

    async def answer(self, servings: Servings, request: Any, context: Context, generation: Generation) -> Any:
        """What vLLM's serving layer answers: an ErrorResponse, a pydantic model, or an async generator of a stream."""

    def pieces(self, stream: AsyncGenerator[Any, None]) -> AsyncIterator[str]:
        """The events of a stream as text, each whole."""

    def document(self, answer: Any) -> Any:
        """The answer as what is to be written as JSON, where it is not streamed."""

    def error(self, body: dict[str, Any]) -> dict[str, Any]:
        """An error of OpenAI's form, in the form that this API has outside of a stream."""

    def error_event(self, body: dict[str, Any], sequence_number: int) -> str:
        """The same, as what ends a stream after that many pieces."""


class Chat:
    """`/v1/chat/completions`."""

    path = "/v1/chat/completions/derender/stream"
    request_type = ChatCompletionRequest

    async def answer(
        self, servings: Servings, request: ChatCompletionRequest, context: Context, generation: Generation
    ) -> Any:
        _refuse_beams(request)
        serving = servings.for_stream(servings.chat, request, context, generation)
        return await serving.create_chat_completion(request)

    def pieces(self, stream: AsyncGenerator[str, None]) -> AsyncIterator[str]:
        return stream

    def document(self, answer: Any) -> Any:
        return answer.model_dump()

    def error(self, body: dict[str, Any]) -> dict[str, Any]:
        return body

    def error_event(self, body: dict[str, Any], sequence_number: int) -> str:
        return f"data: {json.dumps(body)}\n\ndata: [DONE]\n\n"


class Completions(Chat):
    """`/v1/completions`, of one prompt."""

    path = "/v1/completions/derender/stream"
    request_type = CompletionRequest

    async def answer(
        self, servings: Servings, request: CompletionRequest, context: Context, generation: Generation
    ) -> Any:
        _refuse_beams(request)
        generation.echoes_logprobs = True
        serving = servings.for_stream(servings.completion, request, context, generation)
        return await serving.create_completion(request)


class Messages:
    """`/v1/messages`, Anthropic's."""

    path = "/v1/messages/derender/stream"
    request_type = AnthropicMessagesRequest

    async def answer(
        self, servings: Servings, request: AnthropicMessagesRequest, context: Context, generation: Generation
    ) -> Any:
        if request.thinking is not None and request.thinking.type == "disabled":
            # Found out by rendering, once, which the stand-in of one stream cannot do.
            await servings.messages._get_disabled_thinking_effort()
        serving = servings.for_stream(servings.messages, request, context, generation)
        return await serving.create_messages(request)

    def pieces(self, stream: AsyncGenerator[str, None]) -> AsyncIterator[str]:
        return stream

    def document(self, answer: Any) -> Any:
        return answer.model_dump(exclude_none=True)

    def error(self, body: dict[str, Any]) -> dict[str, Any]:
        error = body["error"]
        return {"type": "error", "error": {"type": error["type"], "message": error["message"]}}

    def error_event(self, body: dict[str, Any], sequence_number: int) -> str:
        return f"event: error\ndata: {json.dumps(self.error(body))}\n\n"


class Responses:
    """`/v1/responses`, of one turn: nothing is stored, and no earlier answer is known."""

    path = "/v1/responses/derender/stream"
    request_type = ResponsesRequest

    async def answer(
        self, servings: Servings, request: ResponsesRequest, context: Context, generation: Generation
    ) -> Any:
        if request.background or request.previous_response_id:
            raise BadPayload("background and previous_response_id need a server that stores responses")
        request.store = False
        if context.request_id is not None:
            request.request_id = context.request_id
        serving = servings.for_stream(servings.responses, request, context, generation)
        return await serving.create_responses(request)

    async def pieces(self, stream: AsyncGenerator[Any, None]) -> AsyncIterator[str]:
        async for event in stream:
            yield f"event: {event.type}\ndata: {event.model_dump_json(indent=None, by_alias=True)}\n\n"

    def document(self, answer: Any) -> Any:
        return answer.model_dump(mode="json", by_alias=True)

    def error(self, body: dict[str, Any]) -> dict[str, Any]:
        return body

    def error_event(self, body: dict[str, Any], sequence_number: int) -> str:
        error = body["error"]
        event = {
            "type": "error",
            "code": str(error.get("code")),
            "message": error.get("message"),
            "param": error.get("param"),
            "sequence_number": sequence_number,
        }
        return f"event: error\ndata: {json.dumps(event)}\n\n"


DIALECTS: tuple[Dialect, ...] = (Chat(), Completions(), Messages(), Responses())


def _refuse_beams(request: ChatCompletionRequest | CompletionRequest) -> None:
    if request.use_beam_search:
        raise BadPayload(
            "beam search is not supported where rendering and generating are apart", param="use_beam_search"
        )
