"""Frames are read as they were written, and anything else is refused with where and why."""

from __future__ import annotations

import struct
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rendergen.payload.frame_reader import read_frames, read_head
from rendergen.payload.frames import (
    ALIGNMENT,
    ITEM_BYTES,
    MAGIC,
    MAX_DEPTH,
    MAX_HEAD_BYTES,
    PREAMBLE,
    Field,
    FrameItem,
    FramesPayload,
    MalformedFrames,
    Node,
    Preamble,
    Tensor,
    tail,
    write_frames,
)

DOC = Path(__file__).resolve().parents[3] / "docs" / "payload-format.md"


def tensor(data: bytes, dtype: str = "uint8", shape: tuple[int, ...] | None = None) -> Tensor:
    return Tensor(dtype, shape or (len(data) // ITEM_BYTES[dtype],), memoryview(data))


def item(*fields: Field, **values: Any) -> FrameItem:
    base = FrameItem("image", "abc", 1, 2, None, tuple(fields))
    return replace(base, **values)


GRID = Field("image_grid_thw", "batched", {"keep_on_cpu": True}, True, tensor(bytes(24), "int64", (3,)))
PIXELS = Field("pixel_values", "flat", {"dim": 0, "slices": [[0, 5, None]]}, False, tensor(b"12345", shape=(5, 1)))
PAYLOAD = FramesPayload(
    request={"request_id": "r", "model": "m", "stream": False, "priority": -1},
    token_ids=struct.pack("<4I", 1, 2, 3, 2**32 - 1),
    items=(item(GRID, PIXELS), item(hash="def", fields=None), item(is_embed=b"\1\0", fields=())),
    sampling_params=b'{"temperature": 0}',
    fingerprint="f" * 64,
    signature=bytes(32),
)


def joined(payload: FramesPayload) -> bytes:
    return b"".join(write_frames(payload))


def head_of(**changes: Any) -> dict[str, Any]:
    head = {"request": {}, "token_ids": bytes(4), "items": [], "fingerprint": None, "signature": None}
    return {**head, **changes}


def document(head: Any, area: bytes = b"", params: bytes = b"{}") -> bytes:
    """A payload with this head, whatever it says."""
    packed = head if isinstance(head, bytes) else msgpack.packb(head)
    start = Preamble(0, 1, len(packed), len(area)).write() + packed
    return start + bytes(-len(start) % ALIGNMENT) + area + tail(params)


def raw_item(**changes: Any) -> dict[str, Any]:
    return {"modality": "image", "hash": "h", "offset": 0, "length": 1, "is_embed": None, "fields": None, **changes}


def raw_field(**changes: Any) -> dict[str, Any]:
    return {"name": "n", "kind": "batched", "options": {}, "metadata": False, "data": None, **changes}


def test_what_is_written_is_read() -> None:
    """Every part comes back as it was."""
    assert read_frames(joined(PAYLOAD)) == PAYLOAD


def test_tensors_are_not_copied() -> None:
    """Written, they are the views that were given; read, they are views of the payload."""
    assert any(piece is PIXELS.data.data for piece in write_frames(PAYLOAD))  # type: ignore[union-attr]
    data = bytearray(joined(PAYLOAD))
    read = read_frames(data).items[0].fields
    assert read is not None
    pixels = read[1].data
    assert isinstance(pixels, Tensor)
    at = data.index(b"12345")
    data[at : at + 5] = b"54321"
    assert bytes(pixels.data) == b"54321"


def test_every_tensor_is_aligned() -> None:
    """Each begins at a multiple of 16 from the payload's first byte."""
    data = joined(PAYLOAD)
    assert data.index(b"12345") % ALIGNMENT == 0
    assert Preamble.read(data).tensors_at % ALIGNMENT == 0


def test_the_sampling_params_are_last() -> None:
    """Setting others changes nothing before them."""
    other = joined(replace(PAYLOAD, sampling_params=b'{"temperature": 1, "n": 2}'))
    tail_at = Preamble.read(other).tail_at
    assert joined(PAYLOAD)[:tail_at] == other[:tail_at]
    assert read_frames(other).sampling_params == b'{"temperature": 1, "n": 2}'


def test_the_example_in_the_documentation() -> None:
    """The bytes shown there are what this writes for the payload that is described."""
    text = DOC.read_text(encoding="utf-8")
    lines = text.split("## Example", 1)[1].split("```")[1].splitlines()
    shown = bytes.fromhex("".join(line[6:54] for line in lines if line[:4].strip().isalnum()))
    payload = FramesPayload(
        request={"model": "m"},
        token_ids=struct.pack("<3I", 7, 9, 8),
        items=(
            item(Field("pixel_values", "batched", {"keep_on_cpu": False}, False, tensor(b"\xff\x00\x80")), length=1),
        ),
        sampling_params=b"{}",
    )
    assert joined(payload) == shown


leaves = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False),
    st.binary(max_size=40).map(tensor),
    st.binary(max_size=5).map(lambda data: tensor(data * 8, "int64", (len(data), 1))),
)
nodes: st.SearchStrategy[Node] = st.recursive(leaves, lambda each: st.lists(each, max_size=3), max_leaves=5)
fields = st.builds(
    Field,
    name=st.text(max_size=5),
    kind=st.sampled_from(["batched", "flat", "shared"]),
    options=st.dictionaries(st.text(max_size=3), st.integers(0, 9), max_size=2),
    metadata=st.booleans(),
    data=nodes,
)
items = st.builds(
    FrameItem,
    modality=st.sampled_from(["image", "video"]),
    hash=st.text(max_size=9),
    offset=st.integers(0, 2**31),
    length=st.just(3),
    is_embed=st.none() | st.lists(st.sampled_from([0, 1]), min_size=3, max_size=3).map(bytes),
    fields=st.none() | st.lists(fields, max_size=3).map(tuple),
)


@given(st.lists(items, max_size=3), st.binary(max_size=30), st.integers(0, 2), st.integers(1, 5))
def test_any_payload_is_read_as_it_was_written(made: list[FrameItem], params: bytes, index: int, tokens: int) -> None:
    """Whatever items, values and params."""
    payload = FramesPayload({"a": [None, "b"]}, bytes(4 * tokens), tuple(made), params, index=index, count=3)
    assert read_frames(joined(payload)) == payload


@given(st.data())
def test_no_bytes_make_the_reader_fail_otherwise(data: st.DataObject) -> None:
    """A payload with some bytes changed is read, or refused as malformed: nothing else is raised."""
    document = bytearray(joined(PAYLOAD))
    for _ in range(data.draw(st.integers(1, 4))):
        document[data.draw(st.integers(0, len(document) - 1))] = data.draw(st.integers(0, 255))
    with suppress(MalformedFrames):
        read_frames(document)


def test_a_payload_that_ends_early() -> None:
    """However many bytes of it came."""
    whole = joined(PAYLOAD)
    for cut in range(len(whole)):
        with pytest.raises(MalformedFrames, match=r"ends|say they have"):
            read_frames(whole[:cut])


PREAMBLES = {
    "another magic": (b"\x89RGPAY\n\n" + joined(PAYLOAD)[8:], "magic"),
    "JSON": (b'{"request_id": "x", "token_ids": [1, 2, 3]}', "magic"),
    "another version": (MAGIC + b"\2" + joined(PAYLOAD)[9:], "version 2"),
    "an index beyond the count": (PREAMBLE.pack(MAGIC, 1, 1, 1, 0, 0, 0, 0) + bytes(99), "contradicts"),
    "no count": (PREAMBLE.pack(MAGIC, 1, 0, 0, 0, 0, 0, 0) + bytes(99), "contradicts"),
    "something where zeros are due": (PREAMBLE.pack(MAGIC, 1, 0, 1, 7, 0, 0, 0) + bytes(99), "contradicts"),
    "an area of odd length": (PREAMBLE.pack(MAGIC, 1, 0, 1, 0, 0, 0, 17) + bytes(99), "contradicts"),
    "an area longer than the payload": (PREAMBLE.pack(MAGIC, 1, 0, 1, 0, 0, 0, 2**63) + bytes(99), "ends after"),
    "bytes after its end": (joined(PAYLOAD) + b"x", "say they have"),
}


@pytest.mark.parametrize(("data", "says"), PREAMBLES.values(), ids=PREAMBLES)
def test_a_preamble_that_is_none(data: bytes, says: str) -> None:
    """Refused before anything is read by it."""
    with pytest.raises(MalformedFrames, match=says):
        read_frames(data)


def test_something_in_the_padding() -> None:
    """Bytes that nobody reads are zeros."""
    data = bytearray(document(head_of()))
    padding = Preamble.read(data).tensors_at - 1
    assert data[padding] == 0
    data[padding] = 1
    with pytest.raises(MalformedFrames, match="zeros"):
        read_frames(data)


def with_node(node: Any) -> dict[str, Any]:
    return head_of(items=[raw_item(fields=[raw_field(data=node)])])


def raw_tensor(**changes: Any) -> dict[str, Any]:
    return {"dtype": "uint8", "shape": [4], "at": 0, "bytes": 4, **changes}


def nested(depth: int) -> Any:
    return [nested(depth - 1)] if depth else 1


HEADS: dict[str, tuple[Any, str]] = {
    "no msgpack": (b"\xc1", "msgpack"),
    "half a map": (msgpack.packb(head_of())[:-3], "msgpack"),
    "lists without end": (b"\x91" * 100_000, "msgpack"),
    "a key twice": (b"\x82\xa1a\x01\xa1a\x02", "key comes twice"),
    "a list": ([1], "no map"),
    "a member missing": ({"request": {}}, "no member 'token_ids'"),
    "token ids as a list": (head_of(token_ids=[1]), "'token_ids' is of the wrong type"),
    "no token ids": (head_of(token_ids=b""), "token_ids have 0 bytes"),
    "half a token id": (head_of(token_ids=bytes(6)), "token_ids have 6 bytes"),
    "a request that is text": (head_of(request="x"), "'request' is of the wrong type"),
    "a signature that is text": (head_of(signature="x"), "'signature' is of the wrong type"),
    "an item that is a number": (head_of(items=[1]), "item 0 is no map"),
    "an item at a negative place": (head_of(items=[raw_item(offset=-1)]), "item 0: 'offset' is no count"),
    "an item of length true": (head_of(items=[raw_item(length=True)]), "item 0: 'length' is no count"),
    "a mask too short": (head_of(items=[raw_item(is_embed=b"")]), "item 0: is_embed"),
    "a mask of other bytes": (head_of(items=[raw_item(is_embed=b"\2")]), "item 0: is_embed"),
    "a field that is text": (head_of(items=[raw_item(fields=["x"])]), "a field is no map"),
    "a kind of its own": (head_of(items=[raw_item(fields=[raw_field(kind="__class__")])]), "kind '__class__'"),
    "a field without data": (
        head_of(items=[raw_item(fields=[{k: v for k, v in raw_field().items() if k != "data"}])]),
        "no member 'data'",
    ),
    "data that is text": (with_node("x"), "no tensor"),
    "data that is true": (with_node(True), "no tensor"),
    "lists too deep": (with_node(nested(MAX_DEPTH + 1)), "nested deeper"),
    "a dtype of its own": (with_node(raw_tensor(dtype="load")), "dtype 'load'"),
    "a shape of text": (with_node(raw_tensor(shape=["4"])), "is none"),
    "a negative shape": (with_node(raw_tensor(shape=[-2, -2])), "is none"),
    "a shape for other bytes": (with_node(raw_tensor(shape=[5])), "4 bytes are not what"),
    "a dtype for other bytes": (with_node(raw_tensor(dtype="float32")), "4 bytes are not what"),
    "an odd place": (with_node(raw_tensor(at=1)), "ends at 0"),
    "a gap": (with_node(raw_tensor(at=16)), "ends at 0"),
    "the same bytes twice": (with_node([raw_tensor(), raw_tensor()]), "ends at 16"),
    "an extension": (head_of(signature=msgpack.ExtType(5, b"x")), "extension"),
    "bytes that are no tensor's": (head_of(), "take 0 bytes of the 16"),
    "a head too long": (b" " * (MAX_HEAD_BYTES + 1), "at most 4194304"),
    "more than there is": (with_node(raw_tensor(shape=[2**40], bytes=2**40)), "not within"),
}


@pytest.mark.parametrize(("head", "says"), HEADS.values(), ids=HEADS)
def test_a_head_that_is_none(head: Any, says: str) -> None:
    """The message says which item and field, and what is wrong with it."""
    with pytest.raises(MalformedFrames, match=says):
        read_frames(document(head, area=bytes(16)))


def test_the_document_helper_makes_good_payloads() -> None:
    """What the cases above change is good before they change it."""
    read = read_frames(document(with_node(raw_tensor()), area=bytes(16)))
    assert read.items[0].fields is not None
    assert read_head(msgpack.packb(head_of())).token_ids == bytes(4)
    read_frames(document(with_node(nested(MAX_DEPTH))))
    read_frames(document(with_node([raw_tensor(), raw_tensor(at=16)]), area=bytes(32)))


def test_what_msgpack_cannot_hold() -> None:
    """An integer of more than 64 bits in the request is refused by name, not by msgpack's own error."""
    with pytest.raises(MalformedFrames, match="cannot be written"):
        write_frames(replace(PAYLOAD, request={"priority": 2**70}))
