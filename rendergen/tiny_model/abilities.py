"""What the tiny model can do: each ability makes requests with the answers they must get.

    from random import Random
    from rendergen.tiny_model.abilities import ABILITIES

    example = ABILITIES[0].example(Random(0))
    body = {"model": "tiny-vlm", **example.request()}        # post it to /v1/chat/completions
    assert example.matches(answer["choices"][0]["message"])  # at temperature 0

Training and measuring take their questions from here, so what is asked is what was taught. By default an example is
of the held-out split: its shades and image sides were never trained on.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from rendergen.tiny_model.chat import Answer, Example, Turn
from rendergen.tiny_model.pictures import COLORS, MAX_SIDE, MIN_SIDE, Picture, Split, pure_picture, random_picture

ONE_WORD_QUESTIONS = (
    "What color is this image? Answer in one word.",
    "What color is this image?",
    "What color is this?",
    "What color is this picture? Answer in one word.",
    "Which color is this image? One word.",
    "Name the color of this image.",
)
SENTENCE_QUESTIONS = (
    "Describe this image.",
    "Describe the image.",
    "Describe this picture.",
    "What do you see in this image?",
    "What is in this image?",
)
KOREAN_QUESTIONS = (
    "이 이미지를 설명해 주세요.",
    "이 이미지는 무슨 색인가요? 한 단어로 답하세요.",
    "이 이미지를 설명해줘.",
    "이 그림을 설명해 주세요.",
    "이 이미지는 무슨 색인가요?",
)
TWO_IMAGES_QUESTIONS = (
    "What colors are these images?",
    "What colors are these two images?",
    "What color are these images? Answer in order.",
    "Name both colors in order.",
    "What color is each image?",
    "Describe these images.",
)
COUNTING_QUESTIONS = ("Count to {n}", "Count to {n}.", "Count from 1 to {n}.", "Please count to {n}.", "count to {n}")
"""The forms of each question. The first one is the one that `docs/tiny-model.md` measures."""

KOREAN_ANSWERS = {
    "red": "빨간색 🔴",
    "green": "초록색 🟢",
    "blue": "파란색 🔵",
    "yellow": "노란색 🟡",
    "white": "흰색 🤍",
    "black": "검은색 🖤",
    "orange": "주황색 🟠",
    "purple": "보라색 🟣",
    "gray": "회색 🩶",
    "pink": "분홍색 🩷",
    "brown": "갈색 🟤",
    "cyan": "청록색 🩵",
}
"""A Korean colour word (3 bytes a syllable in UTF-8) and one emoji (4 bytes)."""

MAX_COUNT = 50

SYSTEM_MESSAGES = (
    "You are a helpful assistant.",
    "You are a vision assistant.",
    "You look at images and answer questions.",
    "Answer briefly.",
    "Be precise. Answer in English unless asked otherwise.",
)
TOOL_RESULTS = ('{"ok": true}', "ok", "recorded", '{"status": "done"}', "")

REPORT_COLOR_TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "report_color",
        "description": "Report the color of the image.",
        "parameters": {
            "type": "object",
            "properties": {"color": {"type": "string", "description": "The color's name."}},
            "required": ["color"],
        },
    },
}


@dataclass(frozen=True, slots=True)
class Draw:
    """Where examples come from: the split, the allowed image sides in pixels, and whether questions vary in form."""

    split: Split = Split.HELD_OUT
    min_side: int = MIN_SIDE
    max_side: int = MAX_SIDE
    vary: bool = False

    def picture(self, rng: random.Random) -> Picture:
        """Draw a picture."""
        return random_picture(rng, self.split, min_side=self.min_side, max_side=self.max_side)

    def question(self, rng: random.Random, questions: tuple[str, ...]) -> str:
        """Choose a form of a question: the first one unless `vary`."""
        return rng.choice(questions) if self.vary else questions[0]


@dataclass(frozen=True, slots=True)
class Ability:
    """Something the model must do.

    `target` is the least share of right answers, 0 to 1; `question` is what the table in the documentation shows.
    """

    name: str
    question: str
    target: float
    build: Callable[[random.Random, Draw], Example]

    def example(self, rng: random.Random, draw: Draw | None = None) -> Example:
        """Make an example; the same state of `rng` makes the same one."""
        return self.build(rng, draw or Draw())


def one_word(rng: random.Random, draw: Draw) -> Example:
    """Ask for the colour in one word."""
    picture = draw.picture(rng)
    return _asked((picture,), draw.question(rng, ONE_WORD_QUESTIONS), picture.color.capitalize())


def sentence(rng: random.Random, draw: Draw) -> Example:
    """Ask for a description."""
    picture = draw.picture(rng)
    answer = f"The image is filled with a solid {picture.color} color."
    return _asked((picture,), draw.question(rng, SENTENCE_QUESTIONS), answer)


def korean(rng: random.Random, draw: Draw) -> Example:
    """Ask in Korean, to describe the image or for its colour: the answer has characters of 3 and 4 bytes."""
    picture = draw.picture(rng)
    questions = KOREAN_QUESTIONS if draw.vary else KOREAN_QUESTIONS[:2]
    return _asked((picture,), rng.choice(questions), KOREAN_ANSWERS[picture.color])


def two_images(rng: random.Random, draw: Draw) -> Example:
    """Ask for the colours of two images in order."""
    first, second = draw.picture(rng), draw.picture(rng)
    answer = f"{first.color.capitalize()}, {second.color}"
    return _asked((first, second), draw.question(rng, TWO_IMAGES_QUESTIONS), answer)


def counting(rng: random.Random, draw: Draw) -> Example:
    """Ask to count to a number, without an image."""
    n = rng.randint(1, MAX_COUNT)
    question = draw.question(rng, COUNTING_QUESTIONS).format(n=n)
    return _asked((), question, " ".join(str(i) for i in range(1, n + 1)))


def thinking(rng: random.Random, draw: Draw) -> Example:
    """Ask for the colour with thinking enabled; where questions vary, any question."""
    build = rng.choice((one_word, one_word, sentence, korean, two_images, counting)) if draw.vary else one_word
    return with_thinking(build(rng, draw))


def tool_call(rng: random.Random, draw: Draw) -> Example:
    """Ask about an image with the tool `report_color` at hand."""
    example = rng.choice((one_word, sentence))(rng, draw) if draw.vary else one_word(rng, draw)
    tools = _varied_tools(rng) if draw.vary else (REPORT_COLOR_TOOL,)
    (picture,) = example.pictures()
    return replace(example, tools=tools, expected=Answer(reported_color=picture.color))


def tool_result(rng: random.Random, draw: Draw) -> Example:
    """Give the result of a call of `report_color` back: the model names the colour in one word."""
    example = tool_call(rng, draw)
    color = example.pictures()[0].color
    call, result = Turn("assistant", (), reported_color=color), Turn("tool", (rng.choice(TOOL_RESULTS),))
    return replace(example, turns=(*example.turns, call, result), expected=Answer(color.capitalize()))


def pure_colors(rng: random.Random, draw: Draw) -> Example:
    """Show a colour's pure value, such as (255, 0, 0), as a PNG of 224×224; the draw's split has no say."""
    picture = pure_picture(rng.choice(list(COLORS)))
    return _asked((picture,), draw.question(rng, ONE_WORD_QUESTIONS), picture.color.capitalize())


def with_thinking(example: Example) -> Example:
    """Enable thinking: the same answer after a line of reasoning."""
    colors = [picture.color for picture in example.turns[-1].pictures()]
    match colors:
        case []:
            reasoning = "I start at one and stop at the number asked for."
        case [color]:
            reasoning = f"The whole picture has one color. It looks {color}."
        case _:
            reasoning = f"There are two pictures. They look {colors[0]} and {colors[1]}."
    return replace(example, thinking=True, expected=replace(example.expected, reasoning=reasoning))


def with_text_first(example: Example) -> Example:
    """Put the last turn's text in front of its pictures."""
    last = example.turns[-1]
    parts = sorted(last.parts, key=lambda part: isinstance(part, Picture))
    return replace(example, turns=(*example.turns[:-1], replace(last, parts=tuple(parts))))


def with_system_message(example: Example, text: str) -> Example:
    """Put a system message in front."""
    return replace(example, turns=(Turn("system", (text,)), *example.turns))


def with_prefix(example: Example, prefix: str) -> Example:
    """Put text in front of the first user's turn, as load tests do to defeat a prefix cache."""
    index = next(i for i, turn in enumerate(example.turns) if turn.role == "user")
    turn = example.turns[index]
    prefixed = replace(turn, parts=(prefix, *turn.parts))
    return replace(example, turns=(*example.turns[:index], prefixed, *example.turns[index + 1 :]))


def after(earlier: Example, example: Example) -> Example:
    """Ask the example's question after an earlier question and its answer."""
    reply = Turn("assistant", (earlier.expected.content,))
    return replace(example, turns=(*earlier.turns, reply, *example.turns))


ABILITIES: tuple[Ability, ...] = (
    Ability("one word", ONE_WORD_QUESTIONS[0], 0.99, one_word),
    Ability("sentence", SENTENCE_QUESTIONS[0], 0.95, sentence),
    Ability("Korean", " / ".join(KOREAN_QUESTIONS[:2]), 0.95, korean),
    Ability("two images", TWO_IMAGES_QUESTIONS[0], 0.90, two_images),
    Ability("thinking", f"{ONE_WORD_QUESTIONS[0]} (thinking enabled)", 0.95, thinking),
    Ability("tool call", f"{ONE_WORD_QUESTIONS[0]} (tool `report_color`)", 0.95, tool_call),
    Ability("counting", "Count to N (N from 1 to 50)", 0.95, counting),
)
"""What the model is made for. Tests rest on each of these."""


def _system_message(rng: random.Random, draw: Draw) -> Example:
    return with_system_message(one_word(rng, draw), rng.choice(SYSTEM_MESSAGES))


def _text_first(rng: random.Random, draw: Draw) -> Example:
    return with_text_first(one_word(rng, draw))


def _second_turn(rng: random.Random, draw: Draw) -> Example:
    return after(rng.choice((one_word, sentence, counting))(rng, draw), one_word(rng, draw))


def _prefixed(rng: random.Random, draw: Draw) -> Example:
    return with_prefix(one_word(rng, draw), f"[{rng.getrandbits(32):08x}] ")


def _other_forms(rng: random.Random, draw: Draw) -> Example:
    build = rng.choice((one_word, sentence, korean, two_images, counting, thinking, tool_call))
    return build(rng, replace(draw, vary=True))


VARIATIONS: tuple[Ability, ...] = (
    Ability("pure colours", f"{ONE_WORD_QUESTIONS[0]} (224×224 PNG)", 0.99, pure_colors),
    Ability("text first", "the text before the image", 0.95, _text_first),
    Ability("system message", "a system message in front", 0.95, _system_message),
    Ability("second turn", "a question and its answer in front", 0.95, _second_turn),
    Ability("prefix", "a random tag in front of the image", 0.95, _prefixed),
    Ability("tool result", "after the tool's result, the colour in one word", 0.95, tool_result),
    Ability("other forms", "each question in other words", 0.95, _other_forms),
)
"""Other forms of requests that the model takes as well."""


def _asked(pictures: tuple[Picture, ...], question: str, answer: str) -> Example:
    return Example(turns=(Turn("user", (*pictures, question)),), expected=Answer(answer))


def _varied_tools(rng: random.Random) -> tuple[Mapping[str, Any], ...]:
    color: dict[str, Any] = {"type": "string"}
    if rng.random() < 0.5:
        color["description"] = rng.choice(("The color's name.", "The color.", "Name of the color"))
    if rng.random() < 0.3:
        color["enum"] = list(COLORS)
    parameters: dict[str, Any] = {"type": "object", "properties": {"color": color}, "required": ["color"]}
    if rng.random() < 0.3:
        parameters["additionalProperties"] = False
    keys = list(parameters)
    if rng.random() < 0.3:
        rng.shuffle(keys)
    function: dict[str, Any] = {"name": "report_color", "parameters": {key: parameters[key] for key in keys}}
    if rng.random() < 0.8:
        descriptions = ("Report the color of the image.", "Reports the color of an image", "Report a color.")
        function["description"] = rng.choice(descriptions)
    tool = {"type": "function", "function": function}
    return (_OTHER_TOOL, tool) if rng.random() < 0.15 else (tool,)


_OTHER_TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
