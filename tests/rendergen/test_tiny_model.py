"""The tiny model's files, and the examples that it is trained and measured with."""

import base64
import io
import json
import random
from collections.abc import Callable

import pytest
from PIL import Image
from transformers import PreTrainedTokenizerFast

from rendergen.tiny_model import TINY_MODEL_NAME, TINY_MODEL_PATH
from rendergen.tiny_model.abilities import (
    ABILITIES,
    KOREAN_ANSWERS,
    MAX_COUNT,
    REPORT_COLOR_TOOL,
    VARIATIONS,
    Ability,
    Draw,
    one_word,
    tool_result,
    two_images,
    with_system_message,
    with_text_first,
)
from rendergen.tiny_model.chat import Answer, Example
from rendergen.tiny_model.pictures import (
    COLORS,
    HELD_OUT_SIDES,
    MAX_SIDE,
    MIN_SIDE,
    Split,
    pure_picture,
    random_picture,
    split_of_shade,
    split_of_side,
)

MEGABYTE = 1_000_000
EVERY_ABILITY = [pytest.param(ability, id=ability.name) for ability in (*ABILITIES, *VARIATIONS)]


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast.from_pretrained(TINY_MODEL_PATH)


def rendered(tokenizer: PreTrainedTokenizerFast, example: Example) -> str:
    """The prompt's text, made as vLLM makes it: call arguments decoded, images as their placeholders."""
    messages = [turn.message(lambda _: {"type": "image"}) for turn in example.turns]
    for message in messages:
        for call in message.get("tool_calls", ()):
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    text = tokenizer.apply_chat_template(
        messages,
        tools=[dict(tool) for tool in example.tools] or None,
        add_generation_prompt=True,
        tokenize=False,
        enable_thinking=example.thinking,
    )
    assert isinstance(text, str)
    return text


class TestFiles:
    def test_all_that_vllm_loads_is_there(self) -> None:
        assert {file.name for file in TINY_MODEL_PATH.iterdir()} == {
            "chat_template.jinja",
            "config.json",
            "generation_config.json",
            "model.safetensors",
            "preprocessor_config.json",
            "tokenizer.json",
            "tokenizer_config.json",
            "video_preprocessor_config.json",
        }

    def test_they_are_at_most_12_megabytes(self) -> None:
        assert sum(file.stat().st_size for file in TINY_MODEL_PATH.iterdir()) <= 12 * MEGABYTE

    def test_the_architecture_is_qwen3_vl(self) -> None:
        config = json.loads((TINY_MODEL_PATH / "config.json").read_text())
        assert config["architectures"] == ["Qwen3VLForConditionalGeneration"]
        assert config["text_config"]["max_position_embeddings"] >= 8192

    def test_the_image_processor_takes_32_to_1024_pixels_a_side(self) -> None:
        config = json.loads((TINY_MODEL_PATH / "preprocessor_config.json").read_text())
        assert config["size"] == {"shortest_edge": MIN_SIDE**2, "longest_edge": MAX_SIDE**2}

    def test_the_name_is_the_one_requests_use(self) -> None:
        assert TINY_MODEL_NAME == "tiny-vlm"


class TestTokenizer:
    @pytest.mark.parametrize("answer", KOREAN_ANSWERS.values(), ids=KOREAN_ANSWERS.keys())
    def test_every_character_of_3_and_4_bytes_is_split_over_tokens(
        self, tokenizer: PreTrainedTokenizerFast, answer: str
    ) -> None:
        word, emoji = answer.split(" ")
        assert [len(character.encode()) for character in word] == [3] * len(word)
        assert len(emoji.encode()) == 4
        for character in word + emoji:
            assert len(tokenizer.encode(character, add_special_tokens=False)) == len(character.encode())

    def test_an_answer_comes_back_whole(self, tokenizer: PreTrainedTokenizerFast) -> None:
        for answer in KOREAN_ANSWERS.values():
            assert tokenizer.decode(tokenizer.encode(answer, add_special_tokens=False)) == answer

    def test_counting_makes_two_tokens_a_number(self, tokenizer: PreTrainedTokenizerFast) -> None:
        count = " ".join(str(i) for i in range(1, MAX_COUNT + 1))
        assert len(tokenizer.encode(count, add_special_tokens=False)) == 2 * MAX_COUNT - 1

    @pytest.mark.parametrize("markup", ["<think>", "</think>", "<tool_call>", "</tool_call>"])
    def test_what_parsers_look_for_is_one_token_and_stays_in_the_text(
        self, tokenizer: PreTrainedTokenizerFast, markup: str
    ) -> None:
        ids = tokenizer.encode(markup, add_special_tokens=False)
        assert len(ids) == 1
        assert tokenizer.decode(ids, skip_special_tokens=True) == markup


class TestChatTemplate:
    @pytest.mark.parametrize("ability", EVERY_ABILITY)
    def test_it_renders_every_ability(self, tokenizer: PreTrainedTokenizerFast, ability: Ability) -> None:
        example = ability.example(random.Random(0))
        text = rendered(tokenizer, example)
        assert text.count("<|image_pad|>") == len(example.pictures())
        assert text.endswith("<|im_start|>assistant\n<think>\n" if example.thinking else "<|im_start|>assistant\n")

    def test_parts_keep_their_order(self, tokenizer: PreTrainedTokenizerFast) -> None:
        example = one_word(random.Random(0), Draw())
        image, question = "<|vision_start|><|image_pad|><|vision_end|>", "What color is this image? Answer in one word."
        assert image + question in rendered(tokenizer, example)
        assert question + image in rendered(tokenizer, with_text_first(example))

    def test_a_system_message_comes_first(self, tokenizer: PreTrainedTokenizerFast) -> None:
        example = with_system_message(one_word(random.Random(0), Draw()), "Be brief.")
        assert rendered(tokenizer, example).startswith("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n")

    def test_a_tool_its_call_and_its_result(self, tokenizer: PreTrainedTokenizerFast) -> None:
        example = tool_result(random.Random(0), Draw())
        call = Answer(reported_color=example.pictures()[0].color).completion()
        text = rendered(tokenizer, example)
        assert json.dumps(REPORT_COLOR_TOOL) in text
        assert f"<|im_start|>assistant\n{call}<|im_end|>\n" in text
        assert "<tool_response>\n" in text

    def test_text_of_any_script_passes_unchanged(self, tokenizer: PreTrainedTokenizerFast) -> None:
        question = "Wie heißt diese Farbe? 색은? 🎨 {{ 1 }} \\n"
        messages = [{"role": "user", "content": question}]
        text = tokenizer.apply_chat_template(messages, tokenize=False)
        assert text == f"<|im_start|>user\n{question}<|im_end|>\n"


class TestPictures:
    @pytest.mark.parametrize("color", COLORS)
    @pytest.mark.parametrize("split", Split, ids=lambda split: split.value)
    def test_a_picture_is_of_its_split(self, color: str, split: Split) -> None:
        rng = random.Random(0)
        for _ in range(20):
            picture = random_picture(rng, split, color=color)
            assert split_of_shade(picture.rgb) is split
            assert split_of_side(picture.width) is split_of_side(picture.height) is split

    def test_measured_sides_reach_from_the_smallest_to_the_largest(self) -> None:
        assert (min(HELD_OUT_SIDES), max(HELD_OUT_SIDES)) == (MIN_SIDE, MAX_SIDE) == (32, 1024)

    def test_no_shade_has_two_colors(self) -> None:
        """Shades of different colours differ by more than their jitter and JPEG's error together."""
        rng = random.Random(0)
        shades = [(c, random_picture(rng, split, color=c).rgb) for c in COLORS for split in Split for _ in range(30)]
        for color, shade in shades:
            for other_color, other in shades:
                if color != other_color:
                    assert max(abs(a - b) for a, b in zip(shade, other, strict=True)) > 20

    @pytest.mark.parametrize("image_format", ["png", "jpeg"])
    def test_it_encodes_to_its_color_and_size(self, image_format: str) -> None:
        rng = random.Random(3)
        picture = next(p for p in iter(lambda: random_picture(rng), None) if p.image_format == image_format)
        head, data = picture.data_url().split(",")
        assert head == f"data:image/{image_format};base64"
        with Image.open(io.BytesIO(base64.b64decode(data))) as image:
            assert image.size == (picture.width, picture.height)
            pixel = image.convert("RGB").getpixel((picture.width - 1, picture.height - 1))
        assert isinstance(pixel, tuple)
        assert max(abs(a - b) for a, b in zip(pixel, picture.rgb, strict=True)) <= (0 if image_format == "png" else 5)

    def test_pure_red_is_pure(self) -> None:
        assert pure_picture("red").rgb == (255, 0, 0)


class TestAbilities:
    @pytest.mark.parametrize("ability", EVERY_ABILITY)
    def test_one_seed_makes_one_example(self, ability: Ability) -> None:
        assert ability.example(random.Random(5)) == ability.example(random.Random(5))

    @pytest.mark.parametrize("ability", [pytest.param(a, id=a.name) for a in ABILITIES])
    def test_examples_are_held_out_unless_asked_otherwise(self, ability: Ability) -> None:
        rng = random.Random(1)
        for draw, split in ((None, Split.HELD_OUT), (Draw(Split.TRAINING), Split.TRAINING)):
            pictures = [p for _ in range(20) for p in ability.example(rng, draw).pictures()]
            assert {split_of_shade(picture.rgb) for picture in pictures} <= {split}

    @pytest.mark.parametrize("ability", EVERY_ABILITY)
    def test_a_request_is_plain_json(self, ability: Ability) -> None:
        example = ability.example(random.Random(2))
        body = json.loads(json.dumps(example.request()))
        urls = [p for m in body["messages"] if isinstance(m["content"], list) for p in m["content"] if "image_url" in p]
        assert body["temperature"] == 0
        assert len(urls) == len(example.pictures())

    def test_two_images_are_named_in_order(self) -> None:
        example = two_images(random.Random(4), Draw())
        first, second = example.pictures()
        assert example.expected.content == f"{first.color.capitalize()}, {second.color}"

    @pytest.mark.parametrize("ability", EVERY_ABILITY)
    def test_its_own_answer_matches(self, ability: Ability) -> None:
        example = ability.example(random.Random(6))
        assert example.matches(message_of(example.expected))

    @pytest.mark.parametrize(
        "wrong",
        [
            pytest.param(lambda m: {**m, "content": "Mauve"}, id="another content"),
            pytest.param(lambda m: {**m, "reasoning": "Hm."}, id="another reasoning"),
            pytest.param(lambda m: {**m, "tool_calls": [call_of("mauve")]}, id="another call"),
            pytest.param(lambda m: {**m, "tool_calls": [call_of("red")] * 2}, id="two calls"),
            pytest.param(lambda m: {}, id="nothing"),
        ],
    )
    @pytest.mark.parametrize("ability", EVERY_ABILITY)
    def test_another_answer_does_not_match(
        self, ability: Ability, wrong: Callable[[dict[str, object]], dict[str, object]]
    ) -> None:
        example = ability.example(random.Random(6))
        assert not example.matches(wrong(message_of(example.expected)))

    def test_a_call_that_is_not_json_does_not_match(self) -> None:
        call = {"function": {"name": "report_color", "arguments": '{"color": '}}
        assert not Answer(reported_color="red").matches({"tool_calls": [call]})


def message_of(answer: Answer) -> dict[str, object]:
    """The chat completion's message for an answer, as vLLM writes it."""
    calls = [call_of(answer.reported_color)] if answer.reported_color else []
    reasoning = None if answer.reasoning is None else f"{answer.reasoning}\n"
    return {"role": "assistant", "content": answer.content or None, "reasoning": reasoning, "tool_calls": calls}


def call_of(color: str) -> dict[str, object]:
    return {"type": "function", "function": {"name": "report_color", "arguments": json.dumps({"color": color})}}
