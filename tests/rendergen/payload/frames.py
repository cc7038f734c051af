"""Payloads in frames, written by hand from docs/payload-format.md."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence

import msgpack

MAGIC = b"\x89RGPAY\r\n"
MEDIA_TYPE = "application/vnd.rendergen.payload.v1"


def preamble(head: int, tensors: int, *, magic: bytes = MAGIC, **members: int) -> bytes:
    """The first 32 bytes; `members` override what is there by name."""
    said = {"version": 1, "index": 0, "count": 1, "zero": 0, "head": head, "zero_too": 0, "tensors": tensors} | members
    return magic + struct.pack("<HHHHIIQ", *said.values())


def padded(data: bytes) -> bytes:
    """`data` and the zeros that make it a multiple of 16 bytes long."""
    return data + bytes(-len(data) % 16)


def head_of(token_ids: Sequence[int], tensors: Sequence[bytes] = (), **members: object) -> bytes:
    """A head with these tokens and one item for each tensor."""
    at, items = 0, []
    for number, tensor in enumerate(tensors):
        data = {"dtype": "uint8", "shape": [len(tensor)], "at": at, "bytes": len(tensor)}
        field = {"name": "pixel_values", "kind": "batched", "options": {}, "metadata": False, "data": data}
        items.append(
            {"modality": "image", "hash": f"h{number}", "offset": 0, "length": 1, "is_embed": None}
            | {"fields": [field]}
        )
        at += len(padded(tensor))
    head = {
        "request": {"request_id": "r", "model": "m", "stream": False},
        "token_ids": struct.pack(f"<{len(token_ids)}I", *token_ids),
        "items": items,
        "fingerprint": "f",
        "signature": None,
    }
    packed = msgpack.packb(head | members)
    assert isinstance(packed, bytes)
    return packed


def tail_of(params: bytes) -> bytes:
    """The sampling params as they stand at the end."""
    return struct.pack("<I", len(params)) + params


def frames(
    token_ids: Sequence[int] = (1, 2, 3),
    tensors: Sequence[bytes] = (),
    params: bytes = b"{}",
    head: bytes | None = None,
) -> bytes:
    """A whole payload."""
    head = head_of(token_ids, tensors) if head is None else head
    area = b"".join(map(padded, tensors))
    return preamble(len(head), len(area)) + padded(head) + area + tail_of(params)


def outside_and_params(payload: bytes) -> tuple[bytes, bytes, Mapping[str, object]]:
    """All before the tail; the sampling params as written; and decoded. Fails if the sizes do not add up."""
    assert payload.startswith(MAGIC)
    [head, tensors] = struct.unpack_from("<I4xQ", payload, 16)
    tail = 32 + head + -head % 16 + tensors
    [size] = struct.unpack_from("<I", payload, tail)
    assert len(payload) == tail + 4 + size
    return payload[:tail], payload[tail + 4 :], json.loads(payload[tail + 4 :])
