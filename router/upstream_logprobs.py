"""Log probabilities as generate has them, before derender names their tokens."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from rendergen.payload import MalformedJson

# vLLM's "as many as there are".
ALL = -1


def trimmed(content: Sequence[dict[str, Any]], most: int | None, *, is_chat: bool) -> list[dict[str, Any]]:
    """The tokens' log probabilities with those candidates that one server would give.

    Generate gives at least one, where chat gives none if none was asked for. Completions give ``most``, and one more
    where the sampled token is not among these; for that, generate is asked for one more.

    Args:
        content: one entry for each token.
        most: the candidates that were asked for; None without a number.
        is_chat: of chat, else of completions.

    Raises:
        LookupError, TypeError: they are none.
    """
    if most == ALL:
        return list(content)
    return list(_chat(content, most or 0) if is_chat else _completions(content, most or 0))


def trimmed_json(logprobs: bytes, most: int | None, *, is_chat: bool) -> bytes:
    """The same of raw JSON, with the object that the entries are in.

    Raises:
        PayloadError: it is none.
    """
    try:
        value = json.loads(logprobs)
        if value is None or value["content"] is None:
            return logprobs
        content = trimmed(value["content"], most, is_chat=is_chat)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise MalformedJson(0, "the log probabilities are none") from error
    return json.dumps({"content": content}, separators=(",", ":")).encode()


def with_bytes(answer: bytes) -> bytes:
    """Derender's answer, in which a token that is in no vocabulary, and so has no text, has no bytes: an empty list.

    Within a string of the JSON the name would have its quotes escaped.
    """
    return answer.replace(b'"bytes":null', b'"bytes":[]')


def _chat(content: Sequence[dict[str, Any]], most: int) -> Iterator[dict[str, Any]]:
    for entry in content:
        yield {**entry, "top_logprobs": entry.get("top_logprobs", [])[:most]}


def _completions(content: Sequence[dict[str, Any]], most: int) -> Iterator[dict[str, Any]]:
    for entry in content:
        # Ranks begin at 1. The sampled token comes first.
        among = (entry.get("rank") or most + 1) <= most
        yield {**entry, "top_logprobs": entry.get("top_logprobs", [])[: most if among else most + 1]}
