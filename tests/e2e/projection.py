"""What of a chat completion must be the same whoever answers it: all but ids, times and the server's own name."""

from __future__ import annotations

from typing import Any

USAGE = ("prompt_tokens", "completion_tokens", "total_tokens")


def projection(completion: dict[str, Any]) -> dict[str, Any]:
    """The parts of a completion that two servers of one model must agree on."""
    return {
        "object": completion["object"],
        "model": completion["model"],
        "choices": [_choice(choice) for choice in completion["choices"]],
        "usage": {name: completion["usage"][name] for name in USAGE},
    }


def _choice(choice: dict[str, Any]) -> dict[str, Any]:
    message = choice["message"]
    return {
        "index": choice["index"],
        "role": message["role"],
        "content": message["content"],
        "reasoning": message.get("reasoning"),
        "tool_calls": [(call["type"], call["function"]) for call in message.get("tool_calls") or ()],
        "refusal": message.get("refusal"),
        "finish_reason": choice["finish_reason"],
        "stop_reason": choice.get("stop_reason"),
    }
