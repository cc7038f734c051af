"""Train the tiny vision-language model that ships in `rendergen/tiny_model/weights`, from scratch, on a CPU.

    python scripts/train_tiny_vlm.py

It trains a byte-level tokenizer and a Qwen3-VL of about two million parameters on the requests that
`rendergen.tiny_model.abilities` makes, prints its settings, its progress and its accuracy on held-out shades and
sizes, and writes everything that vLLM loads. `scripts/check_tiny_vlm.py` then measures it in vLLM itself. Beside a
torchvision that was built for another torch, run it with PYTHONPATH=rendergen/launcher/torchvision_fix.
"""

import argparse
import functools
import io
import json
import random
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GenerationConfig, PreTrainedTokenizerFast, Qwen3VLConfig, Qwen3VLForConditionalGeneration

from rendergen.tiny_model import TINY_MODEL_PATH, abilities
from rendergen.tiny_model.abilities import ABILITIES, VARIATIONS, Ability, Draw
from rendergen.tiny_model.chat import Example
from rendergen.tiny_model.pictures import MAX_SIDE, MIN_SIDE, Picture, Split

PATCH = 16
"""Side of a patch in pixels."""
MERGE = 2
"""Patches along each axis that become one token."""
TEMPORAL = 2
"""Times an image is repeated along time in a patch."""
TOKEN_SIDE = PATCH * MERGE
"""Side of the square that one image token covers, in pixels."""

SPECIAL_TOKENS = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
]
MARKUP_TOKENS = ["<think>", "</think>", "<tool_call>", "</tool_call>"]
"""Single tokens that parsers look for in the answer's text, so decoding must not skip them as it does special ones."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What a training run depends on. The learning rates are the highest of the cycle; `warmup` is a share of steps."""

    steps: int = 2000
    seed: int = 0
    threads: int = 2
    learning_rate: float = 2.5e-3
    patch_learning_rate: float = 2.5e-4
    weight_decay: float = 0.01
    warmup: float = 0.1
    vocabulary: int = 768
    hidden: int = 192
    layers: int = 4
    vision_hidden: int = 64
    vision_layers: int = 2


@dataclass(frozen=True, slots=True)
class SizeClass:
    """Batches of images alike in size: the share of steps, the examples in a batch, the range of sides in pixels."""

    share: float
    examples: int
    min_side: int
    max_side: int


SIZE_CLASSES = (
    SizeClass(0.70, 24, MIN_SIDE, 112),
    SizeClass(0.12, 12, MIN_SIDE, 352),
    SizeClass(0.08, 6, MIN_SIDE, MAX_SIDE),
    SizeClass(0.10, 3, 400, MAX_SIDE),
)
"""Most steps see small images, as those are quick; the last two classes have strips and the largest images."""

ABILITY_WEIGHTS = {
    "one word": 2.0,
    "sentence": 1.5,
    "Korean": 2.0,
    "two images": 3.0,
    "thinking": 2.0,
    "tool call": 2.0,
    "counting": 2.5,
}
"""How often each ability is trained, relatively."""


def main() -> None:
    """Train, measure and save."""
    defaults = Settings()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=defaults.steps, help="optimizer steps (default %(default)s)")
    parser.add_argument(
        "--seed", type=int, default=defaults.seed, help="seed of all that is random (default %(default)s)"
    )
    parser.add_argument("--out", type=Path, default=TINY_MODEL_PATH, help="directory to write (default: the package's)")
    parser.add_argument("--samples", type=int, default=100, help="examples measured per ability (default %(default)s)")
    arguments = parser.parse_args()
    settings = Settings(steps=arguments.steps, seed=arguments.seed)
    print(json.dumps(asdict(settings)), flush=True)

    torch.manual_seed(settings.seed)
    torch.set_num_threads(settings.threads)
    rng = random.Random(settings.seed)
    tokenizer = make_tokenizer(settings, chat_template=(TINY_MODEL_PATH / "chat_template.jinja").read_text())
    model = make_model(settings, tokenizer)
    print(f"{len(tokenizer)} tokens, {sum(p.numel() for p in model.parameters()):,} parameters", flush=True)

    began = time.monotonic()
    train(model, tokenizer, settings, rng)
    print(f"trained in {(time.monotonic() - began) / 60:.1f} minutes", flush=True)
    save(model, tokenizer, arguments.out)
    print_accuracy(model, tokenizer, arguments.samples, settings.seed)


# --- Tokenizer ------------------------------------------------------------------------------------------------------


def make_tokenizer(settings: Settings, chat_template: str) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE on the English of the requests and answers.

    It sees no Korean and no emoji: those stay single bytes, so that their characters are split over tokens. Numbers
    of two digits become tokens of their own, without the space in front, so that counting makes two tokens a number.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=settings.vocabulary,
        special_tokens=SPECIAL_TOKENS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(english_corpus(), trainer)
    tokenizer.add_tokens(MARKUP_TOKENS)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        model_max_length=8192,
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = chat_template
    return fast


def english_corpus() -> Iterable[str]:
    """Yield the ASCII texts of requests and answers without their digits, and the numbers to count with."""
    rng = random.Random(0)
    no_digits = {ord(digit): None for digit in "0123456789"}
    for ability in ABILITIES * 100:
        example = ability.example(rng, Draw(Split.TRAINING, vary=True))
        texts = [part for turn in example.turns for part in turn.parts if isinstance(part, str)]
        tools = [json.dumps(tool_as_templated(tool)) for tool in example.tools]
        for text in (*texts, *tools, example.expected.completion()):
            if text.isascii():
                yield text.translate(no_digits)
        yield "system\nYou can call a tool.\nuser\nassistant\n"
        yield rng.choice(abilities.SYSTEM_MESSAGES)
        yield from map(str, range(1, abilities.MAX_COUNT + 1))


# --- Model ----------------------------------------------------------------------------------------------------------


def make_model(settings: Settings, tokenizer: PreTrainedTokenizerFast) -> Qwen3VLForConditionalGeneration:
    """Build the model with random weights."""
    ids = {token: tokenizer.convert_tokens_to_ids(token) for token in SPECIAL_TOKENS}
    config = Qwen3VLConfig(
        text_config={
            "vocab_size": -(-len(tokenizer) // 64) * 64,
            "hidden_size": settings.hidden,
            "intermediate_size": 3 * settings.hidden,
            "num_hidden_layers": settings.layers,
            "num_attention_heads": settings.hidden // 32,
            "num_key_value_heads": 2,
            "head_dim": 32,
            "max_position_embeddings": 8192,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10000.0,
                "mrope_section": [6, 5, 5],
                "mrope_interleaved": True,
            },
            "tie_word_embeddings": True,
            "eos_token_id": ids["<|im_end|>"],
            "pad_token_id": ids["<|endoftext|>"],
            "bos_token_id": None,
        },
        vision_config={
            "depth": settings.vision_layers,
            "hidden_size": settings.vision_hidden,
            "intermediate_size": 2 * settings.vision_hidden,
            "num_heads": settings.vision_hidden // 32,
            "out_hidden_size": settings.hidden,
            "num_position_embeddings": 256,
            "deepstack_visual_indexes": [0],
            "patch_size": PATCH,
            "spatial_merge_size": MERGE,
            "temporal_patch_size": TEMPORAL,
        },
        image_token_id=ids["<|image_pad|>"],
        video_token_id=ids["<|video_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"],
        vision_end_token_id=ids["<|vision_end|>"],
        tie_word_embeddings=True,
    )
    config.architectures = ["Qwen3VLForConditionalGeneration"]
    return Qwen3VLForConditionalGeneration(config)


# --- Data -----------------------------------------------------------------------------------------------------------


def random_example(rng: random.Random, size: SizeClass) -> Example:
    """Draw a training example: an ability in any of its forms, sometimes with a system message or an earlier turn."""
    draw = Draw(Split.TRAINING, size.min_side, size.max_side, vary=rng.random() < 0.6)
    (ability,) = rng.choices(ABILITIES, [ABILITY_WEIGHTS[ability.name] for ability in ABILITIES])
    build = abilities.tool_result if ability.name == "tool call" and rng.random() < 0.2 else ability.build
    example = build(rng, draw)
    if example.expected.reported_color and rng.random() < 0.1:
        example = abilities.with_thinking(example)
    if rng.random() < 0.25:
        example = abilities.with_text_first(example)
    if rng.random() < 0.1:
        earlier = rng.choice((abilities.one_word, abilities.sentence, abilities.korean, abilities.counting))
        example = abilities.after(earlier(rng, draw), example)
    if rng.random() < 0.1:
        example = abilities.with_prefix(example, random_text(rng))
    if rng.random() < 0.15:
        text = rng.choice(abilities.SYSTEM_MESSAGES) if rng.random() < 0.7 else random_text(rng)
        example = abilities.with_system_message(example, text)
    return example


def random_text(rng: random.Random) -> str:
    """Make a short meaningless text: a tag such as `[17af] `, words of random letters, or characters of any script."""
    kind = rng.random()
    if kind < 0.5:
        return f"[{rng.getrandbits(rng.choice((8, 16, 32))):x}] "
    if kind < 0.85:
        letters = "abcdefghijklmnopqrstuvwxyz"
        words = ("".join(rng.choices(letters, k=rng.randint(2, 8))) for _ in range(rng.randint(1, 5)))
        return " ".join(words).capitalize() + ". "
    blocks = (0xE9, 0x3B1, 0x416, 0x4E2D, 0xAC00, 0x1F600)
    return "".join(chr(rng.choice(blocks) + rng.randint(0, 60)) for _ in range(rng.randint(1, 6)))


def tool_as_templated(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool as vLLM 0.32 hands it to the chat template: members in its order, an absent description as null."""
    function = {key: tool["function"].get(key) for key in ("name", "description", "parameters")}
    return {"type": "function", "function": function}


def grid_of(picture: Picture) -> tuple[int, int]:
    """Return the height and width in patches to which the image processor resizes a picture of at most 1024×1024."""
    return max(1, round(picture.height / TOKEN_SIDE)) * MERGE, max(1, round(picture.width / TOKEN_SIDE)) * MERGE


@functools.lru_cache(maxsize=100_000)
def decoded_rgb(rgb: tuple[int, int, int], image_format: str, quality: int) -> tuple[int, int, int]:
    """Return the colour of a solid picture after encoding and decoding: JPEG moves it by a few values."""
    data = Picture("", rgb, PATCH, PATCH, image_format, quality).encode()
    return Image.open(io.BytesIO(data)).convert("RGB").getpixel((0, 0))


def pixel_values(picture: Picture, noise: np.random.Generator | None = None) -> torch.Tensor:
    """Return the picture's patches as the image processor makes them, without making the picture.

    Shape (patches, 3 · 2 · 16 · 16), float32, -1 to 1; all rows are alike as the picture is solid. `noise` adds up to
    3 of 255 to each value.
    """
    height, width = grid_of(picture)
    rgb = np.array(decoded_rgb(picture.rgb, picture.image_format, picture.quality), dtype=np.float32)
    row = np.repeat(rgb / 127.5 - 1, TEMPORAL * PATCH * PATCH).astype(np.float32)
    rows = torch.from_numpy(row).expand(height * width, -1)
    if noise is None:
        return rows
    moved = noise.integers(-3, 4, size=rows.shape).astype(np.float32) / 127.5
    return (rows + torch.from_numpy(moved)).clamp(-1, 1)


def prompt_ids(example: Example, tokenizer: PreTrainedTokenizerFast) -> list[int]:
    """Render an example's prompt as vLLM does and return its tokens, a picture's placeholder once for each token."""
    messages = [turn.message(lambda _: {"type": "image"}) for turn in example.turns]
    for message in messages:
        for call in message.get("tool_calls", ()):
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    text = tokenizer.apply_chat_template(
        messages,
        tools=[tool_as_templated(tool) for tool in example.tools] or None,
        add_generation_prompt=True,
        tokenize=False,
        enable_thinking=example.thinking,
    )
    head, *tails = text.split("<|image_pad|>")
    for picture, tail in zip(example.pictures(), tails, strict=True):
        height, width = grid_of(picture)
        head += "<|image_pad|>" * (height * width // MERGE**2) + tail
    return tokenizer.encode(head, add_special_tokens=False)


@dataclass(frozen=True, slots=True)
class Encoded:
    """An example in tokens: the prompt, the answer with its end token, and the pictures of the placeholders."""

    prompt: list[int]
    answer: list[int]
    pictures: tuple[Picture, ...]

    def __len__(self) -> int:
        return len(self.prompt) + len(self.answer)


def encode(example: Example, tokenizer: PreTrainedTokenizerFast) -> Encoded:
    """Tokenize an example."""
    answer = tokenizer.encode(f"{example.expected.completion()}<|im_end|>", add_special_tokens=False)
    return Encoded(prompt_ids(example, tokenizer), answer, example.pictures())


@dataclass(frozen=True, slots=True)
class Batch:
    """Model inputs, and the weight of predicting each token: float32, shape (examples, length)."""

    inputs: dict[str, torch.Tensor]
    weights: torch.Tensor


def make_batch(
    examples: list[Encoded], tokenizer: PreTrainedTokenizerFast, noise: np.random.Generator | None = None
) -> Batch:
    """Pad examples to the right.

    Prompts weigh nothing, a long answer weighs more than a short one but not by its length, and the end token, which
    says where to stop counting, weighs 1.
    """
    shape = len(examples), max(map(len, examples))
    ids = torch.full(shape, tokenizer.pad_token_id)
    mask, weights = torch.zeros(shape, dtype=torch.long), torch.zeros(shape)
    for row, example in enumerate(examples):
        length = len(example)
        ids[row, :length] = torch.tensor(example.prompt + example.answer)
        mask[row, :length] = 1
        weights[row, len(example.prompt) : length] = len(example.answer) ** -0.5
        weights[row, length - 1] = 1
    image_token = tokenizer.convert_tokens_to_ids("<|image_pad|>")
    inputs = {"input_ids": ids, "attention_mask": mask, "mm_token_type_ids": (ids == image_token).int()}
    pictures = [picture for example in examples for picture in example.pictures]
    if pictures:
        noisy = [noise if noise is not None and noise.random() < 0.2 else None for _ in pictures]
        inputs["pixel_values"] = torch.cat([pixel_values(p, n) for p, n in zip(pictures, noisy, strict=True)])
        inputs["image_grid_thw"] = torch.tensor([(1, *grid_of(picture)) for picture in pictures])
    return Batch(inputs, weights)


# --- Training and measuring -----------------------------------------------------------------------------------------


def train(
    model: Qwen3VLForConditionalGeneration, tokenizer: PreTrainedTokenizerFast, settings: Settings, rng: random.Random
) -> None:
    """Train the model in place, printing the loss now and then.

    A step goes through its shorter and its longer examples apart, as less of the work is padding then.
    """
    model.train()
    patch_embedding = list(model.model.visual.patch_embed.parameters())
    others = [parameter for name, parameter in model.named_parameters() if ".patch_embed." not in name]
    groups = [{"params": others}, {"params": patch_embedding}]
    rates = [settings.learning_rate, settings.patch_learning_rate]
    optimizer = torch.optim.AdamW(groups, lr=settings.learning_rate, weight_decay=settings.weight_decay)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rates, settings.steps, pct_start=settings.warmup)
    noise = np.random.default_rng(settings.seed)
    began, losses = time.monotonic(), []
    for step in range(1, settings.steps + 1):
        (size,) = rng.choices(SIZE_CLASSES, [size.share for size in SIZE_CLASSES])
        examples = sorted((encode(random_example(rng, size), tokenizer) for _ in range(size.examples)), key=len)
        short = len(examples) * 2 // 3
        batches = [
            make_batch(alike, tokenizer, noise if size is SIZE_CLASSES[0] else None)
            for alike in (examples[:short], examples[short:])
        ]
        total = sum(batch.weights.sum().item() for batch in batches)
        optimizer.zero_grad()
        loss = 0.0
        for batch in batches:
            with torch.autocast("cpu", torch.bfloat16):
                share = weighted_loss(model, batch) / total
            share.backward()
            loss += share.item()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss)
        if step % 50 == 0 or step == settings.steps:
            print(f"step {step}: loss {sum(losses) / len(losses):.4f}, {time.monotonic() - began:.0f} s", flush=True)
            losses.clear()


def weighted_loss(model: Qwen3VLForConditionalGeneration, batch: Batch) -> torch.Tensor:
    """Return the weighted sum of the cross-entropy of each answer token."""
    weights = batch.weights[:, 1:]
    chosen = weights > 0
    logits = model(**batch.inputs).logits[:, :-1][chosen].float()
    losses = torch.nn.functional.cross_entropy(logits, batch.inputs["input_ids"][:, 1:][chosen], reduction="none")
    return (losses * weights[chosen]).sum()


@torch.no_grad()
def accuracy(
    model: Qwen3VLForConditionalGeneration,
    tokenizer: PreTrainedTokenizerFast,
    ability: Ability,
    samples: int,
    seed: int,
) -> float:
    """Return the share of held-out examples whose whole answer is the model's greedy choice.

    Greedy decoding gives exactly the answer if, with the answer given, each of its tokens is the likeliest, so one
    pass per example will do.
    """
    rng = random.Random(f"{seed} {ability.name}")
    right = 0
    for _ in range(samples):
        batch = make_batch([encode(ability.example(rng), tokenizer)], tokenizer)
        chosen = batch.weights[0, 1:] > 0
        best = model(**batch.inputs).logits[0, :-1].argmax(-1)
        right += bool((best == batch.inputs["input_ids"][0, 1:])[chosen].all())
    return right / samples


def print_accuracy(
    model: Qwen3VLForConditionalGeneration, tokenizer: PreTrainedTokenizerFast, samples: int, seed: int
) -> None:
    """Measure every ability on held-out examples and print the share of right answers."""
    model.eval()
    for ability in (*ABILITIES, *VARIATIONS):
        share = accuracy(model, tokenizer, ability, samples, seed)
        print(f"{ability.name:16} {share:7.1%}  target {ability.target:.0%}", flush=True)


# --- Saving ---------------------------------------------------------------------------------------------------------


def save(model: Qwen3VLForConditionalGeneration, tokenizer: PreTrainedTokenizerFast, out: Path) -> None:
    """Write what vLLM loads: weights in bfloat16, tokenizer, chat template and processor configurations."""
    out.mkdir(parents=True, exist_ok=True)
    model.to(torch.bfloat16)
    model.generation_config = GenerationConfig(
        eos_token_id=[tokenizer.convert_tokens_to_ids(token) for token in ("<|im_end|>", "<|endoftext|>")],
        pad_token_id=tokenizer.pad_token_id,
    )
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    (out / "model.safetensors").chmod(0o644)
    image = {
        "do_convert_rgb": True,
        "do_normalize": True,
        "do_rescale": True,
        "do_resize": True,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
        "merge_size": MERGE,
        "patch_size": PATCH,
        "processor_class": "Qwen3VLProcessor",
        "size": {"shortest_edge": TOKEN_SIDE**2, "longest_edge": MAX_SIDE**2},
        "temporal_patch_size": TEMPORAL,
    }
    processors = {
        "preprocessor_config.json": {"image_processor_type": "Qwen2VLImageProcessor", **image},
        "video_preprocessor_config.json": {"video_processor_type": "Qwen3VLVideoProcessor", **image},
    }
    for name, configuration in processors.items():
        (out / name).write_text(json.dumps(configuration, indent=2) + "\n")
    size = sum(file.stat().st_size for file in out.iterdir())
    print(f"wrote {out.name}: {size / 1e6:.1f} MB", flush=True)


if __name__ == "__main__":
    main()
