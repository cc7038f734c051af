"""Which family a model is of."""

from __future__ import annotations

from typing import Any

from rendergen.vllm_plugin.errors import BadPayload
from rendergen.vllm_plugin.items import Item
from rendergen.vllm_plugin.trust.examples import Example
from rendergen.vllm_plugin.trust.families.family import Family
from rendergen.vllm_plugin.trust.families.fixed_size import FixedSize
from rendergen.vllm_plugin.trust.families.qwen_vl import ARCHITECTURES, QwenVl


def image_family(architecture: str, hf_config: Any, examples: tuple[Example, ...]) -> Family | None:
    """The family of the model's images, or None where nothing can be proven of them.

    A family must prove what the processor itself makes, or it is not taken: a model may carry a known name and differ
    (a processor that prunes, say).

    Args:
        architecture: vLLM's name of the model class.
        hf_config: the model's configuration.
        examples: what its processor makes; empty if it takes no images.
    """
    if not examples:
        return None
    family: Family | None
    if architecture in ARCHITECTURES:
        try:
            family = QwenVl.of(hf_config, examples[0])
        except (AttributeError, KeyError):
            return None
    else:
        family = FixedSize.of(examples)
    return family if family is not None and all(_fits(family, example) for example in examples) else None


def _fits(family: Family, example: Example) -> bool:
    item = Item(
        modality="image",
        index=0,
        hint="",
        offset=0,
        length=len(example.tokens),
        is_embed=example.is_embed,
        fields=example.fields,
        metadata=frozenset(),
    )
    try:
        family.check_place(item, example.tokens)
        return family.proven(item).embeddings == example.embeddings()
    except BadPayload:
        return False
