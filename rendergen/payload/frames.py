"""The payload as frames: a msgpack head, raw tensors, and the sampling params last. See ``docs/payload-format.md``.

Writing gives pieces to be sent one after the other, tensors as views of the caller's memory; reading gives views of the
payload. No byte of a tensor is copied here.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, TypeAlias

import msgpack

from rendergen.payload.errors import PayloadError
from rendergen.payload.members import Piece

VERSION = 1
MEDIA_TYPE = f"application/vnd.rendergen.payload.v{VERSION}"
MAGIC = b"\x89RGPAY\r\n"
ALIGNMENT = 16
"""Every tensor begins at a multiple of this, from the payload's first byte."""

PREAMBLE = struct.Struct("<8sHHHHIIQ")
LENGTH = struct.Struct("<I")
TOKEN_BYTES = 4

ITEM_BYTES: Mapping[str, int] = {
    "bool": 1,
    "uint8": 1,
    "int8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "float16": 2,
    "bfloat16": 2,
    "float32": 4,
    "float64": 8,
}
"""The dtypes that a tensor may have, as PyTorch spells them, and the bytes of one element."""

MAX_DEPTH = 8
"""How deep lists of tensors may be nested."""

FIELD_KINDS = frozenset({"batched", "flat", "shared"})


class MalformedFrames(PayloadError):
    """The bytes are no payload in frames. The message says where and why."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor's bytes, row-major.

    Attributes:
        dtype: a key of `ITEM_BYTES`.
        shape: its dimensions.
        data: its bytes, as many as dtype and shape say.
    """

    dtype: str
    shape: tuple[int, ...]
    data: memoryview


Node: TypeAlias = "int | float | Tensor | list[Node] | None"
"""A field's value: nearly always one tensor. vLLM knows lists of them, and plain numbers, too."""


@dataclass(frozen=True, slots=True)
class Field:
    """One named value of an item (`pixel_values`), and how vLLM puts those of several items together.

    Attributes:
        name: vLLM's name of it.
        kind: `batched`, `flat` or `shared`.
        options: that kind's options.
        metadata: whether JSON carries it in `mm_metadata` too.
        data: the value.
    """

    name: str
    kind: str
    options: Mapping[str, Any]
    metadata: bool
    data: Node


@dataclass(frozen=True, slots=True)
class FrameItem:
    """One multimodal item.

    Attributes:
        modality: `image`, `video`, `audio`.
        hash: vLLM's hash of it, a hint.
        offset: where its placeholder tokens begin in the prompt, in tokens.
        length: how many there are.
        is_embed: one byte for each placeholder, 1 where it gets an embedding; None: all of them do.
        fields: its values; None where only the hash is known.
    """

    modality: str
    hash: str
    offset: int
    length: int
    is_embed: bytes | None
    fields: tuple[Field, ...] | None


@dataclass(frozen=True, slots=True)
class FramesPayload:
    """A whole payload.

    Attributes:
        request: the generate request's members but for `token_ids`, `features` and `sampling_params`.
        token_ids: the prompt, little-endian u32 each.
        items: its multimodal items.
        sampling_params: a raw JSON object.
        fingerprint: of the render pod's model, processor and tokenizer.
        signature: 32 bytes.
        index: which payload of its answer this is, from 0.
        count: how many the answer has.
    """

    request: Mapping[str, Any]
    token_ids: bytes
    items: tuple[FrameItem, ...]
    sampling_params: bytes
    fingerprint: str | None = None
    signature: bytes | None = None
    index: int = 0
    count: int = 1


@dataclass(frozen=True, slots=True)
class Preamble:
    """A payload's first 32 bytes: how long its parts are.

    Attributes:
        index: which payload of its answer this is, from 0.
        count: how many the answer has.
        head_bytes: length of the head, its padding not counted.
        tensor_bytes: length of the tensor area.
    """

    index: int
    count: int
    head_bytes: int
    tensor_bytes: int

    @classmethod
    def read(cls, data: Piece) -> Preamble:
        """Read the first `PREAMBLE.size` bytes of ``data``.

        Raises:
            MalformedFrames: they are none, or of another version.
        """
        if len(data) < PREAMBLE.size:
            raise MalformedFrames(f"the payload ends within its preamble, after {len(data)} bytes")
        magic, version, index, count, zero, head_bytes, zeros, tensor_bytes = PREAMBLE.unpack_from(data)
        if magic != MAGIC:
            raise MalformedFrames("the payload does not begin with the magic bytes of frames")
        if version != VERSION:
            raise MalformedFrames(f"the payload is of version {version}; this reads version {VERSION}")
        if zero or zeros or index >= count or tensor_bytes % ALIGNMENT:
            raise MalformedFrames("the payload's preamble contradicts itself")
        return cls(index, count, head_bytes, tensor_bytes)

    def write(self) -> bytes:
        """The 32 bytes."""
        return PREAMBLE.pack(MAGIC, VERSION, self.index, self.count, 0, self.head_bytes, 0, self.tensor_bytes)

    @property
    def tensors_at(self) -> int:
        """Where the tensor area begins, from the payload's first byte."""
        return padded(PREAMBLE.size + self.head_bytes)

    @property
    def tail_at(self) -> int:
        """Where the tail begins."""
        return self.tensors_at + self.tensor_bytes


def padded(size: int) -> int:
    """``size``, rounded up to the alignment."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def write_frames(payload: FramesPayload) -> list[Piece]:
    """The payload's bytes, in pieces; tensors are the views that were given.

    Raises:
        MalformedFrames: a value that msgpack has no form for (an integer of more than 64 bits).
    """
    area = _TensorArea()
    head = {
        "request": payload.request,
        "token_ids": payload.token_ids,
        "items": [_written_item(item, area) for item in payload.items],
        "fingerprint": payload.fingerprint,
        "signature": payload.signature,
    }
    try:
        packed: bytes = msgpack.packb(head)
    except (OverflowError, ValueError, TypeError) as error:
        raise MalformedFrames(f"the request holds what cannot be written: {error}") from error
    preamble = Preamble(payload.index, payload.count, len(packed), area.size)
    start = preamble.write() + packed
    return [start.ljust(padded(len(start)), b"\0"), *area.pieces, tail(payload.sampling_params)]


def tail(sampling_params: bytes) -> bytes:
    """The payload's tail: the length of the sampling params, a raw JSON object, and they."""
    return LENGTH.pack(len(sampling_params)) + sampling_params


def read_frames(data: bytes | bytearray | memoryview) -> FramesPayload:
    """Read a whole payload. What it holds are views of ``data``.

    Raises:
        MalformedFrames: it is none, or there is more or less of it than it says.
    """
    view = memoryview(data)
    preamble = Preamble.read(view)
    if len(view) < preamble.tail_at + LENGTH.size:
        raise MalformedFrames(f"the payload ends after {len(view)} bytes, before its sampling params")
    (length,) = LENGTH.unpack_from(view, preamble.tail_at)
    params = view[preamble.tail_at + LENGTH.size :]
    if len(params) != length:
        raise MalformedFrames(f"the sampling params have {len(params)} bytes, and say they have {length}")
    head_end = PREAMBLE.size + preamble.head_bytes
    if any(view[head_end : preamble.tensors_at]):
        raise MalformedFrames("the head is followed by something else than zeros")
    head = read_head(view[PREAMBLE.size : head_end])
    area = view[preamble.tensors_at : preamble.tail_at]
    return FramesPayload(
        request=head.request,
        token_ids=head.token_ids,
        items=tuple(_read_item(item, area, f"item {number}") for number, item in enumerate(head.items)),
        sampling_params=bytes(params),
        fingerprint=head.fingerprint,
        signature=head.signature,
        index=preamble.index,
        count=preamble.count,
    )


@dataclass(frozen=True, slots=True)
class Head:
    """A payload's head, its items not yet read."""

    request: Mapping[str, Any]
    token_ids: bytes
    items: Sequence[Any]
    fingerprint: str | None
    signature: bytes | None


def read_head(data: bytes | memoryview) -> Head:
    """Read the head alone.

    Raises:
        MalformedFrames: it is none.
    """
    try:
        head = msgpack.unpackb(data, object_pairs_hook=_map)
    except MalformedFrames:
        raise
    # msgpack raises half a dozen of its own, most of them ValueErrors, for bytes that are none of its format.
    except (ValueError, TypeError, msgpack.UnpackException, RecursionError) as error:
        raise MalformedFrames(f"the head is no msgpack: {type(error).__name__}") from error
    if not isinstance(head, dict):
        raise MalformedFrames("the head is no map")
    request = _member(head, "request", dict, "the head")
    token_ids = _member(head, "token_ids", bytes, "the head")
    items = _member(head, "items", list, "the head")
    fingerprint = _member(head, "fingerprint", (str, type(None)), "the head")
    signature = _member(head, "signature", (bytes, type(None)), "the head")
    if not token_ids or len(token_ids) % TOKEN_BYTES:
        raise MalformedFrames(f"the head's token_ids have {len(token_ids)} bytes, no multiple of {TOKEN_BYTES} above 0")
    return Head(request, token_ids, items, fingerprint, signature)


def _map(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise MalformedFrames("the head has a map in which a key comes twice")
    return members


@dataclass(slots=True)
class _TensorArea:
    pieces: list[Piece] = field(default_factory=list)
    size: int = 0

    def add(self, data: memoryview) -> int:
        at = self.size
        self.pieces.append(data)
        self.size = padded(at + len(data))
        if gap := self.size - at - len(data):
            self.pieces.append(bytes(gap))
        return at


def _written_item(item: FrameItem, area: _TensorArea) -> dict[str, Any]:
    return {
        "modality": item.modality,
        "hash": item.hash,
        "offset": item.offset,
        "length": item.length,
        "is_embed": item.is_embed,
        "fields": None if item.fields is None else [_written_field(each, area) for each in item.fields],
    }


def _written_field(each: Field, area: _TensorArea) -> dict[str, Any]:
    return {
        "name": each.name,
        "kind": each.kind,
        "options": each.options,
        "metadata": each.metadata,
        "data": _written_node(each.data, area),
    }


def _written_node(node: Node, area: _TensorArea) -> Any:
    if isinstance(node, Tensor):
        return {"dtype": node.dtype, "shape": node.shape, "at": area.add(node.data), "bytes": len(node.data)}
    if isinstance(node, list):
        return [_written_node(each, area) for each in node]
    return node


def _read_item(item: Any, area: memoryview, where: str) -> FrameItem:
    if not isinstance(item, dict):
        raise MalformedFrames(f"{where} is no map")
    length = _count(item, "length", where)
    is_embed = _member(item, "is_embed", (bytes, type(None)), where)
    if is_embed is not None and (len(is_embed) != length or is_embed.strip(b"\0\1")):
        raise MalformedFrames(f"{where}: is_embed is not {length} bytes of 0 or 1")
    fields = _member(item, "fields", (list, type(None)), where)
    return FrameItem(
        modality=_member(item, "modality", str, where),
        hash=_member(item, "hash", str, where),
        offset=_count(item, "offset", where),
        length=length,
        is_embed=is_embed,
        fields=None if fields is None else tuple(_read_field(each, area, where) for each in fields),
    )


def _read_field(each: Any, area: memoryview, where: str) -> Field:
    if not isinstance(each, dict):
        raise MalformedFrames(f"{where}: a field is no map")
    name = _member(each, "name", str, where)
    where = f"{where}, {name!r}"
    kind = _member(each, "kind", str, where)
    if kind not in FIELD_KINDS:
        raise MalformedFrames(f"{where}: kind {kind!r} is unknown")
    options = _member(each, "options", dict, where)
    if "data" not in each:
        raise MalformedFrames(f"{where}: no member 'data'")
    data = _read_node(each["data"], area, where)
    return Field(name, kind, options, _member(each, "metadata", bool, where), data)


def _read_node(node: Any, area: memoryview, where: str, depth: int = 0) -> Node:
    if node is None or (isinstance(node, int | float) and not isinstance(node, bool)):
        return node
    if isinstance(node, list):
        if depth == MAX_DEPTH:
            raise MalformedFrames(f"{where}: lists are nested deeper than {MAX_DEPTH}")
        return [_read_node(each, area, where, depth + 1) for each in node]
    if not isinstance(node, dict):
        raise MalformedFrames(f"{where}: the data is no tensor, number or list of them")
    dtype = _member(node, "dtype", str, where)
    shape = _member(node, "shape", list, where)
    at, size = _count(node, "at", where), _count(node, "bytes", where)
    if dtype not in ITEM_BYTES:
        raise MalformedFrames(f"{where}: dtype {dtype!r} is unknown")
    if not all(type(dimension) is int and dimension >= 0 for dimension in shape):
        raise MalformedFrames(f"{where}: shape {shape} is none")
    if prod(shape) * ITEM_BYTES[dtype] != size:
        raise MalformedFrames(f"{where}: {size} bytes are not what {dtype} of shape {shape} takes")
    if at % ALIGNMENT or at + size > len(area):
        raise MalformedFrames(f"{where}: bytes {at} to {at + size} are not within the {len(area)} of the tensors")
    return Tensor(dtype, tuple(shape), area[at : at + size])


def _member(members: Mapping[str, Any], name: str, kind: type | tuple[type, ...], where: str) -> Any:
    value = members.get(name, ...)
    if value is ...:
        raise MalformedFrames(f"{where}: no member {name!r}")
    if not isinstance(value, kind):
        raise MalformedFrames(f"{where}: {name!r} is of the wrong type, {type(value).__name__}")
    return value


def _count(members: Mapping[str, Any], name: str, where: str) -> int:
    value = members.get(name)
    if type(value) is not int or value < 0:
        raise MalformedFrames(f"{where}: {name!r} is no count: {value!r}")
    return value
