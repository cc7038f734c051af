"""What vLLM's serving layer gets instead of a renderer and an engine.

It is run as it is, from the caller's request to the answer. What it would have had rendered has been rendered, and what
it would have had generated is being generated elsewhere: these two say so in the place of those that would do it.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncGenerator
from typing import Any

from vllm.config import VllmConfig
from vllm.inputs.engine import tokens_input
from vllm.multimodal.inputs import PlaceholderRange
from vllm.outputs import RequestOutput
from vllm.renderers.chat_utils import parse_chat_messages
from vllm.renderers.hf import HfRenderer, resolve_chat_template_content_format
from vllm.renderers.online_renderer import OnlineRenderer
from vllm.sampling_params import SamplingParams

from rendergen.vllm_plugin.derender.context import Context
from rendergen.vllm_plugin.derender.generation import Generation
from rendergen.vllm_plugin.errors import BadPayload


class RenderedPrompt:
    """Stands for vLLM's renderer: gives the prompt that the context says was rendered. No medium is looked at.

    What else is asked of it, its tokenizer for one, the renderer itself answers.
    """

    def __init__(self, renderer: Any, context: Context, *, echo: bool) -> None:
        self._renderer = renderer
        self._context = context
        self._echo = echo

    def __getattr__(self, name: str) -> Any:
        return getattr(self._renderer, name)

    async def render_chat_async(
        self, conversations: list[list[Any]], chat_params: Any, *args: Any, **kwargs: Any
    ) -> tuple[list[list[Any]], list[Any]]:
        """The conversation, of which the serving layer reads the last message where it echoes, and the prompt."""
        return [self._last_message(conversations[0], chat_params) if self._echo else []], [self._prompt()]

    async def render_cmpl_async(self, prompts: list[Any], *args: Any, **kwargs: Any) -> list[Any]:
        """The prompt. An echoed one is tokenized again, for its text: a completion's prompt has no media."""
        if len(prompts) != 1:
            raise BadPayload(
                f"the request has {len(prompts)} prompts; derender each in a stream of its own", param="prompt"
            )
        if self._echo and self._context.prompt_text is None:
            rendered: list[Any] = await self._renderer.render_cmpl_async(prompts, *args, **kwargs)
            return rendered
        return [self._prompt()]

    def _prompt(self) -> Any:
        prompt: Any = tokens_input(self._context.prompt(), prompt=self._context.prompt_text)
        if self._context.mm_placeholders:
            prompt["mm_placeholders"] = {
                modality: [PlaceholderRange(offset=each.offset, length=each.length) for each in places]
                for modality, places in self._context.mm_placeholders.items()
            }
        return prompt

    def _last_message(self, messages: list[Any], chat_params: Any) -> list[Any]:
        # Parsing changes what it is given.
        last = copy.deepcopy({**messages[-1], "content": _texts(messages[-1].get("content"))})
        model_config = self._renderer.model_config
        content_format = "string"  # of all renderers but Hugging Face's
        if isinstance(self._renderer, HfRenderer):
            content_format = resolve_chat_template_content_format(
                chat_params.chat_template,
                chat_params.chat_template_kwargs.get("tools"),
                chat_params.chat_template_content_format,
                self._renderer.tokenizer,
                model_config=model_config,
            )
        conversation, _, _ = parse_chat_messages([last], model_config, content_format)
        parsed: list[Any] = conversation
        return parsed


def _texts(content: Any) -> Any:
    """A message's content without its media."""
    if not isinstance(content, list):
        return content
    return [part for part in content if isinstance(part, str) or part.get("type") in ("text", "refusal")]


class RemoteEngine:
    """Stands for vLLM's engine client: what it generates is what comes in the request's body."""

    errored = False
    input_processor = None

    def __init__(self, renderer: Any, vllm_config: VllmConfig, generation: Generation | None = None) -> None:
        self.renderer = renderer
        self.vllm_config = vllm_config
        self.model_config = vllm_config.model_config
        self._generation = generation

    def check_admission(self, n: int) -> None:
        """There is always room: the engine that generates has let the request in."""

    def generate(
        self, engine_input: Any, sampling_params: SamplingParams, *args: Any, **kwargs: Any
    ) -> AsyncGenerator[RequestOutput, None]:
        """The outputs of the one generation there is."""
        if self._generation is None:
            raise RuntimeError("nothing generates outside of a derender stream")
        return self._generation.outputs(sampling_params)


def rendered_elsewhere(online_renderer: OnlineRenderer, context: Context, request: Any) -> OnlineRenderer:
    """The online renderer, all its checks and changes of the request included, with the prompt that was rendered."""
    echo = bool(getattr(request, "echo", False))
    if getattr(request, "return_prompt_text", False) and context.prompt_text is None:
        raise BadPayload("return_prompt_text needs the context's `prompt_text`", param="return_prompt_text")
    if getattr(request, "return_token_ids", False) and not context.prompt_is_whole:
        raise BadPayload("return_token_ids needs all of the context's `prompt_token_ids`", param="prompt_token_ids")
    stand_in = copy.copy(online_renderer)
    stand_in.renderer = RenderedPrompt(online_renderer.renderer, context, echo=echo)
    return stand_in
