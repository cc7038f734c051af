"""Reading a payload in frames: views of its memory, and what is wrong with it where it is none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import msgpack

from rendergen.payload.frames import (
    FIELD_KINDS,
    ITEM_BYTES,
    LENGTH,
    MAX_DEPTH,
    MAX_HEAD_BYTES,
    MAX_PARAMS_BYTES,
    PREAMBLE,
    TOKEN_BYTES,
    Field,
    FrameItem,
    FramesPayload,
    MalformedFrames,
    Node,
    Preamble,
    Tensor,
    padded,
)


def read_frames(data: bytes | bytearray | memoryview) -> FramesPayload:
    """Read a whole payload. What it holds are views of ``data``.

    Raises:
        MalformedFrames: it is none, or there is more or less of it than it says.
    """
    view = memoryview(data)
    preamble = Preamble.read(view)
    if preamble.head_bytes > MAX_HEAD_BYTES:
        raise MalformedFrames(f"the head has {preamble.head_bytes} bytes; at most {MAX_HEAD_BYTES} are read")
    if len(view) < preamble.tail_at + LENGTH.size:
        raise MalformedFrames(f"the payload ends after {len(view)} bytes, before its sampling params")
    (length,) = LENGTH.unpack_from(view, preamble.tail_at)
    params = view[preamble.tail_at + LENGTH.size :]
    if preamble.count > 1 and len(params) > length:
        raise MalformedFrames(f"it is one of {preamble.count} payloads, and another follows: read them one by one")
    if length > MAX_PARAMS_BYTES:
        raise MalformedFrames(f"the sampling params have {length} bytes; at most {MAX_PARAMS_BYTES} are read")
    if len(params) != length:
        raise MalformedFrames(f"the sampling params have {len(params)} bytes, and say they have {length}")
    head_end = PREAMBLE.size + preamble.head_bytes
    if any(view[head_end : preamble.tensors_at]):
        raise MalformedFrames("the head is followed by something else than zeros")
    head = read_head(view[PREAMBLE.size : head_end])
    area = _TensorArea(view[preamble.tensors_at : preamble.tail_at])
    items = tuple(_read_item(item, area, f"item {number}") for number, item in enumerate(head.items))
    if area.taken != len(area.data):
        raise MalformedFrames(f"the tensors take {area.taken} bytes of the {len(area.data)} that there are")
    return FramesPayload(
        request=head.request,
        token_ids=head.token_ids,
        items=items,
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
        head = msgpack.unpackb(data, object_pairs_hook=_map, ext_hook=_extension)
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


def _extension(code: int, data: bytes) -> Any:
    raise MalformedFrames(f"the head has a msgpack extension, of type {code}")


def _map(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise MalformedFrames("the head has a map in which a key comes twice")
    return members


@dataclass(slots=True)
class _TensorArea:
    """The tensors' bytes. Each follows the one before: none may be read twice, or the work would have no bound."""

    data: memoryview
    taken: int = 0

    def take(self, at: int, size: int, where: str) -> memoryview:
        if at != self.taken:
            raise MalformedFrames(f"{where}: its bytes are at {at}, and the tensor before it ends at {self.taken}")
        if at + size > len(self.data):
            raise MalformedFrames(f"{where}: bytes {at} to {at + size} are not within the {len(self.data)} there are")
        self.taken = padded(at + size)
        return self.data[at : at + size]


def _read_item(item: Any, area: _TensorArea, where: str) -> FrameItem:
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


def _read_field(each: Any, area: _TensorArea, where: str) -> Field:
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


def _read_node(node: Any, area: _TensorArea, where: str, depth: int = 0) -> Node:
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
    return Tensor(dtype, tuple(shape), area.take(at, size, where))


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
