"""What a stream says when its deltas are joined: two streams of one answer need not be cut alike."""

from __future__ import annotations

import json
from itertools import groupby
from typing import Any

# Of an answer, these differ each time it is given, or from one server's configuration to another's.
OWN = frozenset({"id", "created", "system_fingerprint", "created_at", "signature", "call_id", "item_id"})

# What only the engine's own server knows.
ENGINE_ALONE = frozenset({"cached_tokens"})

DONE = "[DONE]"


def events_of(stream: str) -> list[Any]:
    """The data of each event. `[DONE]` stays a string."""
    return [data for _, data in named_events_of(stream)]


def named_events_of(stream: str) -> list[tuple[str | None, Any]]:
    """The name of each event, if it has one, and its data."""
    assert stream.endswith("\n\n"), "the last event has no end"
    events = []
    for event in stream.split("\n\n"):
        name = None
        for line in event.split("\n"):
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                data = line.removeprefix("data: ")
                events.append((name, data if data == DONE else json.loads(data)))
    return events


def chat_joined(stream: str) -> dict[str, Any]:
    """A stream of chat completion chunks, or of text completion chunks, joined for each choice."""
    events = events_of(stream)
    assert events[-1] == DONE
    assert DONE not in events[:-1]
    errors = [event["error"] for event in events[:-1] if "error" in event]
    chunks = [event for event in events[:-1] if "error" not in event]
    choices: dict[int, dict[str, Any]] = {}
    usages: dict[Any, Any] = {}
    for chunk in chunks:
        for choice in chunk["choices"]:
            _join(choices.setdefault(choice["index"], {"kinds": [], "members": set()}), choice)
        if chunk.get("usage"):
            usages[chunk["choices"][0]["index"] if chunk["choices"] else "all"] = chunk["usage"]
    for choice in choices.values():
        choice["kinds"] = [kind for kind, _ in groupby(choice["kinds"])]
        choice["members"] = sorted(choice["members"])
    joined = {
        "choices": choices,
        "usages": usages,
        "usage comes last": bool(chunks) and not chunks[-1]["choices"],
        "of all chunks": sorted({(chunk["object"], chunk["model"]) for chunk in chunks}),
        "ids": len({chunk["id"] for chunk in chunks}),
        "members": sorted({name for chunk in chunks for name in chunk}),
        "prompt_token_ids": [chunk["prompt_token_ids"] for chunk in chunks if chunk.get("prompt_token_ids")],
    }
    if errors:
        assert len(errors) == 1
        assert "error" in events[-2], "something came after the error"
        joined["error"] = errors[0]
    return joined


def _join(joined: dict[str, Any], choice: dict[str, Any]) -> None:
    delta = dict(choice.get("delta", {}))
    joined["members"].update(choice, (f"delta.{name}" for name in delta))
    if delta.get("reasoning"):  # comes first, where a delta has both
        delta = {"reasoning": delta.pop("reasoning"), **delta}
    for call in delta.pop("tool_calls", None) or ():
        calls = joined.setdefault("tool_calls", {}).setdefault(call["index"], {"ids": 0, "arguments": ""})
        calls["ids"] += bool(call.get("id"))
        calls["arguments"] += call["function"].get("arguments") or ""
        if call["function"].get("name"):
            calls["name"] = calls.get("name", "") + call["function"]["name"]
        joined["kinds"].append("tool call")
    for name, value in {**delta, **choice}.items():
        if isinstance(value, str) and name not in ("finish_reason", "stop_reason", "role"):
            joined[name] = joined.get(name, "") + value
            if value:
                joined["kinds"].append(name)
        elif name in ("token_ids", "prompt_token_ids") and value is not None:
            joined[name] = joined.get(name, []) + value
        elif name == "logprobs" and value is not None:
            _join_logprobs(joined.setdefault("logprobs", {}), value)
        elif value is not None and name not in ("delta", "index"):
            joined[name] = value
            joined["kinds"].append(name)


def _join_logprobs(joined: dict[str, Any], logprobs: dict[str, Any]) -> None:
    for name, values in logprobs.items():
        joined[name] = joined.get(name, []) + (values or [])


def messages_joined(stream: str) -> list[Any]:
    """A stream of Anthropic's events; deltas of one kind that follow each other are one."""
    joined: list[Any] = []
    for name, event in named_events_of(stream):
        event = without_own(event)
        assert event["type"] == name
        before = joined[-1] if joined else {}
        if event["type"] == "content_block_delta" and before.get("type") == event["type"]:
            _add_text(before["delta"], event["delta"])
        else:
            joined.append(event)
    return joined


def responses_joined(stream: str) -> list[Any]:
    """A stream of OpenAI's Responses events; deltas of one kind that follow each other are one."""
    joined: list[Any] = []
    for number, (name, event) in enumerate(named_events_of(stream)):
        event = without_own(event)
        assert event["type"] == name
        assert event.pop("sequence_number") == number
        before = joined[-1] if joined else {}
        if event["type"].endswith(".delta") and before.get("type") == event["type"]:
            _add_text(before, event)
            if event.get("logprobs"):
                before["logprobs"] = [*(before.get("logprobs") or ()), *event["logprobs"]]
        else:
            joined.append(event)
    return joined


def _add_text(before: dict[str, Any], delta: dict[str, Any]) -> None:
    for name in ("text", "thinking", "partial_json", "delta"):
        if name in delta:
            before[name] = (before.get(name) or "") + (delta[name] or "")


def without_own(value: Any) -> Any:
    """An answer without ids and times. Of a tool call's id, that there is one."""
    if isinstance(value, dict):
        return {
            name: bool(each) if name in OWN else without_own(each)
            for name, each in value.items()
            if name not in ENGINE_ALONE
        }
    if isinstance(value, list):
        return [without_own(each) for each in value]
    return value
