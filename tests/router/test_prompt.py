"""A prompt's token ids, in the two forms in which payloads have them."""

from __future__ import annotations

import json
import struct

import pytest

from rendergen.payload import TokenIds
from router.prompt import Prompt

LISTS = {
    "none": [],
    "one": [7],
    "some": [151644, 0, 8, 9, 4294967295],
}


def in_both_forms(ids: list[int]) -> list[Prompt]:
    return [Prompt.of_json(json.dumps(ids).encode()), Prompt.of_frames(TokenIds(struct.pack(f"<{len(ids)}I", *ids)))]


@pytest.mark.parametrize("ids", LISTS.values(), ids=LISTS)
def test_either_form_says_the_same(ids: list[int]) -> None:
    """Their number, all of them, and the last of them, however many are asked for."""
    for prompt in in_both_forms(ids):
        assert prompt.tokens == len(ids)
        assert json.loads(prompt.ids()) == ids
        for count in (0, 1, 3, 100):
            assert json.loads(b"[%b]" % prompt.tail(count)) == (ids[-count:] if count else [])


def test_blanks_in_a_list_are_no_tokens() -> None:
    """JSON may have them anywhere."""
    prompt = Prompt.of_json(b" [ 1 ,\n2 ] ")
    assert (prompt.tokens, json.loads(b"[%b]" % prompt.tail(1))) == (2, [2])
    assert Prompt.of_json(b"[ ]").tokens == 0
