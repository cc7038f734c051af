"""Models other than the tiny one, by vLLM's own processors of them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from vllm.multimodal import MULTIMODAL_REGISTRY
from vllm.multimodal.inputs import MultiModalFieldElem, MultiModalKwargsItem

from rendergen.vllm_plugin.errors import BadPayload
from rendergen.vllm_plugin.trust.families.fixed_size import FixedSize
from rendergen.vllm_plugin.trust.families.qwen_vl import QwenVl
from rendergen.vllm_plugin.trust.geometry import Geometry
from tests.rendergen.vllm_plugin.trust.conftest import Render, config_of, render_with
from tests.rendergen.vllm_plugin.trust.small_models import llava, qwen2_5_vl, qwen2_vl

Made = tuple[Geometry, Render]

MODELS: dict[str, tuple[Callable[[Path], Path], dict[str, Any], type]] = {
    "Qwen2-VL": (qwen2_vl, {}, QwenVl),
    "Qwen2.5-VL": (qwen2_5_vl, {}, QwenVl),
    "Qwen2.5-VL, normalised by its processor": (qwen2_5_vl, {"mm_device_do_normalize": False}, QwenVl),
    "LLaVA-1.5": (llava, {}, FixedSize),
}


def made(directory: Path, **arguments: Any) -> Made:
    """What the plugin would find out about a model, and a renderer of it."""
    config = config_of(directory, max_model_len=2048, limit_mm_per_prompt={"image": 3}, **arguments)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        processor = MULTIMODAL_REGISTRY.create_processor(config.model_config)
        return Geometry.of(config, processor.info.get_tokenizer()), render_with(processor)


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Each of them."""
    make, arguments, family = MODELS[request.param]
    geometry, render = made(make(tmp_path_factory.mktemp("model")), **arguments)
    assert isinstance(geometry.families["image"], family)
    return geometry, render


def test_what_they_make_is_served(model: Made) -> None:
    """Of any size."""
    geometry, render = model
    for sizes in (((64, 64),), ((500, 70), (70, 300)), ((333, 222), (56, 56), (100, 100))):
        rendered = render(*sizes)
        given = geometry.check(rendered.token_ids, rendered.items, signed=False)
        for fields, item in zip(given, rendered.items, strict=True):
            assert fields is not None
            assert item.fields is not None
            assert {name: elem.data.shape for name, elem in fields.items()} == {
                name: elem.data.shape for name, elem in item.fields.items()
            }


def test_what_does_not_fit_is_refused(model: Made) -> None:
    """Of pixels, one row or column less and another dtype; of the range, a token more or less."""
    geometry, render = model
    rendered = render((112, 112))
    [item] = rendered.items
    assert item.fields is not None
    pixels = item.fields["pixel_values"]
    for data in (pixels.data[:-1], pixels.data[..., :-1], pixels.data.to(torch.float16), pixels.data[None]):
        fields = MultiModalKwargsItem({**item.fields, "pixel_values": MultiModalFieldElem(data, pixels.field)})
        with pytest.raises(BadPayload, match="image 0"):
            geometry.check(rendered.token_ids, rendered.with_item(fields=fields).items, signed=True)
    for changes in ({"length": item.length - 1}, {"length": item.length + 1}, {"offset": item.offset + 1}):
        with pytest.raises(BadPayload, match="image 0"):
            geometry.check([*rendered.token_ids, 300], rendered.with_item(**changes).items, signed=True)


def test_floats_that_are_none(model: Made) -> None:
    """Where pixels are floats, each is looked at."""
    geometry, render = model
    rendered = render((112, 112))
    [item] = rendered.items
    assert item.fields is not None
    pixels = item.fields["pixel_values"]
    if not pixels.data.is_floating_point():
        return
    data = pixels.data.clone()
    data.view(-1)[-1] = float("nan")
    fields = MultiModalKwargsItem({**item.fields, "pixel_values": MultiModalFieldElem(data, pixels.field)})
    with pytest.raises(BadPayload, match="image 0: pixel_values holds values that are no finite numbers"):
        geometry.check(rendered.token_ids, rendered.with_item(fields=fields).items, signed=False)
