"""What real render makes is served, and whatever does not fit model and prompt is refused, with the reason."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from vllm.multimodal.inputs import (
    MultiModalBatchedField,
    MultiModalFieldElem,
    MultiModalFlatField,
    MultiModalKwargsItem,
    MultiModalSharedField,
)

from rendergen.vllm_plugin.errors import BadPayload
from rendergen.vllm_plugin.items import Item
from rendergen.vllm_plugin.trust.geometry import Geometry
from tests.rendergen.vllm_plugin.trust.conftest import MAX_MODEL_LEN, Render, Rendered

PIXELS, GRID = "pixel_values", "image_grid_thw"
FLAT = MultiModalFlatField(slices=[[slice(0, 1)]], dim=0)


def refused(geometry: Geometry, rendered: Rendered, says: str, *, signed: bool = False) -> None:
    """The payload is refused in words that match."""
    with pytest.raises(BadPayload, match=says):
        geometry.check(rendered.token_ids, rendered.items, signed=signed)


def with_data(name: str, change: Callable[[Any], Any]) -> Callable[[MultiModalKwargsItem], dict[str, Any]]:
    """One field's data changed."""
    return lambda fields: {
        **fields,
        name: MultiModalFieldElem(data=change(fields[name].data), field=fields[name].field),
    }


def grid(*sides: int, dtype: torch.dtype = torch.int64) -> Callable[[MultiModalKwargsItem], dict[str, Any]]:
    """The grid set."""
    return with_data(GRID, lambda _: torch.tensor(sides, dtype=dtype))


def without(name: str) -> Callable[[MultiModalKwargsItem], dict[str, Any]]:
    """A field taken away."""
    return lambda fields: {key: elem for key, elem in fields.items() if key != name}


def with_field(name: str, data: Any) -> Callable[[MultiModalKwargsItem], dict[str, Any]]:
    """A field added."""
    return lambda fields: {**fields, name: MultiModalFieldElem(data=data, field=MultiModalBatchedField())}


def test_what_the_model_takes(geometry: Geometry) -> None:
    """Found out from vLLM: the limits of the launcher's flags, and that images can be proven."""
    assert geometry.architecture == "Qwen3VLForConditionalGeneration"
    assert (geometry.limits["image"], geometry.limits["video"]) == (4, 0)
    assert geometry.last_token == 767
    assert geometry.max_item_embeddings == 2048
    assert set(geometry.families) == {"image"}


@pytest.mark.parametrize("sides", [32, 33, 64, 224, 225, 511, 800, 1024])
def test_what_render_makes_is_served(geometry: Geometry, render: Render, sides: int) -> None:
    """Squares, and as odd oblongs as there are; the tensors come back untouched."""
    rendered = render((sides, sides), (sides, 37), (41, sides))
    for tokens in (rendered.token_ids, np.array(rendered.token_ids, dtype=np.uint32)):
        given = geometry.check(tokens, rendered.items, signed=False)
        for fields, item in zip(given, rendered.items, strict=True):
            assert fields is not None
            assert item.fields is not None
            assert fields.keys() == item.fields.keys()
            for name, elem in fields.items():
                assert elem.data is item.fields[name].data


def test_fields_come_from_the_processor(geometry: Geometry, render: Render) -> None:
    """However the payload says that fields are batched: the engine would die of a wrong way."""
    rendered = render((96, 64))
    fields = rendered.items[0].fields
    assert fields is not None
    for wrong in (MultiModalBatchedField(), MultiModalSharedField(batch_size=9), MultiModalFlatField(slices=[], dim=7)):
        lies = MultiModalKwargsItem(
            {name: MultiModalFieldElem(data=elem.data, field=wrong) for name, elem in fields.items()}
        )
        [given] = geometry.check(rendered.token_ids, rendered.with_item(fields=lies).items, signed=False)
        assert given is not None
        assert given[GRID].field == MultiModalBatchedField(keep_on_cpu=True)
        pixels = given[PIXELS].field
        assert isinstance(pixels, MultiModalFlatField)
        assert (pixels.dim, pixels.keep_on_cpu, [list(each) for each in pixels.slices]) == (0, False, [[slice(0, 24)]])


def test_four_images_and_the_same_twice(geometry: Geometry, render: Render) -> None:
    """As many as the limit allows."""
    one, other = Image.new("RGB", (64, 96), (1, 2, 3)), Image.new("RGB", (224, 32))
    rendered = render(one, other, one, one)
    assert len(geometry.check(rendered.token_ids, rendered.items, signed=False)) == 4


def test_text_alone(geometry: Geometry) -> None:
    """No items, nothing to prove."""
    assert geometry.check([1, 2, 3], [], signed=False) == []


@pytest.mark.parametrize("stray", [[5], [3, 5, 4], [3, 6, 4], [6]])
@pytest.mark.parametrize("at", ["front", "end"])
def test_stray_placeholder_tokens_are_text(geometry: Geometry, render: Render, stray: list[int], at: str) -> None:
    """A caller's own text may hold `<|image_pad|>`: vLLM serves it, and so is it here."""
    rendered = render((64, 64))
    if at == "front":
        tokens = [*stray, *rendered.token_ids]
        rendered = rendered.with_item(offset=rendered.items[0].offset + len(stray))
    else:
        tokens = [*rendered.token_ids, *stray]
    assert geometry.check(tokens, rendered.items, signed=False) != [None]


FIELDS: dict[str, tuple[Callable[[MultiModalKwargsItem], Any], str]] = {
    "no fields": (lambda fields: {}, "image 0 has no image_grid_thw, pixel_values"),
    "no pixels": (without(PIXELS), "image 0 has no pixel_values"),
    "no grid": (without(GRID), "image 0 has no image_grid_thw"),
    "a field too many": (with_field("more", torch.zeros(1)), "image 0 has 'more', which this model does not take"),
    "embeddings": (with_field("image_embeds", torch.zeros(6, 384)), "image_embeds"),
    "more frames": (grid(2, 4, 3), "1 frame, not 2"),
    "a taller grid": (grid(1, 6, 6), "36 patches, but pixel_values has 24 rows"),
    "a turned grid that cannot be": (grid(1, 24, 1), "no multiple of 2"),
    "a huge grid": (grid(1, 2**40, 2**40), "is not between 1 and 8192"),
    "a grid whose product wraps to the truth": (grid(1, 2**62 + 4, 6), "is not between"),
    "a negative grid": (grid(1, -4, -6), "-4 is not between"),
    "an empty grid": (grid(1, 0, 6), "0 is not between"),
    "an int32 grid": (grid(1, 4, 6, dtype=torch.int32), "image_grid_thw is int32, .* makes int64"),
    "a float grid": (with_data(GRID, lambda data: data.float()), "is float32"),
    "a grid of four": (grid(1, 4, 6, 1), r"shape \[4\], and this model takes \[3\]"),
    "a grid of grids": (with_data(GRID, lambda data: data[None]), r"shape \[1, 3\]"),
    "a grid of ints": (with_data(GRID, lambda data: data.tolist()), "image_grid_thw is no tensor but a list"),
    "a grid that is one int": (with_data(GRID, lambda data: 24), "no tensor but a number"),
    "no grid data": (with_data(GRID, lambda data: None), "no tensor but nothing"),
    "float pixels": (with_data(PIXELS, lambda data: data.float()), "pixel_values is float32, .* makes uint8"),
    "signed pixels": (with_data(PIXELS, lambda data: data.view(torch.int8)), "int8"),
    "narrow rows": (with_data(PIXELS, lambda data: data[:, :-1]), r"\[24, 1535\], and this model takes \[any, 1536\]"),
    "wide rows": (with_data(PIXELS, lambda data: torch.cat([data, data], 1)), r"\[24, 3072\]"),
    "fewer rows": (with_data(PIXELS, lambda data: data[:-1]), "24 patches, but pixel_values has 23 rows"),
    "more rows": (with_data(PIXELS, lambda data: torch.cat([data, data])), "has 48 rows"),
    "no rows": (with_data(PIXELS, lambda data: data[:0]), "has 0 rows"),
    "rows in a list": (with_data(PIXELS, lambda data: list(data)), "pixel_values is no tensor but a list"),
    "a dimension too many": (with_data(PIXELS, lambda data: data[None]), r"shape \[1, 24, 1536\]"),
    "flat pixels": (with_data(PIXELS, lambda data: data.flatten()), r"shape \[36864\]"),
}


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("case", FIELDS)
def test_fields_that_do_not_fit(geometry: Geometry, render: Render, case: str, signed: bool) -> None:
    """A signature does not make them fit."""
    change, says = FIELDS[case]
    rendered = render((96, 64))
    assert rendered.items[0].fields is not None
    changed = MultiModalKwargsItem(change(rendered.items[0].fields))
    refused(geometry, rendered.with_item(fields=changed), says, signed=signed)


RANGES: dict[str, tuple[dict[str, Any], str]] = {
    "one token on": (dict(offset=+1), "token .* of the prompt is 4, where this model's placeholder has 5"),
    "one token back": (dict(offset=-1), "of the prompt is 3"),
    "a token longer": (dict(length=+1), "of the prompt is 4"),
    "a token shorter": (dict(length=-1), "its features give 6 embeddings, and its placeholder takes 5"),
    "nothing": (dict(length=-6), "0 tokens from .*does not lie within"),
    "beyond the end": (dict(offset=+100), "does not lie within the prompt of"),
    "far beyond the end": (dict(offset=2**70), "does not lie within"),
    "before the beginning": (dict(offset=-100), "does not lie within"),
}


@pytest.mark.parametrize("case", RANGES)
def test_ranges_that_do_not_fit(geometry: Geometry, render: Render, case: str) -> None:
    """Each names the item and what is there."""
    changes, says = RANGES[case]
    rendered = render((96, 64))
    item = rendered.items[0]
    moved = {name: getattr(item, name) + by for name, by in changes.items()}
    refused(geometry, rendered.with_item(**moved), f"^image 0: .*{says}")


def test_a_prompt_that_ends_within_a_range(geometry: Geometry, render: Render) -> None:
    """By one token; one that ends with it is as good as any."""
    rendered = render((96, 64))
    end = rendered.items[0].offset + rendered.items[0].length
    assert geometry.check(rendered.token_ids[:end], rendered.items, signed=False) != [None]
    refused(geometry, Rendered(rendered.token_ids[: end - 1], rendered.items), "does not lie within the prompt")


def test_ranges_that_overlap(geometry: Geometry, render: Render) -> None:
    """Two images on one place, whichever comes first."""
    rendered = render((96, 64), (96, 64))
    first, second = rendered.items
    refused(geometry, rendered.with_item(1, offset=first.offset), "begins at .*, within that of image 0")
    refused(geometry, rendered.with_item(0, offset=second.offset), "within that of image 0, which ends at")


def test_swapped_items(geometry: Geometry, render: Render) -> None:
    """Two of different sizes, each in the other's place."""
    rendered = render((96, 64), (64, 64))
    first, second = rendered.items
    swapped = rendered.with_item(0, fields=second.fields).with_item(1, fields=first.fields)
    refused(geometry, swapped, "image 0: its features give 4 embeddings, and its placeholder takes 6")


def test_masks(geometry: Geometry, render: Render) -> None:
    """All of a Qwen placeholder's tokens get an embedding; a mask may say so, and nothing else."""
    rendered = render((96, 64))
    mask = torch.ones(6, dtype=torch.bool)
    assert geometry.check(rendered.token_ids, rendered.with_item(is_embed=mask).items, signed=False)
    refused(geometry, rendered.with_item(is_embed=mask[:5]), "5 entries, and its placeholder 6 tokens")
    refused(geometry, rendered.with_item(is_embed=mask.to(torch.uint8)), "mask")
    mask = mask.clone()
    mask[2] = False
    refused(geometry, rendered.with_item(is_embed=mask), "an embedding to 5 of 6 tokens")


def test_a_hash_alone(geometry: Geometry, render: Render) -> None:
    """Its range is checked; there is nothing to hand over."""
    rendered = render((96, 64)).with_item(fields=None)
    assert geometry.check(rendered.token_ids, rendered.items, signed=False) == [None]
    refused(geometry, rendered.with_item(offset=0), "image 0")


def test_more_items_than_allowed(geometry: Geometry, render: Render) -> None:
    """The server's `--limit-mm-per-prompt`."""
    rendered = render((64, 64))
    item = rendered.items[0]
    tokens = rendered.token_ids * 5
    items = [dataclasses.replace(item, offset=item.offset + n * len(rendered.token_ids), index=n) for n in range(5)]
    assert len(geometry.check(tokens, items[:4], signed=False)) == 4
    refused(geometry, Rendered(tokens, items), "5 items of modality image, .* at most 4")


@pytest.mark.parametrize(
    ("modality", "says"), [("video", "1 items of modality video, .* at most 0"), ("smell", "takes no 'smell'")]
)
def test_modalities(geometry: Geometry, render: Render, modality: str, says: str) -> None:
    """Those that the model or the server does not take."""
    refused(geometry, render((64, 64)).with_item(modality=modality), says, signed=True)


def test_an_item_larger_than_the_encoder_holds(geometry: Geometry) -> None:
    """It would wait for room that never comes."""
    item = Item("image", 0, "", 1, 2049, None, None, frozenset())
    refused(geometry, Rendered([1] + [5] * 2049, [item]), "image 0 takes 2049 embeddings, .* at most 2048")


def test_an_item_longer_than_a_step(geometry: Geometry, render: Render) -> None:
    """Where an item cannot be cut into chunks."""
    small = dataclasses.replace(geometry, max_item_tokens=5)
    refused(small, render((96, 64)), "6 tokens, and this server schedules at most 5")


PROMPTS: dict[str, tuple[Any, str]] = {
    "nothing": ([], "empty"),
    "as long as the context": ([1] * MAX_MODEL_LEN, "4096 tokens"),
    "beyond the vocabulary": ([1, 768], "token id 768 .* the last is 767"),
    "far beyond it": ([1, 2**70], "beyond the vocabulary"),
    "negative": ([-1], "token id -1"),
    "beyond it, as u32": (np.array([2**32 - 1], dtype=np.uint32), "token id 4294967295"),
}


@pytest.mark.parametrize("case", PROMPTS)
def test_prompts(geometry: Geometry, case: str) -> None:
    """Those that no model could be given."""
    tokens, says = PROMPTS[case]
    with pytest.raises(BadPayload, match=says):
        geometry.check(tokens, [], signed=True)


def test_a_model_of_which_nothing_is_known(geometry: Geometry, render: Render) -> None:
    """Served as it is with a signature; refused without, in words that say what to do."""
    unknown = dataclasses.replace(geometry, families={}, architecture="SomeNewModel")
    rendered = render((96, 64))
    assert unknown.check(rendered.token_ids, rendered.items, signed=True) == [rendered.items[0].fields]
    refused(unknown, rendered, "image 0: .* SomeNewModel, .*configure a payload signing key")
    refused(unknown, rendered.with_item(fields=MultiModalKwargsItem({})), "image 0 is empty", signed=True)
    refused(unknown, rendered.with_item(offset=10**6), "does not lie within", signed=True)


def test_random_lies(geometry: Geometry, render: Render) -> None:
    """Whatever is altered about an item, it is either refused or still what the processor would make."""
    rng = random.Random(4)
    rendered = render((96, 64))
    fields = rendered.items[0].fields
    assert fields is not None
    for _ in range(500):
        sides = [rng.choice([1, 2, 3, 4, 6, 8, 12, 24, -2, 2**33]) for _ in range(3)]
        rows = rng.choice([24, 24, 24, 23, 48, 0])
        changed = MultiModalKwargsItem(
            {
                PIXELS: MultiModalFieldElem(data=torch.zeros(rows, 1536, dtype=torch.uint8), field=FLAT),
                GRID: MultiModalFieldElem(data=torch.tensor(sides), field=MultiModalBatchedField()),
            }
        )
        sound = sides[0] == 1 and sides[1] * sides[2] == rows == 24 and min(sides[1:]) > 0 and not sides[1] % 2
        sound = sound and not sides[2] % 2
        try:
            geometry.check(rendered.token_ids, rendered.with_item(fields=changed).items, signed=False)
        except BadPayload:
            assert not sound, sides
        else:
            assert sound, (sides, rows)
