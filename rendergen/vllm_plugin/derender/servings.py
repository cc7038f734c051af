"""vLLM's serving layer, made with the server's own arguments, for an engine that is elsewhere."""

from __future__ import annotations

import copy
from argparse import Namespace
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, TypeVar

from vllm.entrypoints.anthropic.serving import AnthropicServingMessages
from vllm.entrypoints.launchers.cli_args import resolve_default_chat_template_kwargs
from vllm.entrypoints.openai.chat_completion.serving import OpenAIServingChat
from vllm.entrypoints.openai.completion.serving import OpenAIServingCompletion
from vllm.entrypoints.openai.responses.serving import OpenAIServingResponses
from vllm.outputs import RequestOutput
from vllm.renderers.online_renderer import OnlineRenderer

from rendergen.vllm_plugin.derender.context import Context
from rendergen.vllm_plugin.derender.generation import Generation
from rendergen.vllm_plugin.derender.stand_ins import RemoteEngine, rendered_elsewhere


class _NamedByContext:
    """The id, time and model of an answer are those that the context says, where it says some."""

    context = Context()
    generation: Generation

    def _id(self, own: str) -> str:
        return self.context.request_id or own

    def _model(self, own: str) -> str:
        return self.context.model or own


class _ChatNames(_NamedByContext):
    def chat_completion_stream_generator(
        self,
        request: Any,
        result_generator: AsyncIterator[RequestOutput],
        request_id: str,
        model_name: str,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        return super().chat_completion_stream_generator(  # type: ignore[misc]
            request, result_generator, self._id(request_id), self._model(model_name), *args, **kwargs
        )

    async def chat_completion_full_generator(
        self,
        request: Any,
        result_generator: AsyncIterator[RequestOutput],
        request_id: str,
        model_name: str,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        return await super().chat_completion_full_generator(  # type: ignore[misc]
            request, result_generator, self._id(request_id), self._model(model_name), *args, **kwargs
        )


class ChatServing(_ChatNames, OpenAIServingChat):
    """vLLM's `/v1/chat/completions`."""


class MessagesServing(_ChatNames, AnthropicServingMessages):
    """vLLM's `/v1/messages`: a converter of the chat's stream."""

    async def chat_completion_stream_generator(self, *args: Any, **kwargs: Any) -> Any:
        async with aclosing(super().chat_completion_stream_generator(*args, **kwargs)) as stream:
            async for piece in stream:
                if self.generation.failure is not None:
                    return  # the converter takes the chat's word for it for a mistake, and logs it as one
                yield piece


class CompletionServing(_NamedByContext, OpenAIServingCompletion):
    """vLLM's `/v1/completions`."""

    def completion_stream_generator(
        self,
        request: Any,
        engine_inputs: Any,
        result_generator: Any,
        request_id: str,
        created_time: int,
        model_name: str,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        return super().completion_stream_generator(
            request,
            engine_inputs,
            result_generator,
            self._id(request_id),
            created_time,
            self._model(model_name),
            *args,
            **kwargs,
        )

    def request_output_to_completion_response(
        self,
        final_res_batch: Any,
        request: Any,
        request_id: str,
        created_time: int,
        model_name: str,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        return super().request_output_to_completion_response(
            final_res_batch, request, self._id(request_id), created_time, self._model(model_name), *args, **kwargs
        )


class ResponsesServing(_NamedByContext, OpenAIServingResponses):
    """vLLM's `/v1/responses`. Its answer's id is the request's own, `request_id`."""

    def responses_stream_generator(
        self,
        request: Any,
        sampling_params: Any,
        result_generator: Any,
        context: Any,
        model_name: str,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        return super().responses_stream_generator(
            request, sampling_params, result_generator, context, self._model(model_name), *args, **kwargs
        )

    async def responses_full_generator(
        self,
        request: Any,
        sampling_params: Any,
        result_generator: Any,
        context: Any,
        model_name: str,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        return await super().responses_full_generator(
            request, sampling_params, result_generator, context, self._model(model_name), *args, **kwargs
        )


_ServingT = TypeVar("_ServingT", ChatServing, MessagesServing, CompletionServing, ResponsesServing)


@dataclass(frozen=True, slots=True)
class Servings:
    """One of each, made at start-up; each stream takes a shallow copy of the one it needs."""

    chat: ChatServing
    completion: CompletionServing
    messages: MessagesServing
    responses: ResponsesServing
    vllm_config: Any
    online_renderer: OnlineRenderer

    @property
    def tokenizer(self) -> Any:
        return self.online_renderer.renderer.get_tokenizer()

    @property
    def max_model_len(self) -> int:
        length: int = self.vllm_config.model_config.max_model_len
        return length

    def for_stream(self, serving: _ServingT, request: Any, context: Context, generation: Generation) -> _ServingT:
        """The serving object for one stream. Raises BadPayload when the context lacks what the request needs."""
        online_renderer = rendered_elsewhere(self.online_renderer, context, request)
        mine = copy.copy(serving)
        mine.context = context
        mine.generation = generation
        mine.online_renderer = online_renderer
        mine.engine_client = RemoteEngine(self.online_renderer.renderer, self.vllm_config, generation)
        return mine


def make_servings(state: Any, args: Namespace) -> Servings:
    """As vLLM's `init_generate_state` makes them, from `app.state` and the server's arguments."""
    online_renderer: OnlineRenderer = state.online_renderer
    engine = RemoteEngine(online_renderer.renderer, state.vllm_config)
    reasoning_parser = args.reasoning_parser or state.vllm_config.structured_outputs_config.reasoning_parser
    for_all = {
        "request_logger": None,
        "return_tokens_as_token_ids": args.return_tokens_as_token_ids,
        "enable_prompt_tokens_details": args.enable_prompt_tokens_details,
        "enable_force_include_usage": args.enable_force_include_usage,
    }
    for_parsers = {
        **for_all,
        "chat_template": online_renderer.chat_template,
        "chat_template_content_format": args.chat_template_content_format,
        "default_chat_template_kwargs": resolve_default_chat_template_kwargs(args),
        "enable_auto_tools": args.enable_auto_tool_choice,
        "tool_parser": args.tool_call_parser,
        "tool_strict_level": args.tool_strict_level,
        "reasoning_parser": reasoning_parser,
    }
    models = state.openai_serving_models
    servings = Servings(
        chat=ChatServing(
            engine,
            models,
            args.response_role,
            online_renderer=online_renderer,
            trust_request_chat_template=args.trust_request_chat_template,
            exclude_tools_when_tool_choice_none=args.exclude_tools_when_tool_choice_none,
            **for_parsers,
        ),
        completion=CompletionServing(engine, models, online_renderer=online_renderer, **for_all),
        messages=MessagesServing(
            engine,
            models,
            args.response_role,
            online_renderer=online_renderer,
            disabled_thinking_effort=args.anthropic_disabled_thinking_effort,
            **for_parsers,
        ),
        responses=ResponsesServing(engine, models, online_renderer, tool_server=state.tool_server, **for_parsers),
        vllm_config=state.vllm_config,
        online_renderer=online_renderer,
    )
    for serving in (servings.chat, servings.completion, servings.messages, servings.responses):
        serving.has_kv_connector = False  # the engine's server tells its own
    return servings
