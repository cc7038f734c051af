import importlib.util
import re
from pathlib import Path

import pytest

from rendergen.service.errors import BadRequest
from rendergen.service.served_models import ServedModel
from router.model_families import UNSAFE, family_unsafe_over_json, refuse_media_over_json

# Names by which such models are published or commonly kept, by family: at least one for each.
NAMES = {
    "Audio Flamingo": ["nvidia/audio-flamingo-3-hf", "nvidia/music-flamingo-2601-hf"],
    "Aya Vision": ["CohereLabs/aya-vision-8b"],
    "Command A Vision": ["CohereLabs/command-a-vision-07-2025"],
    "DeepSeek-V4": ["deepseek-ai/DeepSeek-V4-Flash"],
    "dots3-note": ["rednote-hilab/dots.3-note", "dots3-note"],
    "Eagle 2.5": ["nvidia/Eagle2.5-8B"],
    "Emu3": ["BAAI/Emu3-Chat-hf"],
    "FireRedASR2": ["FireRedTeam/FireRedASR2-LLM"],
    "Fun-Audio-Chat": ["FunAudioLLM/Fun-Audio-Chat-8B"],
    "Gemma 3": ["google/gemma-3-4b-it", "/models/gemma3-27b", "google/medgemma-4b-it", "gemma_3_12b", "gemma-3"],
    "Gemma 3n": ["google/gemma-3n-E4B-it"],
    "Gemma 4": ["google/gemma-4-31B-it", "diffusion-gemma-4"],
    "GLM-ASR": ["zai-org/GLM-ASR-Nano-2512"],
    "GLM-V": [
        "zai-org/GLM-4.1V-9B-Thinking",
        "zai-org/GLM-4.5V",
        "zai-org/GLM-4.6V-Flash",
        "zai-org/GLM-OCR",
        "glm5-next",
    ],
    "H2OVL": ["h2oai/h2ovl-mississippi-800m"],
    "HunYuan-VL": ["tencent/HunyuanOCR", "tencent/Hunyuan-VL-4B"],
    "Idefics3": ["HuggingFaceM4/Idefics3-8B-Llama3", "ibm-granite/granite-docling-258M", "ds4sd/SmolDocling-256M"],
    "Inkling": ["inkling-1"],
    "Intern-S1": ["internlm/Intern-S1", "internlm/Intern-S1-mini", "internlm/Intern-S1-FP8"],
    "InternVL": ["OpenGVLab/InternVL3_5-8B", "OpenGVLab/InternVL2-1B", "OpenGVLab/Mini-InternVL-Chat-4B-V1-5"],
    "Isaac": ["PerceptronAI/Isaac-0.1"],
    "Keye-VL 1.5": ["Kwai-Keye/Keye-VL-1_5-8B"],
    "Kimi K3": ["moonshotai/Kimi-K3"],
    "LFM2-VL": ["LiquidAI/LFM2-VL-450M", "LiquidAI/LFM2.5-VL-1.6B"],
    "LightOnOCR": ["lightonai/LightOnOCR-1B-1025"],
    "Llama 4": ["meta-llama/Llama-4-Scout-17B-16E-Instruct", "meta-llama/Llama-Guard-4-12B"],
    "LLaVA-OneVision-2": ["lmms-lab/LLaVA-OneVision-2-8B"],
    "MiDashengLM": ["mispeech/midashenglm-7b"],
    "MiMo-V2-Omni": ["XiaomiMiMo/MiMo-V2-Omni"],
    "MiniCPM-V and -o": ["openbmb/MiniCPM-V-2_6", "openbmb/MiniCPM-o-2_6", "openbmb/MiniCPM-Llama3-V-2_5"],
    "MiniMax-M3": ["MiniMaxAI/MiniMax-M3"],
    "Mistral 3": [
        "mistralai/Mistral-Small-3.1-24B-Instruct-2503",
        "mistralai/Ministral-3-8B-Instruct-2512",
        "mistralai/Magistral-Small-2509",
        "mistralai/Mistral-Large-3-675B-Instruct-2512",
        "mistralai/Devstral-Small-2-24B-Instruct-2512",
    ],
    "Molmo": ["allenai/Molmo-7B-D-0924", "allenai/Molmo2-8B"],
    "MOSS-Audio": ["OpenMOSS-Team/MOSS-Audio-8B", "OpenMOSS-Team/MOSS-Transcribe-Diarize"],
    "Muse Glimmer": ["muse-glimmer"],
    "Nemotron VL": [
        "nvidia/Llama-3.1-Nemotron-Nano-VL-8B-V1",
        "nvidia/NVIDIA-Nemotron-Nano-12B-v2-VL-BF16",
        "nvidia/Nemotron-3-Nano-Omni-30B-A3B-Reasoning",
    ],
    "NVLM-D": ["nvidia/NVLM-D-72B"],
    "openPangu-VL": ["FreedomIntelligence/openPangu-VL-7B"],
    "OpenVLA": ["openvla/openvla-7b"],
    "PaliGemma": ["google/paligemma-3b-mix-224", "google/paligemma2-3b-ft-docci-448"],
    "Pixtral": ["mistralai/Pixtral-12B-2409", "mistral-community/pixtral-12b"],
    "Qianfan-VL": ["baidu/Qianfan-VL-8B", "baidu/Qianfan-OCR"],
    "Qwen-Omni": ["Qwen/Qwen2.5-Omni-7B", "Qwen/Qwen3-Omni-30B-A3B-Instruct"],
    "Skywork-R1V": ["Skywork/Skywork-R1V-38B", "Skywork/Skywork-R1V3-38B"],
    "SmolVLM": ["HuggingFaceTB/SmolVLM2-2.2B-Instruct", "HuggingFaceTB/SmolVLM-Instruct"],
    "Step3": ["stepfun-ai/step3", "stepfun-ai/Step3-VL-10B", "stepfun-ai/Step-3.7"],
    "VibeVoice-ASR": ["microsoft/VibeVoice-ASR"],
}

SAFE = [
    "Qwen/Qwen2-VL-7B-Instruct",
    "Qwen/Qwen2.5-VL-72B-Instruct-AWQ",
    "Qwen/Qwen3-VL-235B-A22B-Instruct",
    "Qwen/Qwen3.5-35B-A3B",
    "/models/qwen2_5_vl",
    "qwen25-vl",
    "/root/.cache/huggingface/hub/models--Qwen--Qwen3-VL-8B-Instruct/snapshots/0a1b2c",
    "someone/Qwen3-VL-8B-distilled-from-gemma-3-27b",
    "/checkpoints/step-3/qwen3-vl",
    "llava-hf/llava-1.5-7b-hf",
    "liuhaotian/llava-v1.5-13b",
    "llava-hf/llava-v1.6-mistral-7b-hf",
    "llava-hf/llava-onevision-qwen2-7b-ov-hf",
    "tiny-vlm",
    "/work/rendergen/tiny_model/weights",
    "internlm/Intern-S1-Pro",
    "microsoft/Phi-3.5-vision-instruct",
    "zai-org/glm-4v-9b",
    "moonshotai/Kimi-VL-A3B-Instruct",
    "gpt-4o",
    "default",
    "meta-llama/Llama-3.1-8B-Instruct",
    "/",
    "한국어",
]


def model(root: str | None, name: str = "served", parent: str | None = None) -> ServedModel:
    return ServedModel(name, root, parent, b"{}")


@pytest.mark.parametrize(("family", "name"), [(family, name) for family in NAMES for name in NAMES[family]])
def test_a_family_is_known_by_its_names(family: str, name: str) -> None:
    """As what it was loaded from, as what it is served as, in any case, and below a directory."""
    for told in (name, name.lower(), name.upper(), f"/srv/models/{name}/", f"models--{name.replace('/', '--')}"):
        assert family_unsafe_over_json(model(told)) == family
        assert family_unsafe_over_json(model("/model", told)) == family
        assert family_unsafe_over_json(model(None, told)) == family


def test_each_family_has_a_name_here() -> None:
    """A pattern that nothing is tried on may as well not be there."""
    assert NAMES.keys() == UNSAFE.keys()


@pytest.mark.parametrize("name", SAFE)
def test_no_false_alarm(name: str) -> None:
    """What JSON serves rightly is served, and so is what no name tells of."""
    assert family_unsafe_over_json(model(name)) is None
    assert family_unsafe_over_json(model(None, name)) is None


WHICH_NAME = {
    "served under another family's name": (model("Qwen/Qwen3-VL-8B-Instruct", "gemma-3-4b-it"), None),
    "served under a safe one's name": (model("google/gemma-3-4b-it", "qwen3-vl"), "Gemma 3"),
    "an adapter": (model("/loras/tone", "tone", "google/gemma-3-4b-it"), "Gemma 3"),
    "an adapter of a safe one": (model("/loras/tone", "tone", "Qwen/Qwen3-VL-8B-Instruct"), None),
}


@pytest.mark.parametrize(("served", "family"), WHICH_NAME.values(), ids=WHICH_NAME)
def test_where_it_was_loaded_from_says_most(served: ServedModel, family: str | None) -> None:
    """A served name is free; an adapter's own names tell little."""
    assert family_unsafe_over_json(served) == family


def served(*models: ServedModel) -> dict[str, ServedModel]:
    return {each.id: each for each in models}


GEMMA = model("google/gemma-3-4b-it", "mine")
QWEN = model("Qwen/Qwen3-VL-8B-Instruct", "mine")
TONE = model("/loras/tone", "tone", "mine")

REFUSED = {
    "by its root": ("mine", [served(GEMMA)]),
    "without a name": (None, [served(GEMMA, TONE)]),
    "with an empty one": ("", [served(GEMMA)]),
    "an adapter of one": ("tone", [served(GEMMA, TONE)]),
    "on one of the pods": ("mine", [served(QWEN), served(GEMMA)]),
    "by its name alone": ("google/gemma-3-4b-it", []),
    "by its name where pods serve others": ("google/gemma-3-4b-it", [served(QWEN)]),
    "by the setting": ("special", [served(model("/model", "special"))]),
    "by the setting, its root": ("mine", [served(model("special", "mine"))]),
    "by the setting, an adapter": ("tone", [served(model("special", "mine"), TONE)]),
}


@pytest.mark.parametrize(("name", "known"), REFUSED.values(), ids=REFUSED)
def test_media_are_refused(name: str | None, known: list[dict[str, ServedModel]]) -> None:
    """400 that names the family, and what to do."""
    with pytest.raises(BadRequest, match=r"(Gemma 3|special|mine) models .* plugin .* on both .* generate pods"):
        refuse_media_over_json(name, known, ("special",))


TAKEN = {
    "a safe one": ("mine", [served(QWEN)]),
    "an adapter of a safe one": ("tone", [served(QWEN, TONE)]),
    "without a name": (None, [served(QWEN, model("google/gemma-3-4b-it", "other"))]),
    "nothing is known": (None, []),
    "a safe one under another's name": ("gemma-3", [served(model("Qwen/Qwen3-VL-8B-Instruct", "gemma-3"))]),
    "its own parent": ("tone", [served(model("/loras/tone", "tone", "tone"))]),
}


@pytest.mark.parametrize(("name", "known"), TAKEN.values(), ids=TAKEN)
def test_media_are_taken(name: str | None, known: list[dict[str, ServedModel]]) -> None:
    """Wherever nothing tells of a family that is not."""
    refuse_media_over_json(name, known, ("special",))


def test_a_name_may_be_long() -> None:
    """It is looked at up to a length, and told up to one."""
    assert family_unsafe_over_json(model("-nemotron-" * 1_000_000)) is None
    with pytest.raises(BadRequest) as error:
        refuse_media_over_json("x" * 100_000, [], ("x" * 100_000,))
    assert len(error.value.message) < 2_000


# vLLM's modules that have the mask, or whose processor is one that has it, by what stands for them above.
MODULES = {
    "audioflamingo3": "Audio Flamingo",
    "cohere2_vision": "Command A Vision",
    "deepseek_v4": "DeepSeek-V4",
    "deepseek_v41": "DeepSeek-V4",
    "dots3_note": "dots3-note",
    "eagle2_5_vl": "Eagle 2.5",
    "fireredasr2": "FireRedASR2",
    "funaudiochat": "Fun-Audio-Chat",
    "gemma3_mm": "Gemma 3",
    "gemma3n_mm": "Gemma 3n",
    "diffusion_gemma": "Gemma 4",
    "gemma4_mm": "Gemma 4",
    "gemma4_unified": "Gemma 4",
    "glm4_1v": "GLM-V",
    "glm5next": "GLM-V",
    "glm_ocr": "GLM-V",
    "glmasr": "GLM-ASR",
    "h2ovl": "H2OVL",
    "idefics3": "Idefics3",
    "inkling": "Inkling",
    "interns1": "Intern-S1",
    "internvl": "InternVL",
    "isaac": "Isaac",
    "keye_vl1_5": "Keye-VL 1.5",
    "kimi_k3": "Kimi K3",
    "lfm2_vl": "LFM2-VL",
    "lightonocr": "LightOnOCR",
    "llava": "Pixtral",  # transformers' form of it
    "llava_onevision2": "LLaVA-OneVision-2",
    "midashenglm": "MiDashengLM",
    "mimo_v2_omni": "MiMo-V2-Omni",
    "minicpmo": "MiniCPM-V and -o",
    "minicpmv": "MiniCPM-V and -o",
    "minicpmv4_6": "MiniCPM-V and -o",
    "minicpmv4_7": "MiniCPM-V and -o",
    "minimax_m3": "MiniMax-M3",
    "mistral3": "Mistral 3",
    "mllama4": "Llama 4",
    "molmo": "Molmo",
    "molmo2": "Molmo",
    "moss_audio": "MOSS-Audio",
    "moss_transcribe_diarize": "MOSS-Audio",
    "muse_glimmer": "Muse Glimmer",
    "nano_nemotron_vl": "Nemotron VL",
    "nemotron_vl": "Nemotron VL",
    "nvlm_d": "NVLM-D",
    "openpangu_vl": "openPangu-VL",
    "openvla": "OpenVLA",
    "paligemma": "PaliGemma",
    "pixtral": "Pixtral",
    "qianfan_ocr": "Qianfan-VL",
    "qwen2_5_omni_thinker": "Qwen-Omni",
    "qwen3_omni_moe_thinker": "Qwen-Omni",
    "skyworkr1v": "Skywork-R1V",
    "smolvlm": "SmolVLM",
    "step3_vl": "Step3",
}
# Those that need no name here: they only embed or classify; pass on a mask that is none; or set one only with a flag of
# the engine's that prunes videos.
NEEDLESS = {"clef_omni", "colpali", "embedding_gemma2", "phi3v", "qwen3_vl", "transformers"}
# Served by transformers' own classes, which set the mask for all models: in the table as far as vLLM names them.
TRANSFORMERS = {"Aya Vision", "Emu3", "HunYuan-VL", "VibeVoice-ASR"}

_MASKS = re.compile(r"select_token_ids?\(|is_embed=(?!None)")


def test_the_table_is_that_of_vllm() -> None:
    """Every model of this version whose prompts have a mask has a family above, found in vLLM's source."""
    spec = importlib.util.find_spec("vllm")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("vLLM is not installed")
    root = Path(spec.submodule_search_locations[0])
    texts: dict[str, str] = {}
    for directory in ("model_executor/models", "models", "transformers_utils/processors"):
        for path in sorted((root / directory).rglob("*.py")):
            name = path.relative_to(root / directory).parts[0].removesuffix(".py")
            texts[name] = texts.get(name, "") + path.read_text(encoding="utf-8")
    masked = {name for name, text in texts.items() if _MASKS.search(text)}
    while True:
        inherits = {
            name
            for name, text in texts.items()
            if "register_processor(" in text and any(found in masked - NEEDLESS - {"llava"} for found in based_on(text))
        }
        if inherits <= masked:
            break
        masked |= inherits
    assert masked - NEEDLESS == MODULES.keys()
    assert set(MODULES.values()) | TRANSFORMERS == UNSAFE.keys()


def based_on(text: str) -> list[str]:
    """The modules whose multimodal processor is used in a module's source."""
    statements = re.findall(r"^from [\w.]*?(\w+) import (\([^)]*\)|.*)$", text, re.MULTILINE)
    return [module for module, names in statements if re.search(r"MultiModalProcessor\b", names)]
