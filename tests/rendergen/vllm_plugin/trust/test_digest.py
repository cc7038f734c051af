"""What two payloads have in common, and by what they differ, as their digests say it."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from vllm.multimodal.inputs import (
    MultiModalBatchedField,
    MultiModalFieldElem,
    MultiModalFlatField,
    MultiModalKwargsItem,
)

from rendergen.vllm_plugin.items import Item
from rendergen.vllm_plugin.trust.digest import Statement, holds, item_digest, signature
from rendergen.vllm_plugin.trust.keys import Keys
from tests.rendergen.vllm_plugin.payloads import GRID, PIXELS, item, with_pixels

KEY = bytes(range(32))


def signed(*items: Item, fingerprint: str = "f", token_ids: bytes = bytes(8), key: bytes = KEY) -> bytes:
    digests = [None if each.fields is None else item_digest(each.fields) for each in items]
    return signature(Statement(fingerprint, token_ids, items, digests), key)


PIXEL_DATA = PIXELS.data
TENSORS: dict[str, Any] = {
    "a byte": PIXEL_DATA.clone().index_fill(0, torch.tensor([0]), 7),
    "the dtype": PIXEL_DATA.view(torch.int8),
    "the shape": PIXEL_DATA.view(3, 4),
    "one dimension more": PIXEL_DATA.view(1, 4, 3),
    "a list of it": [PIXEL_DATA],
    "a number": 12,
    "no data": None,
    "empty": torch.empty(0, 3, dtype=torch.uint8),
}


@pytest.mark.parametrize("data", TENSORS.values(), ids=TENSORS)
def test_an_items_digest_is_of_its_values(data: Any) -> None:
    """Another value, dtype or shape is another item."""
    assert item_digest(with_pixels(data)) != item_digest(with_pixels(PIXEL_DATA))


def test_all_those_values_differ_from_one_another_too() -> None:
    """No two of them share a digest."""
    digests = [item_digest(with_pixels(data)) for data in TENSORS.values()]
    assert len(set(digests)) == len(digests)


def test_an_items_digest_is_of_nothing_else() -> None:
    """Neither of how it lies in memory, nor of the order of fields, nor of its neighbours in the batch."""
    transposed = PIXEL_DATA.t().contiguous().t()
    assert not transposed.is_contiguous()
    elsewhere = MultiModalFieldElem(data=transposed, field=MultiModalFlatField(slices=[[slice(8, 12)]], dim=0))
    other = MultiModalKwargsItem({"pixel_values": elsewhere, "image_grid_thw": GRID})
    assert item_digest(other) == item_digest(with_pixels(PIXEL_DATA))


def test_a_fields_name_is_part_of_it() -> None:
    """The same tensor under another name is another item."""
    assert item_digest(MultiModalKwargsItem({"a": GRID})) != item_digest(MultiModalKwargsItem({"b": GRID}))


CHANGES: dict[str, dict[str, Any]] = {
    "the hash": {"hint": "another"},
    "the modality": {"modality": "video"},
    "the place": {"offset": 2},
    "the length": {"length": 2},
    "a mask": {"is_embed": torch.tensor([True])},
    "another mask": {"is_embed": torch.tensor([False])},
    "the metadata": {"metadata": frozenset()},
    "a pixel": {"fields": with_pixels(PIXEL_DATA + 1)},
    "no tensors": {"fields": None},
    "how it is batched": {
        "fields": MultiModalKwargsItem(
            {
                "image_grid_thw": GRID,
                "pixel_values": MultiModalFieldElem(data=PIXEL_DATA, field=MultiModalBatchedField()),
            }
        )
    },
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_signature_covers_all_of_an_item(change: dict[str, Any]) -> None:
    """Whatever of it is changed."""
    assert signed(item(**change)) != signed(item())


def test_a_signature_covers_the_prompt_the_fingerprint_and_the_key() -> None:
    """And how many items there are, and their order."""
    two = (item(), item(offset=2))
    variants = [
        signed(item()),
        signed(item(), token_ids=bytes(12)),
        signed(item(), fingerprint="g"),
        signed(item(), key=bytes(32)),
        signed(*two),
        signed(*reversed(two)),
        signed(),
    ]
    assert len(set(variants)) == len(variants)


def test_parts_do_not_run_into_one_another() -> None:
    """Moving a byte from one part to the next is a change."""
    assert signed(item(modality="image", hint="xy")) != signed(item(modality="imagex", hint="y"))
    assert signed(fingerprint="ab", token_ids=b"cdef") != signed(fingerprint="abc", token_ids=b"def")


def test_a_signature_by_any_accepted_key_holds() -> None:
    """While keys are rotated there are two."""
    old, new = Keys((KEY, bytes(32))), Keys((bytes(32),))
    statement = Statement("f", bytes(8), [item()], [item_digest(with_pixels(PIXEL_DATA))])
    assert holds(statement, signature(statement, KEY), old)
    assert holds(statement, signature(statement, bytes(32)), old)
    assert not holds(statement, signature(statement, KEY), new)
    assert not holds(dataclasses.replace(statement, fingerprint="g"), signature(statement, KEY), old)
    assert not holds(statement, b"", old)
