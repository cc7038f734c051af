"""Which models are understood, and what is proven of those that make all pictures alike."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from vllm.multimodal.inputs import (
    MultiModalBatchedField,
    MultiModalFieldElem,
    MultiModalFlatField,
    MultiModalKwargsItem,
)

from rendergen.vllm_plugin.errors import BadPayload
from rendergen.vllm_plugin.items import Item
from rendergen.vllm_plugin.trust.examples import SIZES, Example, image_examples
from rendergen.vllm_plugin.trust.families import Family, image_family
from rendergen.vllm_plugin.trust.families.fixed_size import FixedSize
from rendergen.vllm_plugin.trust.families.qwen_vl import QwenVl

QWEN3 = "Qwen3VLForConditionalGeneration"
LLAVA = "LlavaForConditionalGeneration"


def elem(data: Any, field: Any = None) -> MultiModalFieldElem:
    """A field that is batched, as LLaVA's are."""
    return MultiModalFieldElem(data=data, field=field or MultiModalBatchedField())


def llava(side: int = 8, tokens: int = 4, **fields: MultiModalFieldElem) -> Example:
    """What a small LLaVA-1.5's processor makes."""
    pixels = torch.zeros(3, side, side, dtype=torch.bfloat16)
    return Example(MultiModalKwargsItem({"pixel_values": elem(pixels), **fields}), np.full(tokens, 99), None)


def family(*examples: Example, architecture: str = LLAVA) -> Family | None:
    """The family of a model whose processor makes these."""
    return image_family(architecture, SimpleNamespace(), examples)


def item(example: Example, **fields: MultiModalFieldElem) -> Item:
    """An item like the example, with fields changed."""
    changed = MultiModalKwargsItem({**example.fields, **fields})
    return Item("image", 1, "", 7, len(example.tokens), example.is_embed, changed, frozenset())


def test_examples_are_what_the_processor_makes(processor: Any) -> None:
    """One for each size, with the placeholder's tokens alone."""
    examples = image_examples(processor)
    assert len(examples) == len(SIZES)
    for example in examples:
        assert set(example.tokens.tolist()) == {5}
        assert example.embeddings() == len(example.tokens) == example.fields["image_grid_thw"].data.prod() // 4


@pytest.mark.parametrize(("limits", "said"), [({"image": 4}, "nothing is known"), ({"image": 0}, ""), ({}, "")])
def test_a_processor_that_makes_nothing(limits: dict[str, int], said: str, caplog: pytest.LogCaptureFixture) -> None:
    """One that fails on a picture, or takes none: the server starts all the same."""
    info = SimpleNamespace(allowed_mm_limits=limits)
    assert image_examples(SimpleNamespace(info=info)) == ()
    assert said in caplog.text
    assert bool(said) == bool(caplog.text)


def test_qwen_is_known_by_name_and_deed(vllm_config: Any, processor: Any) -> None:
    """A model of that name whose processor does otherwise is not taken for one."""
    config, examples = vllm_config.model_config.hf_config, image_examples(processor)
    assert isinstance(image_family(QWEN3, config, examples), QwenVl)
    pruned = [dataclasses.replace(each, tokens=each.tokens[:-1]) for each in examples]
    assert image_family(QWEN3, config, tuple(pruned)) is None
    assert image_family(QWEN3, config, ()) is None
    assert image_family(QWEN3, SimpleNamespace(), examples) is None
    bare = [dataclasses.replace(each, fields=MultiModalKwargsItem({})) for each in examples]
    assert image_family(QWEN3, config, tuple(bare)) is None


def test_other_models_that_vary_are_not_known(processor: Any) -> None:
    """Their processor makes something else of each size, and by what rule is not known."""
    assert image_family("SomeNewModel", SimpleNamespace(), image_examples(processor)) is None


VARYING: dict[str, tuple[Example, Example]] = {
    "shapes": (llava(8), llava(9)),
    "placeholders": (llava(tokens=4), llava(tokens=5)),
    "fields": (llava(), llava(more=elem(torch.zeros(1)))),
    "counts": (llava(n=elem(torch.tensor(1))), llava(n=elem(torch.tensor(2)))),
    "masks": (llava(), dataclasses.replace(llava(), is_embed=torch.ones(4, dtype=torch.bool))),
    "other masks": (
        dataclasses.replace(llava(), is_embed=torch.tensor([True, False, True, True])),
        dataclasses.replace(llava(), is_embed=torch.tensor([True, True, False, True])),
    ),
    "batching": (
        llava(),
        llava(pixel_values=elem(torch.zeros(3, 8, 8, dtype=torch.bfloat16), MultiModalBatchedField(keep_on_cpu=True))),
    ),
    "lists": (llava(n=elem([torch.tensor(1)])), llava(n=elem([torch.tensor(1)]))),
    "flat fields": (
        llava(n=elem(torch.tensor([1]), MultiModalFlatField(slices=[[slice(0, 1)]], dim=0))),
        llava(n=elem(torch.tensor([1]), MultiModalFlatField(slices=[[slice(0, 1)]], dim=0))),
    ),
}


@pytest.mark.parametrize("case", VARYING)
def test_models_that_vary(case: str) -> None:
    """In whatever it is that two pictures differ."""
    assert family(*VARYING[case]) is None


def test_a_model_of_one_size() -> None:
    """LLaVA-1.5 and its like: the family proves what the processor makes, and gives the processor's own fields."""
    example = llava(n=elem(torch.tensor([2, 3])))
    known = family(example, llava(n=elem(torch.tensor([2, 3]))))
    assert isinstance(known, FixedSize)
    given = item(example, pixel_values=elem(torch.ones(3, 8, 8, dtype=torch.bfloat16), MultiModalFlatField(slices=[])))
    known.check_place(given, example.tokens)
    proven = known.proven(given)
    assert proven.embeddings == 4
    assert proven.fields["pixel_values"].data is given.fields["pixel_values"].data  # type: ignore[index]
    assert proven.fields["pixel_values"].field == MultiModalBatchedField()


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "another size": ({"pixel_values": torch.zeros(3, 8, 9, dtype=torch.bfloat16)}, r"\[3, 8, 9\], .* \[3, 8, 8\]"),
    "another dtype": ({"pixel_values": torch.zeros(3, 8, 8)}, "float32, and this model's processor makes bfloat16"),
    "NaN": ({"pixel_values": torch.full((3, 8, 8), float("nan"), dtype=torch.bfloat16)}, "no finite numbers"),
    "infinity": ({"pixel_values": torch.full((3, 8, 8), -float("inf"), dtype=torch.bfloat16)}, "no finite numbers"),
    "another count": ({"n": torch.tensor([2, 4])}, "n is not what this model's processor puts there"),
    "a list": ({"pixel_values": [torch.zeros(8, 8)] * 3}, "a list"),
    "one more": ({"image_embeds": torch.zeros(4, 8)}, "image_embeds"),
}


@pytest.mark.parametrize("case", BAD)
def test_items_unlike_the_one_size(case: str) -> None:
    """Each named, with both values."""
    example = llava(n=elem(torch.tensor([2, 3])))
    known = family(example, example)
    assert known is not None
    fields, says = BAD[case]
    with pytest.raises(BadPayload, match=f"^image 1.*{says}"):
        known.proven(item(example, **{name: elem(data) for name, data in fields.items()}))


def test_placeholders_of_the_one_size() -> None:
    """Token for token, and the mask with them: over JSON it is not there, and without it the counts do not agree."""
    mask = torch.tensor([False, True, True, False])
    example = Example(llava().fields, np.array([7, 99, 99, 8]), mask)
    known = family(example, example)
    assert known is not None
    good = item(example)
    known.check_place(good, example.tokens)
    assert known.proven(good).embeddings == 2
    with pytest.raises(BadPayload, match=r"image 1: token 7 of the prompt is 99, where .* has 7"):
        known.check_place(good, np.array([99, 99, 99, 8]))
    with pytest.raises(BadPayload, match="has 3 tokens, and this model's images have 4"):
        known.check_place(good, example.tokens[1:])
    with pytest.raises(BadPayload, match=r"without an is_embed mask, so 4 embeddings .* there are 2: .* frames"):
        known.check_place(dataclasses.replace(good, is_embed=None), example.tokens)
    with pytest.raises(BadPayload, match=r"gives token 7 of the prompt an embedding"):
        known.check_place(dataclasses.replace(good, is_embed=~mask), example.tokens)
