"""The payload as frames: a msgpack head, raw tensors, and the sampling params last. See ``docs/payload-format.md``.

Writing gives pieces to be sent one after the other, tensors as views of the caller's memory: none of their bytes is
copied here. Reading is in ``frame_reader.py``.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
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

MAX_HEAD_BYTES = 4 * 1024 * 1024
"""The longest head. Its lists and maps take many times their size when they are read."""

MAX_PARAMS_BYTES = 4 * 1024 * 1024
"""The longest sampling params."""

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
