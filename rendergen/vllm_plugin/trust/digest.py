"""Digests over what a payload says: of an item's tensors, and the keyed one over all of it, its signature.

Both are BLAKE3 over a canonical form in which every part stands after its length or count, so that no two payloads
share one. It is made of values, not of an encoding's bytes: a payload has one signature as frames and as JSON.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import blake3
import torch
from vllm.multimodal.inputs import MultiModalFieldElem, MultiModalKwargsItem
from vllm.v1.utils import tensor_data

from rendergen.vllm_plugin.field_options import options_of
from rendergen.vllm_plugin.items import Item
from rendergen.vllm_plugin.trust.keys import Keys

_FORM = b"rendergen payload 1"


@dataclass(frozen=True, slots=True)
class Statement:
    """What a signature vouches for.

    Attributes:
        fingerprint: of the render pod that made the payload.
        token_ids: the prompt, little-endian u32 each.
        items: the payload's items.
        digests: of each item's tensors (`item_digest`), None where only the hash came.
    """

    fingerprint: str
    token_ids: bytes
    items: Sequence[Item]
    digests: Sequence[bytes | None]


def item_digest(fields: MultiModalKwargsItem) -> bytes:
    """32 bytes over names, dtypes, shapes and bytes of an item's fields. Megabytes are read: not for an event loop.

    How the fields are to be batched is no part of it: it differs for one image with the number of its neighbours.
    """
    form = _Form(blake3.blake3())
    form.count(len(fields))
    for name in sorted(fields):
        form.part(name.encode())
        form.node(fields[name].data)
    return bytes(form.hasher.digest())


def signature(statement: Statement, key: bytes) -> bytes:
    """The signature, 32 bytes. The tensors' bytes are in it by their digests, so they are read once for both."""
    form = _Form(blake3.blake3(key=key))
    form.part(_FORM)
    form.part(statement.fingerprint.encode())
    form.part(statement.token_ids)
    form.count(len(statement.items))
    for item, digest in zip(statement.items, statement.digests, strict=True):
        form.part(item.modality.encode())
        form.part(item.hint.encode())
        form.count(item.offset)
        form.count(item.length)
        form.part(b"" if item.is_embed is None else tensor_data(item.is_embed.to(torch.uint8)))
        form.part(digest or b"")
        fields = item.fields or {}
        form.count(len(fields))
        for name in sorted(fields):
            form.part(name.encode())
            form.part(_options(fields[name]))
        form.count(len(item.metadata))
        for name in sorted(item.metadata):
            form.part(name.encode())
    return bytes(form.hasher.digest())


def holds(statement: Statement, signed: bytes, keys: Keys) -> bool:
    """Whether ``signed`` is the statement's signature by one of the keys. Takes as long whichever it is."""
    return any([hmac.compare_digest(signature(statement, key), signed) for key in keys.accepted])


@dataclass(frozen=True, slots=True)
class _Form:
    """Writes the canonical form into a hasher."""

    hasher: Any

    def count(self, number: int) -> None:
        self.hasher.update(number.to_bytes(8, "little"))

    def part(self, data: bytes | memoryview) -> None:
        self.count(len(data))
        self.hasher.update(data)

    def node(self, node: Any) -> None:
        if isinstance(node, torch.Tensor):
            self.part(b"tensor")
            self.part(str(node.dtype).encode())
            self.count(node.dim())
            for size in node.shape:
                self.count(size)
            self.part(tensor_data(node))
        elif isinstance(node, list | tuple):
            self.part(b"list")
            self.count(len(node))
            for each in node:
                self.node(each)
        else:
            self.part(b"value")
            self.part(repr(node).encode())


def _options(elem: MultiModalFieldElem) -> bytes:
    return json.dumps(options_of(elem.field), sort_keys=True).encode()
