"""The first line of a derender stream: what the answer is an answer to."""

from __future__ import annotations

import json
from typing import Annotated, Any

import msgspec

from rendergen.vllm_plugin.errors import BadPayload

Count = Annotated[int, msgspec.Meta(ge=0)]

# Is in each event of the answer, and so must not be long.
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]


class Placeholder(msgspec.Struct, frozen=True):
    """Where the tokens of an image, say, are in the prompt."""

    length: Count
    offset: Count = 0


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """See `docs/derender-stream.md` for the members."""

    chat_request: dict[str, Any] | None = None
    request: dict[str, Any] | None = None
    prompt_token_ids: list[Annotated[int, msgspec.Meta(ge=0, lt=2**31)]] | None = None
    prompt_tokens: Count | None = None
    sampling_params: dict[str, Any] | None = None
    request_id: Name | None = None
    created: Count | None = None
    model: Name | None = None
    mm_placeholders: dict[str, list[Placeholder]] | None = None
    prompt_text: str | None = None

    @property
    def caller_request(self) -> dict[str, Any]:
        """The caller's request."""
        request = self.chat_request if self.chat_request is not None else self.request
        assert request is not None  # `read_context` has seen to it
        return request

    def prompt(self) -> list[int]:
        """The prompt's token ids; zeros where only their number is known."""
        ids = self.prompt_token_ids or []
        if self.prompt_tokens is None:
            return ids
        return [0] * (self.prompt_tokens - len(ids)) + ids

    @property
    def prompt_is_whole(self) -> bool:
        """Whether every token id of the prompt is known."""
        known = len(self.prompt_token_ids or ())
        return known > 0 and self.prompt_tokens in (None, known)


def read_context(line: bytes, max_prompt_tokens: int) -> Context:
    """Raises BadPayload, with the member that is wrong, when the line is not a context."""
    try:
        context = msgspec.convert(json.loads(line), Context)
    except (ValueError, RecursionError) as error:  # msgspec's ValidationError is a ValueError
        raise BadPayload(f"the first line of the body must be the context, in JSON: {error}") from error
    if (context.chat_request is None) == (context.request is None):
        raise BadPayload("the context needs one of `chat_request` and `request`", param="request")
    if not context.prompt_token_ids and context.prompt_tokens is None:
        raise BadPayload("the context needs `prompt_token_ids` or `prompt_tokens`", param="prompt_token_ids")
    count = len(context.prompt_token_ids or ())
    if context.prompt_tokens is not None and context.prompt_tokens < count:
        raise BadPayload(f"`prompt_tokens` is {context.prompt_tokens}, with {count} ids", param="prompt_tokens")
    count = max(count, context.prompt_tokens or 0)
    if count > max_prompt_tokens:
        raise BadPayload(f"{count} prompt tokens; the model's context has {max_prompt_tokens}", param="prompt_tokens")
    return context
