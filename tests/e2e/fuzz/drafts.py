"""A payload taken apart, so that anything in it can be changed, and put together again as JSON or as frames.

Nothing here checks anything, and none of it is the code under test: what it writes may be as wrong as one likes.
"""

from __future__ import annotations

import base64
import json
import math
from dataclasses import dataclass, field
from typing import Any

import msgpack
import numpy as np

JSON_TYPE = "application/json"
FRAMES_TYPE = "application/vnd.rendergen.payload.v1"

_RAW_VIEW = 3
_ALIGNMENT = 16
_TENSOR_MEMBERS = ("features", "token_ids", "sampling_params", "rendergen")

DTYPES: dict[str, int] = {
    **{"bool": 1, "uint8": 1, "int8": 1, "int16": 2, "int32": 4, "int64": 8},
    **{"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8},
}


@dataclass(slots=True)
class Tensor:
    """What a payload says of a tensor, which need not be true.

    Attributes:
        dtype: as PyTorch spells it, or anything else.
        shape: its dimensions, or anything else.
        data: its bytes.
    """

    dtype: Any
    shape: Any
    data: bytes

    def array(self) -> np.ndarray[Any, Any]:
        """The values; bfloat16 is not known to numpy."""
        return np.frombuffer(self.data, self.dtype).reshape(self.shape)

    @classmethod
    def of(cls, array: np.ndarray[Any, Any]) -> Tensor:
        """With what numpy has."""
        return cls(array.dtype.name, list(array.shape), np.ascontiguousarray(array).tobytes())


@dataclass(slots=True)
class Field:
    """One field of an item.

    Attributes:
        kind: how it is batched.
        options: of that kind.
        data: a Tensor, a number, a list, or None.
        metadata: whether it is in mm_metadata too.
        kept: what it is there, if not the same.
    """

    kind: Any
    options: Any
    data: Any
    metadata: bool = False
    kept: Any = ...


@dataclass(slots=True)
class Picture:
    """One item, and the colour that it shows: the tensors of it are what the answer must name."""

    color: str
    hash: Any
    offset: Any
    length: Any
    fields: Any
    modality: Any = "image"
    is_embed: Any = None


@dataclass(slots=True)
class Draft:
    """A payload.

    Attributes:
        question: what it asks, as a key to the right answers.
        request: members of the request but the other ones here.
        token_ids: the prompt.
        pictures: its items.
        sampling_params: an object, or raw bytes in its place.
        fingerprint: of the render server; None: not sent.
        signature: bytes, or None.
        extra: members of JSON's `rendergen` besides, and of a frame's head.
    """

    question: str
    request: dict[str, Any]
    token_ids: Any
    pictures: list[Picture]
    sampling_params: Any
    fingerprint: Any
    signature: Any
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def colors(self) -> tuple[str, ...]:
        """In the order in which they stand in the prompt."""
        return tuple(picture.color for picture in sorted(self.pictures, key=lambda picture: picture.offset))

    def signed_parts(self) -> Any:
        """What a signature covers, but for how fields are batched, of which one meaning has many spellings."""
        pictures = [
            (
                *(picture.modality, picture.hash, picture.offset, picture.length, picture.is_embed),
                {name: (each.data, each.metadata) for name, each in picture.fields.items()}
                if isinstance(picture.fields, dict)
                else picture.fields,
            )
            for picture in self.pictures
        ]
        return self.token_ids, pictures, self.fingerprint, self.signature


def draft_of(payload: dict[str, Any], question: str, colors: list[str]) -> Draft:
    """Take apart what the render server made of pictures of these colours, in JSON."""
    own = payload.get("rendergen") or {}
    features = payload["features"]
    pictures = []
    for index, color in enumerate(colors):
        raw = base64.b64decode(features["kwargs_data"]["image"][index])
        kept = msgpack.unpackb(base64.b64decode(features["mm_metadata"]["image"][index]), ext_hook=_bytes)
        fields = {
            name: Field(elem["field"][0], elem["field"][1], _tensor(elem["data"]), name in kept)
            for name, elem in msgpack.unpackb(raw, ext_hook=_bytes).items()
        }
        place = features["mm_placeholders"]["image"][index]
        pictures.append(Picture(color, features["mm_hashes"]["image"][index], place["offset"], place["length"], fields))
    return Draft(
        question=question,
        request={name: value for name, value in payload.items() if name not in _TENSOR_MEMBERS},
        token_ids=list(payload["token_ids"]),
        pictures=pictures,
        sampling_params=dict(payload["sampling_params"]),
        fingerprint=own.get("fingerprint"),
        signature=None if own.get("signature") is None else bytes.fromhex(own["signature"]),
    )


def _bytes(code: int, data: bytes) -> bytes:
    assert code == _RAW_VIEW
    return data


def _tensor(node: list[Any]) -> Tensor:
    dtype, shape, data = node
    return Tensor(dtype, shape, data)


def as_json(draft: Draft) -> bytes:
    """As vLLM's JSON, with what the plugin adds. Values that JSON has no form for become text."""
    members = {**draft.request, "token_ids": draft.token_ids, "sampling_params": draft.sampling_params}
    if draft.pictures:
        features: dict[str, Any] = {"mm_hashes": {}, "mm_placeholders": {}, "kwargs_data": {}, "mm_metadata": {}}
        masks: dict[str, Any] = {}
        for picture in draft.pictures:
            key = str(picture.modality)
            features["mm_hashes"].setdefault(key, []).append(picture.hash)
            place = {"offset": picture.offset, "length": picture.length}
            features["mm_placeholders"].setdefault(key, []).append(place)
            features["kwargs_data"].setdefault(key, []).append(_json_item(picture.fields, kept=False))
            features["mm_metadata"].setdefault(key, []).append(_json_item(picture.fields, kept=True))
            mask = picture.is_embed
            masks.setdefault(key, []).append(base64.b64encode(mask).decode() if isinstance(mask, bytes) else mask)
        members["features"] = features
        if any(any(mask is not None for mask in each) for each in masks.values()):
            draft.extra.setdefault("is_embed", masks)
    if draft.fingerprint is not None or draft.signature is not None or draft.extra:
        signature = draft.signature
        members["rendergen"] = {
            "fingerprint": draft.fingerprint,
            "signature": signature.hex() if isinstance(signature, bytes) else signature,
            **draft.extra,
        }
    return json.dumps(members, default=lambda value: repr(value)).encode()


def _json_item(fields: Any, *, kept: bool) -> Any:
    if not isinstance(fields, dict):
        return fields
    if kept and not any(each.metadata or each.kept is not ... for each in fields.values()):
        return None
    packed = {
        name: {
            "data": _json_node(each.kept if kept and each.kept is not ... else each.data),
            "field": [each.kind, each.options],
        }
        for name, each in fields.items()
        if not kept or each.metadata or each.kept is not ...
    }
    return base64.b64encode(_packed(packed)).decode()


def _json_node(node: Any) -> Any:
    if isinstance(node, Tensor):
        return [node.dtype, node.shape, msgpack.ExtType(_RAW_VIEW, node.data)]
    return [_json_node(each) for each in node] if isinstance(node, list) else node


def as_frames(draft: Draft) -> bytes:
    """As frames, by docs/payload-format.md."""
    area = bytearray()
    tokens = draft.token_ids
    if isinstance(tokens, list) and all(type(token) is int and 0 <= token < 2**32 for token in tokens):
        tokens = np.array(tokens, "<u4").tobytes()
    head = {
        "request": draft.request,
        "token_ids": tokens,
        "items": [
            {
                "modality": picture.modality,
                "hash": picture.hash,
                "offset": picture.offset,
                "length": picture.length,
                "is_embed": picture.is_embed,
                "fields": _frame_fields(picture.fields, area),
            }
            for picture in draft.pictures
        ],
        "fingerprint": draft.fingerprint,
        "signature": draft.signature,
        **draft.extra,
    }
    packed = _packed(head)
    params = draft.sampling_params
    tail = params if isinstance(params, bytes) else json.dumps(params, default=repr).encode()
    preamble = b"\x89RGPAY\r\n" + np.array([1, 0, 1, 0], "<u2").tobytes()
    preamble += np.array([len(packed), 0], "<u4").tobytes() + np.array([len(area)], "<u8").tobytes()
    start = preamble + packed
    start += bytes(-len(start) % _ALIGNMENT)
    return start + bytes(area) + np.array([len(tail)], "<u4").tobytes() + tail


def _frame_fields(fields: Any, area: bytearray) -> Any:
    if not isinstance(fields, dict):
        return fields
    return [
        {
            "name": name,
            "kind": each.kind,
            "options": each.options,
            "metadata": each.metadata,
            "data": _frame_node(each.data, area),
        }
        for name, each in fields.items()
    ]


def _frame_node(node: Any, area: bytearray) -> Any:
    if isinstance(node, Tensor):
        at = len(area)
        area.extend(node.data)
        area.extend(bytes(-len(area) % _ALIGNMENT))
        size = len(node.data)
        return {"dtype": node.dtype, "shape": node.shape, "at": at, "bytes": size}
    return [_frame_node(each, area) for each in node] if isinstance(node, list) else node


def _packed(value: Any) -> bytes:
    """As msgpack; what it has no form for (numbers of more than 64 bits, lone surrogates) becomes text."""
    return bytes(msgpack.packb(_packable(value), unicode_errors="surrogatepass"))


def _packable(value: Any) -> Any:
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return str(value)
    if isinstance(value, dict):
        return {_packable(key): _packable(each) for key, each in value.items()}
    if isinstance(value, list | tuple) and not isinstance(value, msgpack.ExtType):
        return [_packable(each) for each in value]
    return value


def element_bytes(dtype: str, shape: list[int]) -> int:
    """How many bytes a tensor has."""
    return DTYPES[dtype] * math.prod(shape)
