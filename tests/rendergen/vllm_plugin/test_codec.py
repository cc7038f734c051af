"""Items go through either encoding and come out as they were; what is no item is refused by name."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import pybase64
import pytest
import torch
from vllm.entrypoints.scale_out.token_in_token_out.mm_serde import decode_mm_kwargs_item, encode_mm_kwargs_item
from vllm.entrypoints.scale_out.token_in_token_out.protocol import MultiModalFeatures
from vllm.multimodal.inputs import MultiModalKwargsItem, PlaceholderRange
from vllm.v1.utils import tensor_data

from rendergen.payload.frame_reader import read_frames
from rendergen.payload.frames import (
    FramesPayload,
    write_frames,
)
from rendergen.vllm_plugin.codec import (
    frame_items,
    items_of_frames,
    items_of_input,
    items_of_json,
    json_data,
    json_masks,
    place_of,
)
from rendergen.vllm_plugin.errors import BadPayload
from rendergen.vllm_plugin.items import Item
from tests.rendergen.vllm_plugin.payloads import GRID, MIXED, PIXELS, item

ITEMS = [
    item(),
    item(index=1, hint="other", offset=2, length=3, is_embed=torch.tensor([True, False, True])),
    item(index=2, offset=9, fields=MultiModalKwargsItem({"mixed": MIXED}), metadata=frozenset()),
    item(modality="audio", offset=11),
]


def through_frames(items: list[Item]) -> list[Item]:
    payload = FramesPayload({}, bytes(4), frame_items(items), b"{}")
    return items_of_frames(read_frames(bytearray(b"".join(write_frames(payload)))).items)


def features(items: list[Item], **changes: Any) -> MultiModalFeatures:
    by_modality: dict[str, list[Item]] = {}
    for each in items:
        by_modality.setdefault(each.modality, []).append(each)
    data, metadata = json_data(items)
    values = {
        "mm_hashes": {name: [each.hint for each in group] for name, group in by_modality.items()},
        "mm_placeholders": {
            name: [{"offset": each.offset, "length": each.length} for each in group]
            for name, group in by_modality.items()
        },
        "kwargs_data": data,
        "mm_metadata": metadata,
    }
    return MultiModalFeatures.model_validate({**values, **changes})


def through_json(items: list[Item]) -> list[Item]:
    return items_of_json(features(items), json_masks(items))


def same(one: Item, other: Item) -> bool:
    masks = (one.is_embed, other.is_embed)
    if not (masks == (None, None) or (None not in masks and torch.equal(*masks))):  # type: ignore[arg-type]
        return False
    rest = ("modality", "index", "hint", "offset", "length", "fields", "metadata")
    return all(getattr(one, name) == getattr(other, name) for name in rest)


@pytest.mark.parametrize("through", [through_frames, through_json])
def test_items_come_out_as_they_were(through: Any) -> None:
    """Every kind of value and field, masks and metadata, in order."""
    out = through(ITEMS)
    assert len(out) == len(ITEMS)
    assert [same(one, other) for one, other in zip(ITEMS, out, strict=True)] == [True] * len(ITEMS)


def test_an_item_without_tensors_stays_one() -> None:
    """In frames; JSON has its own form for it."""
    [out] = through_frames([item(fields=None, metadata=frozenset())])
    assert out.fields is None
    [out] = items_of_json(features([item()], kwargs_data=None, mm_metadata=None), None)
    assert out.fields is None


@pytest.mark.filterwarnings("ignore:The given buffer is not writable")  # vLLM's decoder, before it copies
def test_json_is_what_vllm_itself_reads_and_writes() -> None:
    """An item of ours in vLLM's own decoder, and one of vLLM's encoder in ours."""
    data, metadata = json_data([item()])
    assert data["image"][0] is not None
    assert decode_mm_kwargs_item(data["image"][0]) == item().fields
    assert metadata is not None
    assert metadata["image"][0] is not None
    assert set(decode_mm_kwargs_item(metadata["image"][0])) == {"image_grid_thw"}
    theirs = features([item()], kwargs_data={"image": [encode_mm_kwargs_item(item().fields)]})
    assert same(items_of_json(theirs, None)[0], item())


def test_no_metadata_is_none() -> None:
    """As vLLM has it where no field is needed there."""
    assert json_data([item(metadata=frozenset())])[1] is None


def test_the_items_of_a_rendered_prompt() -> None:
    """What is kept on the CPU, and what the model declares, goes as metadata too."""
    engine_input = {
        "type": "multimodal",
        "mm_placeholders": {"image": [PlaceholderRange(offset=1, length=1)]},
        "mm_hashes": {"image": ["hash"]},
        "mm_kwargs": {"image": [item().fields]},
    }
    assert same(items_of_input(engine_input, {})[0], item())
    declared = items_of_input(engine_input, {"image": frozenset({"pixel_values"})})[0]
    assert declared.metadata == {"image_grid_thw", "pixel_values"}
    assert items_of_input({**engine_input, "mm_kwargs": {}}, {})[0].fields is None
    assert items_of_input({"type": "token"}, {}) == []


def test_tensors_in_frames_are_views() -> None:
    """Of the item's memory on the way out, of the payload's on the way in."""
    [frame] = frame_items([item()])
    assert frame.fields is not None
    pixels = frame.fields[1].data
    assert tensor_data(PIXELS.data).obj is not None
    assert pixels.data.obj.__array_interface__["data"][0] == PIXELS.data.data_ptr()  # type: ignore[union-attr]
    payload = bytearray(b"".join(write_frames(FramesPayload({}, bytes(4), (frame,), b"{}"))))
    [read] = items_of_frames(read_frames(payload).items)
    at = payload.index(bytes(range(12)))
    payload[at] = 99
    assert read.fields is not None
    assert int(read.fields["pixel_values"].data[0, 0]) == 99


def test_where_the_engine_puts_it() -> None:
    """The mask goes with the place."""
    mask = torch.tensor([True, False])
    place = place_of(item(offset=5, length=2, is_embed=mask))
    assert (place.offset, place.length, place.get_num_embeds()) == (5, 2, 1)


def encoded(value: Any) -> str:
    return pybase64.b64encode(msgspec.msgpack.encode(value)).decode()


def view(data: bytes) -> Any:
    return msgspec.msgpack.Ext(3, data)


def field(**changes: Any) -> dict[str, Any]:
    good = {"data": ("uint8", [3], view(b"abc")), "field": ("batched", {"keep_on_cpu": False})}
    return {**good, **changes}


GARBAGE: dict[str, str] = {
    "no base64": "***",
    "no msgpack": base64.b64encode(b"\xc1").decode(),
    "a list": encoded([1]),
    "a field that is a number": encoded({"p": 1}),
    "a field without a kind": encoded({"p": {"data": None}}),
    "a name that is a number": encoded({1: field()}),
    "a kind that is no factory": encoded({"p": field(field=("__init__", {}))}),
    "an option of its own": encoded({"p": field(field=("batched", {"x": 1}))}),
    "an option of another type": encoded({"p": field(field=("batched", {"keep_on_cpu": 1}))}),
    "slices that are text": encoded({"p": field(field=("flat", {"slices": "x"}))}),
    "a slice of text": encoded({"p": field(field=("flat", {"slices": [["0", 1, None]]}))}),
    "a dimension that is true": encoded({"p": field(field=("flat", {"slices": [[0, 1, None]], "dim": True}))}),
    "no batch size": encoded({"p": field(field=("shared", {}))}),
    "a dtype that torch has, and no tensor": encoded({"p": field(data=("load", [3], view(b"abc")))}),
    "a shape for other bytes": encoded({"p": field(data=("uint8", [4], view(b"abc")))}),
    "a negative shape": encoded({"p": field(data=("uint8", [-1, -3], view(b"abc")))}),
    "a shape of text": encoded({"p": field(data=("uint8", ["3"], view(b"abc")))}),
    "an index into buffers that are not there": encoded({"p": field(data=("uint8", [3], 7))}),
    "text for data": encoded({"p": field(data="x")}),
    "true for data": encoded({"p": field(data=True)}),
    "a pickle": encoded({"p": field(data=("uint8", [3], msgspec.msgpack.Ext(1, b"cos\nsystem\n")))}),
    "lists without end": encoded({"p": field(data=[[[[[[[[[[[1]]]]]]]]]]])}),
}


@pytest.mark.parametrize("data", GARBAGE.values(), ids=GARBAGE)
def test_data_that_is_no_item(data: str) -> None:
    """Refused, naming the item, whatever is wrong with it: nothing of it is called, imported or allocated."""
    with pytest.raises(BadPayload, match=r"^image 0"):
        items_of_json(features([item()], kwargs_data={"image": [data]}, mm_metadata=None), None)


def test_the_garbage_is_garbage_by_one_change() -> None:
    """What the cases above change is good before."""
    good = features([item()], kwargs_data={"image": [encoded({"p": field()})]}, mm_metadata=None)
    [out] = items_of_json(good, None)
    assert out.fields is not None
    assert bytes(out.fields["p"].data.tolist()) == b"abc"


def test_metadata_that_says_otherwise() -> None:
    """vLLM would let it override the data; here it is refused, naming the field."""
    other = MultiModalKwargsItem({"image_grid_thw": type(GRID)(data=torch.tensor([1, 9, 9]), field=GRID.field)})
    metadata = {"image": [encode_mm_kwargs_item(other)]}
    with pytest.raises(BadPayload, match="image 0: 'image_grid_thw' is another in mm_metadata"):
        items_of_json(features([item()], mm_metadata=metadata), None)


MASKS = {
    "text": "x",
    "of no modality": {"image": None},
    "too few": {"image": []},
    "no base64": {"image": ["*"]},
    "too long": {"image": ["AAAA"]},
    "other bytes": {"image": ["Ag=="]},
    "a number": {"image": [7]},
}


@pytest.mark.parametrize("masks", MASKS.values(), ids=MASKS)
def test_masks_that_are_none(masks: Any) -> None:
    """Refused, naming the item."""
    with pytest.raises(BadPayload, match=r"^image 0: its is_embed"):
        items_of_json(features([item()]), masks)
