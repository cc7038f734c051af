"""The APIs that callers speak: their paths, the ids of their answers, and how each says an error."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from rendergen import sse
from rendergen.service.errors import ServiceError

# Anthropic's names for errors, by HTTP status; whatever else is wrong is an `api_error`.
_ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "invalid_request_error",
    409: "invalid_request_error",
    413: "request_too_large",
    429: "rate_limit_error",
    501: "invalid_request_error",
    503: "overloaded_error",
    504: "timeout_error",
}


@dataclass(frozen=True, slots=True)
class Api:
    """One API.

    Attributes:
        name: for metrics and ids of our own making.
        path: where callers reach it, here and on a single vLLM server.
        conversation: the member of a request that may hold media; empty if none does.
        id_prefix: what the ids of its answers begin with.
        upstream_derenders: vLLM has a derender endpoint for it, without our plugin.
        error_event: an error as what ends a stream in which so many events have gone out.
    """

    name: str
    path: str
    conversation: str
    id_prefix: str
    upstream_derenders: bool
    error_event: Callable[[ServiceError, int], bytes]

    @property
    def render(self) -> str:
        """The path that renders its requests."""
        return f"{self.path}/render"

    @property
    def derender(self) -> str:
        """The path of vLLM's own derender."""
        return f"{self.path}/derender"

    @property
    def derender_stream(self) -> str:
        """The path of the plugin's derender."""
        return f"{self.path}/derender/stream"


def _openai_event(error: ServiceError, events: int) -> bytes:
    return error.event() + sse.DONE


def _anthropic_body(error: ServiceError) -> bytes:
    named = _ANTHROPIC_TYPES.get(error.status, "api_error")
    return json.dumps({"type": "error", "error": {"type": named, "message": error.message}}).encode()


def _anthropic_event(error: ServiceError, events: int) -> bytes:
    return sse.written(_anthropic_body(error), b"error")


def _responses_event(error: ServiceError, events: int) -> bytes:
    event = {
        "type": "error",
        "code": str(error.status),
        "message": error.message,
        "param": error.param,
        "sequence_number": events,
    }
    return sse.written(json.dumps(event).encode(), b"error")


CHAT = Api("chat", "/v1/chat/completions", "messages", "chatcmpl-", True, _openai_event)
COMPLETIONS = Api("completions", "/v1/completions", "", "cmpl-", True, _openai_event)
MESSAGES = Api("messages", "/v1/messages", "messages", "msg_", False, _anthropic_event)
RESPONSES = Api("responses", "/v1/responses", "input", "resp_", False, _responses_event)

APIS = (CHAT, COMPLETIONS, MESSAGES, RESPONSES)


def error_body(path: str, error: ServiceError) -> bytes:
    """``error`` as the body of an answer on ``path``: Anthropic's API has a form of its own, all else has OpenAI's."""
    return _anthropic_body(error) if is_messages(path) else error.json()


def is_messages(path: str) -> bool:
    """Whether the path belongs to Anthropic's API. What vLLM adds to it, ``…/render``, speaks as vLLM does."""
    return path == MESSAGES.path
