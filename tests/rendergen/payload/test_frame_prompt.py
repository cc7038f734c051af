"""The prompt out of a payload's head: its token ids, and where its images are."""

import msgpack
import pytest

from rendergen.payload import FrameSplicer, MalformedFrames, Placeholder, SamplingParamsEdit, TokenIds, read_prompt
from tests.rendergen.payload.frames import frames, head_of

TOKENS = [[], [7], [*range(32)], [*range(5000)], [2**32 - 1, 0]]
ITEM = {"modality": "image", "hash": "h", "offset": 3, "length": 64, "is_embed": None, "fields": [{"data": [[{}]]}]}


@pytest.mark.parametrize("tokens", TOKENS, ids=len)
def test_token_ids(tokens):
    """Their number and the last of them, as a splicer leaves the head."""
    splicer = FrameSplicer(SamplingParamsEdit())
    splicer.feed(frames(tokens, [bytes(256)]))
    found = read_prompt(splicer.head).token_ids
    assert len(found) == len(tokens)
    assert found.last(32) == tuple(tokens[-32:])
    assert found.last(0) == ()


@pytest.mark.parametrize("order", [["items", "request", "token_ids"], ["token_ids", "request", "items"]])
def test_members_may_stand_anywhere_in_the_head(order):
    """Their order is no business of a reader's."""
    members = {"items": [ITEM, {**ITEM, "offset": 70}], "request": {"token_ids": [[[]], {}]}, "token_ids": b"\1\0\0\0"}
    found = read_prompt(msgpack.packb({name: members[name] for name in order}))
    assert found.token_ids == TokenIds(b"\1\0\0\0")
    assert found.placeholders == (Placeholder("image", 3, 64), Placeholder("image", 70, 64))


NO_PROMPT = {
    "nothing": b"",
    "no map": msgpack.packb(["token_ids", b""]),
    "no such member": msgpack.packb({"token_id": b""}),
    "of another type": msgpack.packb({"token_ids": [1, 2]}),
    "a string": msgpack.packb({"token_ids": "1234"}),
    "nil": msgpack.packb({"token_ids": None}),
    "cut": head_of([1])[:40],
    "no u32": msgpack.packb({"token_ids": b"12345"}),
    "no msgpack": b"\x81\xc1",
    "no utf-8": b"\x81\xa9token_id\xff\xc4\x00",
    "a key that is a list": b"\x82\x91\x01\x01" + msgpack.packb({"token_ids": b""})[1:],
    "a key that is a map": b"\x82\x81\x01\x01\x01" + msgpack.packb({"token_ids": b""})[1:],
    "too deep": b"\x82\xa1a" + b"\x91" * 100_000 + b"\x01" + msgpack.packb({"token_ids": b""})[1:],
    "items that are no list": msgpack.packb({"token_ids": b"", "items": 1}),
    "an item that is no map": msgpack.packb({"token_ids": b"", "items": [1]}),
    "an item that is nowhere": msgpack.packb({"token_ids": b"", "items": [{"modality": "image", "length": 1}]}),
    "an item whose place is text": msgpack.packb({"token_ids": b"", "items": [{**ITEM, "offset": "3"}]}),
    "an item whose key is a list": b"\x82\xa9token_ids\xc4\x00\xa5items\x91\x81\x91\x01\x01",
}


@pytest.mark.parametrize("head", NO_PROMPT.values(), ids=NO_PROMPT)
def test_a_head_without_a_prompt(head):
    """Whatever it is instead, it is one kind of error."""
    with pytest.raises(MalformedFrames, match="head"):
        read_prompt(head)
