"""That an item's features fit the model and the prompt, proven before the engine sees any of it.

The engine believes what it is told: rows, grids and ranges that do not agree end its process, and every request in it.
Here the prompt is checked, each item's range in it, and its tensors against what the model's own processor makes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from vllm.multimodal import MULTIMODAL_REGISTRY
from vllm.multimodal.encoder_budget import MultiModalBudget
from vllm.multimodal.inputs import MultiModalKwargsItem

from rendergen.vllm_plugin.errors import BadPayload
from rendergen.vllm_plugin.items import Item
from rendergen.vllm_plugin.trust.examples import image_examples
from rendergen.vllm_plugin.trust.families import Family, image_family
from rendergen.vllm_plugin.trust.placeholders import check_ranges, embeddings_taken


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """What this server's model can take.

    Attributes:
        architecture: vLLM's name of the model class.
        max_model_len: tokens of context; a prompt must leave room for one more.
        last_token: the highest token id there is.
        limits: how many items of each modality a prompt may have.
        max_item_tokens: the longest placeholder that can be scheduled, in tokens.
        max_item_embeddings: embeddings of the largest item that the vision encoder's budget and cache hold.
        families: what is known of each modality's items; a modality that is missing cannot be proven.
    """

    architecture: str
    max_model_len: int
    last_token: int
    limits: Mapping[str, int]
    max_item_tokens: int
    max_item_embeddings: int
    families: Mapping[str, Family]

    @classmethod
    def of(cls, vllm_config: Any, tokenizer: Any) -> Geometry:
        """Find out about the model.

        Takes some tenths of a second, for it lets the model's processor make something of a few pictures: call it at
        start-up, where nothing else uses that processor (on the renderer's own multimodal executor, say).

        Args:
            vllm_config: vLLM's `VllmConfig`.
            tokenizer: vLLM's tokenizer, or None if it was started without one.
        """
        model = vllm_config.model_config
        scheduler = vllm_config.scheduler_config
        last_token = max(model.get_vocab_size() - 1, -1 if tokenizer is None else tokenizer.max_token_id)
        limits: Mapping[str, int] = {}
        families: dict[str, Family] = {}
        budget = 0
        if model.is_multimodal_model:
            processor = MULTIMODAL_REGISTRY.create_processor(model)
            limits = dict(processor.info.allowed_mm_limits)
            family = image_family(model.architecture, model.hf_config, image_examples(processor))
            if family is not None:
                families["image"] = family
            budget = MultiModalBudget(vllm_config, MULTIMODAL_REGISTRY, enable_cache=False).get_encoder_budget()
        return cls(
            architecture=model.architecture,
            max_model_len=model.max_model_len,
            last_token=last_token,
            limits=limits,
            # Without chunks an item is scheduled whole or, if it is longer than a step, never: the request would hang.
            max_item_tokens=scheduler.max_num_batched_tokens
            if scheduler.disable_chunked_mm_input
            else model.max_model_len,
            max_item_embeddings=budget,
            families=families,
        )

    def check(
        self, token_ids: Sequence[int] | NDArray[np.integer[Any]], items: Sequence[Item], *, signed: bool
    ) -> list[MultiModalKwargsItem | None]:
        """Prove that the prompt and its items can be served.

        It looks at every float of an item's pixels: not for the event loop.

        Args:
            token_ids: the whole prompt.
            items: its items, as merged.
            signed: whether the payload's signature holds. Then items of which nothing can be proven are taken as they
                are; what can be proven must hold all the same.

        Returns:
            For each item the tensors to give to the engine: the payload's data, with fields (how they are batched) from
            the model's own processor. None for an item that came as a hash alone. Of such a one only the range could be
            checked: it may be served only to someone who knows that what the engine holds fills `item.length`.

        Raises BadPayload, naming the item and the two numbers that do not agree.
        """
        tokens = self._prompt(token_ids)
        self.check_limits(items)
        check_ranges(items, len(tokens))
        return [self._checked(item, tokens[item.offset : item.offset + item.length], signed) for item in items]

    def _prompt(self, token_ids: Sequence[int] | NDArray[np.integer[Any]]) -> NDArray[np.int64]:
        """The prompt as int64."""
        if not len(token_ids):
            raise BadPayload("the prompt (token_ids) is empty", param="token_ids")
        if len(token_ids) >= self.max_model_len:
            raise BadPayload(
                f"the prompt has {len(token_ids)} tokens, which leaves no room for an answer in this model's context "
                f"of {self.max_model_len}",
                param="token_ids",
            )
        try:
            tokens = np.asarray(token_ids, dtype=np.int64)
        except OverflowError:
            raise BadPayload(f"a token id is beyond the vocabulary: the last is {self.last_token}") from None
        for token in (int(tokens.min()), int(tokens.max())):
            if not 0 <= token <= self.last_token:
                raise BadPayload(
                    f"token id {token} is beyond the vocabulary: the last is {self.last_token}", param="token_ids"
                )
        return tokens

    def check_limits(self, items: Sequence[Item]) -> None:
        """That there are no more items than a prompt may have. Quick, whatever is in them. Raises BadPayload."""
        for modality, count in Counter(item.modality for item in items).items():
            if modality not in self.limits:
                raise BadPayload(f"this model takes no {_shown(modality)}")
            if count > self.limits[modality]:
                raise BadPayload(
                    f"{count} items of modality {modality}, and this server takes at most {self.limits[modality]} "
                    "in one prompt"
                )

    def _checked(self, item: Item, tokens: NDArray[np.int64], signed: bool) -> MultiModalKwargsItem | None:
        taken = embeddings_taken(item)
        if taken > self.max_item_embeddings:
            raise BadPayload(
                f"{item} takes {taken} embeddings, and this server's encoder holds at most {self.max_item_embeddings}"
            )
        if item.length > self.max_item_tokens:
            raise BadPayload(
                f"{item}: its placeholder has {item.length} tokens, and this server schedules at most "
                f"{self.max_item_tokens} at once"
            )
        family = self.families.get(item.modality)
        if family is None:
            if not signed:
                raise BadPayload(
                    f"{item}: whether its features fit its placeholder cannot be proven for {self.architecture}, "
                    "so only signed payloads are served: configure a payload signing key on the render and the "
                    "generate pods"
                )
            if taken == 0 or (item.fields is not None and not item.fields):
                raise BadPayload(f"{item} is empty: {taken} embeddings, {len(item.fields or ())} fields")
            return item.fields
        family.check_place(item, tokens)
        if item.fields is None:
            return None
        proven = family.proven(item)
        if proven.embeddings != taken:
            raise BadPayload(
                f"{item}: its features give {proven.embeddings} embeddings, and its placeholder takes {taken}"
            )
        return proven.fields


def _shown(modality: str) -> str:
    return repr(modality) if len(modality) <= 40 else f"{modality[:36]!r}…"
