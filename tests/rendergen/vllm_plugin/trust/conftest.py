"""The tiny model's own processor, in this process: what render pods make, without a server."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.multimodal import MULTIMODAL_REGISTRY
from vllm.multimodal.processing import TimingContext
from vllm.multimodal.processing.inputs import ProcessorInputs

from rendergen.launcher.torch_companions import environment_for
from rendergen.tiny_model import TINY_MODEL_PATH
from rendergen.vllm_plugin.items import Item
from rendergen.vllm_plugin.trust.geometry import Geometry

MAX_MODEL_LEN = 4096
TORCH_COMPANIONS = ("torchvision", "torchaudio", "torchcodec")


@dataclasses.dataclass(frozen=True, slots=True)
class Rendered:
    """A prompt of the tiny model's, with its items, as render makes them."""

    token_ids: list[int]
    items: list[Item]

    def with_item(self, index: int = 0, **changes: Any) -> Rendered:
        """The same with an item changed."""
        items = list(self.items)
        items[index] = dataclasses.replace(items[index], **changes)
        return Rendered(self.token_ids, items)


Render = Callable[..., Rendered]


def config_of(model: Path, **arguments: Any) -> Any:
    """A model's configuration, as vLLM makes it of its arguments."""
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore")
        # vLLM looks at a model's class in a process of its own, which needs the fix that this one has. Only here: the
        # launcher, for the processes that it starts, finds out by itself.
        for name, value in environment_for(TORCH_COMPANIONS).items():
            patch.setenv(name, value)
        return AsyncEngineArgs(
            model=str(model), dtype="bfloat16", enforce_eager=True, **arguments
        ).create_engine_config()


@pytest.fixture(scope="session")
def vllm_config() -> Any:
    """The tiny model's configuration, as the launcher starts vLLM with it."""
    return config_of(TINY_MODEL_PATH, max_model_len=MAX_MODEL_LEN, limit_mm_per_prompt={"image": 4, "video": 0})


@pytest.fixture(scope="session")
def processor(vllm_config: Any) -> Any:
    """vLLM's multimodal processor of the tiny model."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return MULTIMODAL_REGISTRY.create_processor(vllm_config.model_config)


@pytest.fixture(scope="session")
def geometry(vllm_config: Any, processor: Any) -> Geometry:
    """Of the tiny model."""
    return Geometry.of(vllm_config, processor.info.get_tokenizer())


@pytest.fixture(scope="session")
def render(processor: Any) -> Render:
    """Makes prompts of the tiny model."""
    return render_with(processor)


def render_with(processor: Any) -> Render:
    """Makes a prompt of pictures of the given sizes, or of given PIL images, with some text around them."""

    def rendered(*pictures: tuple[int, int] | Image.Image) -> Rendered:
        images = [each if isinstance(each, Image.Image) else Image.new("RGB", each, (200, 30, 60)) for each in pictures]
        text = "What is " + processor.dummy_inputs.get_dummy_text({"image": len(images)}) + "?"
        made = processor.apply(
            ProcessorInputs(
                prompt=processor.info.get_tokenizer().encode(text, add_special_tokens=False),
                mm_data_items=processor.info.parse_mm_data({"image": images}),
            ),
            TimingContext(enabled=False),
        )
        items = [
            Item("image", index, f"hash {index}", place.offset, place.length, place.is_embed, fields, frozenset())
            for index, (place, fields) in enumerate(
                zip(made["mm_placeholders"]["image"], made["mm_kwargs"]["image"], strict=True)
            )
        ]
        return Rendered(made["prompt_token_ids"], items)

    return rendered
