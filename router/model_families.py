"""Models whose media vLLM's JSON payload serves wrongly, recognised by their names.

In some models a medium's place in the prompt holds tokens that get no embedding: row breaks, tile and frame marks. vLLM
keeps which do in a mask (``is_embed``), which its JSON drops; the engine then fills the wrong places, or dies. The
plugin's frames carry it. The families are those whose prompt updates in vLLM 0.32 have such a mask
(``PromptUpdateDetails.select_token_id(s)``, ``is_embed``); ``tests/router/test_model_families.py`` compares them with
its source. What vLLM serves by transformers' own classes has one too, and is not known by a name: hence the setting.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache

from rendergen.service.errors import BadRequest
from rendergen.service.served_models import Models, ServedModel

# Patterns are for names in lower case, with one dash for each run of other signs, and at both ends.
UNSAFE = {
    "Audio Flamingo": "-(audio|music)-flamingo-",
    "Aya Vision": "-aya-vision-",
    "Command A Vision": "-command-a-vision-",
    "DeepSeek-V4": "-deepseek-v4-",
    "dots3-note": "-dots-?3-note-",
    "Eagle 2.5": "-eagle-?2-5-",
    "Emu3": "-emu-?3-",
    "FireRedASR2": "-firered-?asr-?2",
    "Fun-Audio-Chat": "-fun-?audio-?chat-",
    "Gemma 3": "-gemma-?3-|-medgemma-|-translategemma-",
    "Gemma 3n": "-gemma-?3n-",
    "Gemma 4": "-gemma-?4-|-diffusion-?gemma-",
    "GLM-ASR": "-glm-asr-",
    "GLM-V": r"-glm-\d-\dv-|-glm-5v-|-glm-?5-?next-|-glm-ocr-",  # its videos; its images alone would be right
    "H2OVL": "-h2ovl-",
    "HunYuan-VL": "-hunyuan-?(vl|ocr)-",
    "Idefics3": "-idefics-?3-|-(smol|granite-?)docling-",
    "Inkling": "-inkling-",
    "Intern-S1": "-intern-?s1-(?!pro-)",
    "InternVL": "-internvl",
    "Isaac": r"-isaac-\d",
    "Keye-VL 1.5": "-keye-vl-1-5-",  # as GLM-V
    "Kimi K3": "-kimi-k3-",
    "LFM2-VL": "-lfm2(-5)?-vl-",
    "LightOnOCR": "-lighton-?ocr-",
    "Llama 4": "-llama-?4-|-llama-guard-4-",
    "LLaVA-OneVision-2": "-llava-onevision-?2-",
    "MiDashengLM": "-midashenglm-",
    "MiMo-V2-Omni": r"-mimo-v2(-\d+)?-omni-",
    "MiniCPM-V and -o": r"-minicpm-?(llama3-)?[vo](-|\d)",
    "MiniMax-M3": "-minimax-?m3-",
    "Mistral 3": "-mistral-(small|medium|large)-|-ministral-|-magistral-|-devstral-",
    "Molmo": "-molmo",
    "MOSS-Audio": "-moss-(audio|transcribe)-",
    "Muse Glimmer": "-muse-glimmer-",
    "Nemotron VL": "-nemotron-([a-z0-9]+-)*(vl|omni)-",
    "NVLM-D": "-nvlm-",
    "openPangu-VL": "-openpangu-vl-",  # as GLM-V
    "OpenVLA": "-openvla-",
    "PaliGemma": "-paligemma",
    "Pixtral": "-pixtral-",
    "Qianfan-VL": "-qianfan-(ocr|vl)-",
    "Qwen-Omni": r"-qwen-?\d(-\d)?-omni-",
    "Skywork-R1V": "-skywork-r1v",
    "SmolVLM": "-smolvlm",
    "Step3": "-step3-|-step-?3-(vl|7)-",
    "VibeVoice-ASR": "-vibevoice-asr-",
}

# Known to be right over JSON: what else such a name says (of a teacher, a data set) does not count.
SAFE = re.compile(r"-qwen-?\d(-\d)?-?vl-|-llava-(v-?)?1-[56]-")

_UNSAFE = re.compile("|".join(f"(?P<f{number}>{pattern})" for number, pattern in enumerate(UNSAFE.values())))
_FAMILIES = {f"f{number}": family for number, family in enumerate(UNSAFE)}
_LONGEST_NAME = 1024
_MOST_PARENTS = 4


def family_unsafe_over_json(model: ServedModel) -> str | None:
    """The name of the family, among :data:`UNSAFE`, that ``model`` is of; None if its names tell of none.

    Where it was loaded from says more than what it is served as, and that more than what it is an adapter of.
    """
    for name in (model.root, model.id, model.parent):
        if name and (found := _family_named(name[-_LONGEST_NAME:])) is not None:
            return found or None
    return None


def refuse_media_over_json(name: str | None, known: Sequence[Models], more: Collection[str] = ()) -> None:
    """Make sure that a request with media for the model ``name`` may go as vLLM's JSON.

    Args:
        name: the served name; None or empty: the first of each pod's models, which is vLLM's default.
        known: what each pod serves.
        more: names of models that may not, beside those of the known families.

    Raises:
        BadRequest: it may not.
    """
    for model in _named(name, known):
        family = model.id if model.id in more or model.root in more else family_unsafe_over_json(model)
        if family is not None:
            raise BadRequest(
                f"Images, video and audio for {family[:_LONGEST_NAME]} models cannot be served here yet: vLLM's JSON "
                "between the pods loses which of their tokens are media. Load the rendergen plugin "
                "(VLLM_PLUGINS=rendergen) on both the render and the generate pods, or send text only."
            )


def _named(name: str | None, known: Sequence[Models]) -> Iterator[ServedModel]:
    """The models that ``name`` may mean, each followed by those that it is an adapter of."""
    if name and not any(name in models for models in known):
        yield ServedModel(name, None, None, b"")
    for models in known:
        model = models.get(name) if name else next(iter(models.values()), None)
        for _ in range(_MOST_PARENTS):
            if model is None:
                break
            yield model
            model = models.get(model.parent) if model.parent else None


@lru_cache(maxsize=256)
def _family_named(name: str) -> str | None:
    """The family that ``name`` tells of; empty for one that is known to be right; None if it tells of none."""
    plain = f"-{re.sub('[^a-z0-9]+', '-', name.lower())}-"
    if SAFE.search(plain):
        return ""
    found = _UNSAFE.search(plain)
    return _FAMILIES[str(found.lastgroup)] if found else None
