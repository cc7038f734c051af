"""Between vLLM's multimodal items and the two encodings of a payload."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import msgspec
import numpy as np
import pybase64
import torch
from vllm.multimodal.inputs import MultiModalFieldElem, MultiModalKwargsItem, PlaceholderRange
from vllm.v1.serial_utils import MsgpackEncoder
from vllm.v1.utils import tensor_data

from rendergen.payload.frames import (
    FIELD_KINDS,
    ITEM_BYTES,
    MAX_DEPTH,
    Field,
    FrameItem,
    Node,
    Tensor,
)
from rendergen.vllm_plugin.errors import BadPayload
from rendergen.vllm_plugin.field_options import field_of, options_of
from rendergen.vllm_plugin.items import Item

JsonData: TypeAlias = dict[str, list[str | None]]
"""By modality, an item each: base64 of vLLM's msgpack, or None."""

# How vLLM marks a tensor's bytes in its msgpack. Any other extension is refused: it has one for pickles.
_RAW_VIEW = 3


def items_of_input(engine_input: Mapping[str, Any], metadata_fields: Mapping[str, frozenset[str]]) -> list[Item]:
    """The items of a rendered prompt.

    Args:
        engine_input: vLLM's rendered prompt.
        metadata_fields: names of the fields that an encoder cache's consumer needs, by modality.
    """
    if engine_input.get("type") != "multimodal":
        return []
    items: list[Item] = []
    for modality, ranges in engine_input["mm_placeholders"].items():
        hashes = engine_input["mm_hashes"][modality]
        values = engine_input["mm_kwargs"].get(modality) or [None] * len(hashes)
        declared = metadata_fields.get(modality, frozenset())
        for index, (place, hint, fields) in enumerate(zip(ranges, hashes, values, strict=True)):
            metadata = {name for name, elem in (fields or {}).items() if elem.field.keep_on_cpu or name in declared}
            items.append(
                Item(modality, index, hint, place.offset, place.length, place.is_embed, fields, frozenset(metadata))
            )
    return items


def frame_items(items: Sequence[Item]) -> tuple[FrameItem, ...]:
    """``items`` as frames carry them; tensors are views of the same memory."""
    return tuple(
        FrameItem(
            modality=item.modality,
            hash=item.hint,
            offset=item.offset,
            length=item.length,
            is_embed=None if item.is_embed is None else mask_bytes(item.is_embed),
            fields=None if item.fields is None else tuple(_frame_fields(item)),
        )
        for item in items
    )


def items_of_frames(frames: Sequence[FrameItem]) -> list[Item]:
    """The items of a payload in frames; tensors are views of its memory.

    Raises:
        BadPayload: a field's options are none.
    """
    counts: dict[str, int] = {}
    items: list[Item] = []
    for frame in frames:
        index = counts.get(frame.modality, 0)
        counts[frame.modality] = index + 1
        where = f"{frame.modality} {index}"
        fields = None
        if frame.fields is not None:
            fields = MultiModalKwargsItem(
                {each.name: _elem(each.kind, each.options, _torch_node(each.data), where) for each in frame.fields}
            )
            if len(fields) != len(frame.fields):
                raise BadPayload(f"{where}: a field comes twice.")
        is_embed = None if frame.is_embed is None else _mask(frame.is_embed)
        metadata = frozenset(each.name for each in frame.fields or () if each.metadata)
        items.append(Item(frame.modality, index, frame.hash, frame.offset, frame.length, is_embed, fields, metadata))
    return items


def items_of_json(features: Any, masks: Any) -> list[Item]:
    """The items of a payload in JSON, as vLLM's generate request has them.

    Args:
        features: vLLM's `MultiModalFeatures`, validated.
        masks: by modality, a list of base64 or None: `is_embed`, which vLLM's JSON has no place for.

    Raises:
        BadPayload: an item's data is none, or is another than its metadata says.
    """
    items: list[Item] = []
    for modality, hashes in features.mm_hashes.items():
        absent = [None] * len(hashes)
        data = (features.kwargs_data or {}).get(modality, absent)
        metadata = (features.mm_metadata or {}).get(modality, absent)
        for index, place in enumerate(features.mm_placeholders[modality]):
            where = f"{modality} {index}"
            fields, kept = _json_fields(data[index], where), _json_fields(metadata[index], where)
            items.append(
                Item(
                    modality=modality,
                    index=index,
                    hint=hashes[index],
                    offset=place.offset,
                    length=place.length,
                    is_embed=_json_mask(masks, modality, index, place.length, where),
                    fields=_merged(fields, kept, where),
                    metadata=frozenset(kept or ()),
                )
            )
    return items


def json_data(items: Sequence[Item]) -> tuple[JsonData, JsonData | None]:
    """`kwargs_data` and `mm_metadata` of ``items``, as vLLM's render has them in JSON. None: there is no metadata."""
    encoder = MsgpackEncoder(size_threshold=2**62)  # every tensor inline
    data: dict[str, list[str | None]] = {}
    metadata: dict[str, list[str | None]] = {}
    for item in items:
        fields = item.fields
        kept = None if fields is None else {name: elem for name, elem in fields.items() if name in item.metadata}
        data.setdefault(item.modality, []).append(_json_item(fields, encoder))
        metadata.setdefault(item.modality, []).append(_json_item(kept, encoder) if kept else None)
    return data, metadata if any(any(each) for each in metadata.values()) else None


def json_masks(items: Sequence[Item]) -> dict[str, list[str | None]] | None:
    """What `items_of_json` takes as ``masks``; None where no item has any."""
    if all(item.is_embed is None for item in items):
        return None
    masks: dict[str, list[str | None]] = {}
    for item in items:
        mask = None if item.is_embed is None else base64.b64encode(mask_bytes(item.is_embed)).decode()
        masks.setdefault(item.modality, []).append(mask)
    return masks


def token_bytes(token_ids: Sequence[int]) -> bytes:
    """Token ids as little-endian u32."""
    return np.asarray(token_ids, dtype="<u4").tobytes()


def place_of(item: Item) -> PlaceholderRange:
    """Where the item is in the prompt, as the engine takes it."""
    return PlaceholderRange(offset=item.offset, length=item.length, is_embed=item.is_embed)


def mask_bytes(mask: torch.Tensor) -> bytes:
    """A bool tensor of shape (n,) as n bytes of 0 or 1."""
    return bytes(tensor_data(mask.to(torch.uint8)))


def _json_item(fields: Mapping[str, MultiModalFieldElem] | None, encoder: MsgpackEncoder) -> str | None:
    if fields is None:
        return None
    [encoded] = encoder.encode(MultiModalKwargsItem(fields))
    return pybase64.b64encode(encoded).decode("ascii")


def _mask(data: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8).bool()


def _json_mask(masks: Any, modality: str, index: int, length: int, where: str) -> torch.Tensor | None:
    try:
        mask = (masks or {}).get(modality, {index: None})[index]
        data = None if mask is None else base64.b64decode(mask, validate=True)
    except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
        raise BadPayload(f"{where}: its is_embed cannot be read.") from error
    if data is None:
        return None
    if len(data) != length or data.strip(b"\0\1"):
        raise BadPayload(f"{where}: its is_embed is not {length} bytes of 0 or 1.")
    return _mask(data)


def _frame_fields(item: Item) -> list[Field]:
    fields: list[Field] = []
    for name, elem in (item.fields or {}).items():
        kind, options = options_of(elem.field)
        fields.append(Field(name, kind, options, name in item.metadata, _frame_node(elem.data)))
    return fields


def _frame_node(node: Any) -> Node:
    if isinstance(node, torch.Tensor):
        return Tensor(str(node.dtype).removeprefix("torch."), tuple(node.shape), tensor_data(node))
    if isinstance(node, list | tuple):
        return [_frame_node(each) for each in node]
    return node  # type: ignore[no-any-return]


def _torch_node(node: Node) -> Any:
    if isinstance(node, Tensor):
        return _torch_tensor(node.dtype, node.shape, node.data)
    if isinstance(node, list):
        return [_torch_node(each) for each in node]
    return node


def _torch_tensor(dtype: str, shape: Sequence[int], data: memoryview) -> torch.Tensor:
    kind = getattr(torch, dtype)
    if not data.nbytes:  # of which torch makes no view
        return torch.empty(tuple(shape), dtype=kind)
    return torch.frombuffer(data, dtype=torch.uint8).view(kind).view(tuple(shape))


def _elem(kind: Any, options: Any, data: Any, where: str) -> MultiModalFieldElem:
    try:
        return MultiModalFieldElem(data=data, field=field_of(kind, options))
    except ValueError as error:
        raise BadPayload(f"{where}: {error}.") from error
    except RecursionError as error:
        raise BadPayload(f"{where}: its options are nested too deep.") from error


def _json_fields(encoded: str | None, where: str) -> MultiModalKwargsItem | None:
    """vLLM's base64 of msgpack, read without its decoder, which calls whatever factory the payload names."""
    if encoded is None:
        return None
    try:
        raw = pybase64.b64decode_as_bytearray(encoded, validate=True)
        decoded = msgspec.msgpack.decode(raw, ext_hook=_extension)
        if not isinstance(decoded, dict):
            raise ValueError("it is no map")
        return MultiModalKwargsItem({name: _json_elem(name, elem, where) for name, elem in decoded.items()})
    except (binascii.Error, msgspec.MsgspecError, NotImplementedError, RecursionError, ValueError) as error:
        raise BadPayload(f"{where}: its data cannot be read: {type(error).__name__}.") from error


def _extension(code: int, data: memoryview) -> memoryview:
    if code != _RAW_VIEW:
        raise NotImplementedError
    return data


def _json_elem(name: Any, elem: Any, where: str) -> MultiModalFieldElem:
    match elem:
        case {"data": data, "field": [str(kind), dict(options)]} if isinstance(name, str) and kind in FIELD_KINDS:
            return _elem(kind, options, _json_node(data, f"{where}, {name!r}"), where)
    raise BadPayload(f"{where}: {name!r} is no field.")


def _json_node(node: Any, where: str, depth: int = 0) -> Any:
    match node:
        case [str(dtype), list(shape), memoryview() as data]:
            _require_tensor(dtype, shape, data, where)
            # A copy, unlike with frames: within msgpack it stands at any address, and torch wants aligned ones.
            return _torch_tensor(dtype, shape, memoryview(bytearray(data)))
        case list() if depth < MAX_DEPTH:
            return [_json_node(each, where, depth + 1) for each in node]
        case bool():
            pass
        case None | int() | float():
            return node
    raise BadPayload(f"{where}: it is no tensor, number or list of them.")


def _require_tensor(dtype: str, shape: list[Any], data: memoryview, where: str) -> None:
    if dtype not in ITEM_BYTES:
        raise BadPayload(f"{where}: dtype {dtype!r} is unknown.")
    if not all(type(size) is int and size >= 0 for size in shape):
        raise BadPayload(f"{where}: shape {shape} is none.")
    size = ITEM_BYTES[dtype]
    for dimension in shape:
        size *= dimension
    if size != data.nbytes:
        raise BadPayload(f"{where}: {data.nbytes} bytes are not what {dtype} of shape {shape} takes, {size}.")


def _merged(
    fields: MultiModalKwargsItem | None, kept: MultiModalKwargsItem | None, where: str
) -> MultiModalKwargsItem | None:
    """vLLM lets the metadata override the data, field by field. Here they must agree, so that nothing is overridden."""
    if fields is None or kept is None:
        return fields
    for name, elem in kept.items():
        if name not in fields or fields[name] != elem:
            raise BadPayload(f"{where}: {name!r} is another in mm_metadata than in kwargs_data.")
    return fields
