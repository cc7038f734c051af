"""Candidates among generate's log probabilities: as many as one server would give."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rendergen.payload import PayloadError
from router.upstream_logprobs import trimmed, trimmed_json, with_bytes


def entry(rank: int | None, candidates: int) -> dict[str, Any]:
    return {
        "token_id": 5,
        "logprob": -1.0,
        "rank": rank,
        "top_logprobs": [{"token_id": at} for at in range(candidates)],
    }


COUNTS = {
    # chat: as asked
    "chat, none asked for": (True, None, 1, 1, 0),
    "chat, zero": (True, 0, 1, 1, 0),
    "chat, two": (True, 2, 1, 2, 2),
    "chat, all": (True, -1, 1, 9, 9),
    # completions: generate was asked for one more
    "completions, the sampled token is among them": (False, 2, 2, 3, 2),
    "completions, it is the next": (False, 2, 3, 3, 3),
    "completions, it is far from them": (False, 2, 70, 3, 3),
    "completions, it has no rank": (False, 2, None, 3, 3),
    "completions, none": (False, 0, 1, 1, 1),
    "completions, all": (False, -1, 1, 9, 9),
}


@pytest.mark.parametrize(("is_chat", "most", "rank", "given", "left"), COUNTS.values(), ids=COUNTS)
def test_as_many_candidates_as_one_server_gives(
    is_chat: bool, most: int | None, rank: int | None, given: int, left: int
) -> None:
    """The first of them, in the order in which they are; of objects and of JSON."""
    content = [entry(rank, given)]
    (found,) = trimmed(content, most, is_chat=is_chat)
    assert found == {**content[0], "top_logprobs": content[0]["top_logprobs"][:left]}
    raw = json.dumps({"content": content}).encode()
    assert json.loads(trimmed_json(raw, most, is_chat=is_chat)) == {"content": [found]}


@pytest.mark.parametrize("raw", [b"null", b'{"content":null}'])
def test_none_stay_none(raw: bytes) -> None:
    """Byte for byte."""
    assert trimmed_json(raw, 2, is_chat=True) == raw


@pytest.mark.parametrize("raw", [b"[]", b"{}", b'{"content":[1]}', b"{"])
def test_what_is_no_log_probabilities_is_refused(raw: bytes) -> None:
    """As what the pod sent is no answer."""
    with pytest.raises(PayloadError):
        trimmed_json(raw, 2, is_chat=True)


def test_a_token_without_text_has_no_bytes() -> None:
    """And a text that looks like that is left alone."""
    text = json.dumps({"token": '"bytes":null', "bytes": None}, separators=(",", ":")).encode()
    assert json.loads(with_bytes(text)) == {"token": '"bytes":null', "bytes": []}
