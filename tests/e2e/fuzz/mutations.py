"""The ways in which a payload is tampered with. Each takes a draft of its own, changes it, and says what may come."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.e2e.fuzz.drafts import Draft, Field, Picture, Tensor
from tests.e2e.fuzz.outcomes import Expect

PIXELS, GRID = "pixel_values", "image_grid_thw"
IMAGE_TOKEN, VIDEO_TOKEN, VISION_START, VISION_END = 5, 6, 3, 4
VOCABULARY = 768
CONTEXT = 4096
SOME_TEXT_TOKEN = 300

RNG = random.Random
NAN, INFINITY = float("nan"), float("inf")


@dataclass(frozen=True, slots=True)
class Source:
    """What drafts are made of: good ones, all of whose pictures are of one size."""

    drafts: Sequence[Draft]

    def picture(self, rng: RNG, *, other_than: str) -> Picture:
        """One of another colour."""
        pictures = [picture for draft in self.drafts for picture in draft.pictures if picture.color != other_than]
        return copy.deepcopy(rng.choice(pictures))


Mutation = Callable[[RNG, Draft, Source], Expect]


def weird(rng: RNG) -> Any:
    """A value that nobody would send."""
    return rng.choice(
        [
            *(None, True, False, 0, -1, 1, 7, 2**31, 2**32, 2**63 - 1, 2**63, 2**64, 2**70, -(2**63), -(2**70)),
            *(0.5, -0.0, 1e300, NAN, INFINITY, -INFINITY),
            *("", "x", "\ud83d", "🟥", "x" * 5000, "../../etc/passwd", "\0", "NaN"),
            *([], [None], [[]], ["x"], [1, 2, 3], [NAN], [2**70], _nested(200)),
            *({}, {"": None}, {"x": {"y": [1]}}, {"type": "image_url"}),
        ]
    )


def _nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


# The request.


def request_member(rng: RNG, draft: Draft, source: Source) -> Expect:
    """A member of the request is something else."""
    draft.request[rng.choice(list(draft.request))] = weird(rng)
    return Expect.RIGHT


def request_member_gone(rng: RNG, draft: Draft, source: Source) -> Expect:
    """A member of the request is not there."""
    del draft.request[rng.choice(list(draft.request))]
    return Expect.RIGHT


def unknown_member(rng: RNG, draft: Draft, source: Source) -> Expect:
    """A member that there is not."""
    draft.request[rng.choice(["x", "mm_hashes", "prompt", "lora", "data_parallel_rank", "_items"])] = weird(rng)
    return Expect.RIGHT


def side_door(rng: RNG, draft: Draft, source: Source) -> Expect:
    """What makes the engine fetch from elsewhere."""
    value = rng.choice([{"do_remote_prefill": True, "remote_host": "127.0.0.1"}, {"x": 1}])
    name = rng.choice(["kv_transfer_params", "ec_transfer_params", "content_parts", "extra_args"])
    if name == "extra_args":
        draft.sampling_params["extra_args"] = {rng.choice(["kv_transfer_params", "ec_transfer_params"]): value}
    elif name == "content_parts":
        draft.request[name] = [{"type": "image_url", "url": "http://127.0.0.1:9/x.png"}]
    else:
        draft.request[name] = value
    return Expect.REFUSED


def head_member(rng: RNG, draft: Draft, source: Source) -> Expect:
    """A member of a frame's head, or of what the plugin adds to JSON, is something else."""
    name = rng.choice(["request", "token_ids", "items", "fingerprint", "signature", "is_embed", "x"])
    draft.extra[name] = weird(rng)
    return Expect.ANY if name in ("request", "items") else Expect.RIGHT


def reasoning_kwargs(rng: RNG, draft: Draft, source: Source) -> Expect:
    """What goes to the engine's reasoning parser: anything, and nested deeper than anything needs."""
    value = rng.choice([weird(rng), {"enable_thinking": weird(rng)}, {"x": _nested(rng.choice([20, 31, 100, 300]))}])
    draft.request["reasoning_parser_kwargs"] = {"chat_template_kwargs": value}
    draft.request["reasoning_ended"] = rng.choice([None, True, False])
    return Expect.RIGHT


# The prompt.


def token_out_of_vocabulary(rng: RNG, draft: Draft, source: Source) -> Expect:
    """A token that the model does not have."""
    token = rng.choice([VOCABULARY, 10**6, 2**31, 2**32 - 1, 2**32, 2**32 + 7, 2**63, 2**64, 2**70, -1, -(2**40)])
    draft.token_ids[rng.choice([0, 1, -1])] = token
    return Expect.REFUSED


def tokens_of_another_kind(rng: RNG, draft: Draft, source: Source) -> Expect:
    """No tokens at all, or no integers."""
    wrong = [None, {}, "abc", [], [1.5], [None], ["x"], True, [[1]], b"", b"\1\0\0", [NAN], 5, [{}]]
    draft.token_ids = rng.choice(wrong)
    return Expect.REFUSED


def prompt_cut(rng: RNG, draft: Draft, source: Source) -> Expect:
    """It ends within or before a placeholder."""
    last = draft.pictures[-1]
    del draft.token_ids[rng.randrange(1, last.offset + last.length) :]
    return Expect.REFUSED


def prompt_too_long(rng: RNG, draft: Draft, source: Source) -> Expect:
    """As long as the context, or longer."""
    draft.token_ids += [SOME_TEXT_TOKEN] * rng.choice([CONTEXT - len(draft.token_ids), CONTEXT, 100_000])
    return Expect.REFUSED


def placeholder_token_replaced(rng: RNG, draft: Draft, source: Source) -> Expect:
    """A token within a placeholder is another."""
    picture = rng.choice(draft.pictures)
    at = picture.offset + rng.randrange(picture.length)
    draft.token_ids[at] = rng.choice([SOME_TEXT_TOKEN, VIDEO_TOKEN, VISION_END, 0])
    return Expect.REFUSED


def stray_tokens(rng: RNG, draft: Draft, source: Source) -> Expect:
    """Placeholder tokens that are no picture's, as a caller's own text may hold."""
    stray = rng.choice([[IMAGE_TOKEN], [VISION_START, IMAGE_TOKEN, VISION_END], [VIDEO_TOKEN], [VISION_START] * 3])
    stray = stray * rng.choice([1, 5])
    if rng.random() < 0.5:
        draft.token_ids += stray
    else:
        draft.token_ids = [*draft.token_ids[:1], *stray, *draft.token_ids[1:]]
        for picture in draft.pictures:
            picture.offset += len(stray)
    return Expect.ANY


def text_changed(rng: RNG, draft: Draft, source: Source) -> Expect:
    """Another question."""
    draft.token_ids += [rng.randrange(VOCABULARY) for _ in range(rng.choice([1, 5, 50]))]
    return Expect.ANY


# Where the pictures are.


def placeholder_moved(rng: RNG, draft: Draft, source: Source) -> Expect:
    """Somewhere else than its tokens."""
    rng.choice(draft.pictures).offset += rng.choice([-4, -2, -1, 1, 2, 3, 7, 500])
    return Expect.REFUSED


def placeholder_resized(rng: RNG, draft: Draft, source: Source) -> Expect:
    """Longer or shorter than its tokens."""
    picture = rng.choice(draft.pictures)
    picture.length = rng.choice([0, 1, picture.length - 1, picture.length + 1, picture.length + 2, 2 * picture.length])
    return Expect.REFUSED


def placeholder_of_another_kind(rng: RNG, draft: Draft, source: Source) -> Expect:
    """No number, or none that a prompt has."""
    picture = rng.choice(draft.pictures)
    value = rng.choice([-1, 2**31, 2**63, 2**64, 2**70, None, "x", 1.5, [], True, {}, NAN])
    setattr(picture, rng.choice(["offset", "length"]), value)
    return Expect.REFUSED


def placeholders_overlap(rng: RNG, draft: Draft, source: Source) -> Expect:
    """Two pictures in one place."""
    twin = copy.deepcopy(rng.choice(draft.pictures))
    twin.offset += rng.choice([0, 0, 1])
    draft.pictures.append(twin)
    return Expect.REFUSED


def _placeholders(picture: Picture) -> int:
    """Its length; another mutation may have made that too much to make bytes of."""
    if not isinstance(picture.length, int) or not 0 < picture.length < CONTEXT:
        raise ValueError("no length for a mask")
    return picture.length


def mask(rng: RNG, draft: Draft, source: Source) -> Expect:
    """A mask that leaves tokens without an embedding, or is none."""
    picture = rng.choice(draft.pictures)
    length = _placeholders(picture)
    picture.is_embed = rng.choice(
        [bytes(length), b"\1" * (length - 1) + b"\0", b"\1" * (length + 1), b"", b"\2" * length, 5, "x", [1] * length]
    )
    return Expect.REFUSED


def mask_of_ones(rng: RNG, draft: Draft, source: Source) -> Expect:
    """A mask that says what is so."""
    for picture in draft.pictures:
        picture.is_embed = b"\1" * _placeholders(picture)
    return Expect.RIGHT


# The items.


def items_swapped(rng: RNG, draft: Draft, source: Source) -> Expect:
    """Each in the other's place: they are of one size, and the answer must name them in their new order."""
    first, last = draft.pictures[0], draft.pictures[-1]
    first.fields, last.fields = last.fields, first.fields
    first.color, last.color = last.color, first.color
    return Expect.RIGHT


def items_reordered(rng: RNG, draft: Draft, source: Source) -> Expect:
    """Named in another order than they stand in."""
    draft.pictures.reverse()
    return Expect.RIGHT


def item_dropped(rng: RNG, draft: Draft, source: Source) -> Expect:
    """A placeholder without an item."""
    draft.pictures.pop(rng.randrange(len(draft.pictures)))
    return Expect.ANY


def too_many_items(rng: RNG, draft: Draft, source: Source) -> Expect:
    """More than a prompt may have, each in its place."""
    picture = draft.pictures[0]
    begin, length = picture.offset - 1, picture.length + 2
    span = draft.token_ids[begin : begin + length]
    draft.token_ids = draft.token_ids[:begin] + span * 5
    draft.pictures = [copy.deepcopy(picture) for _ in range(5)]
    for number, each in enumerate(draft.pictures):
        each.offset += number * length
    return Expect.REFUSED


def another_modality(rng: RNG, draft: Draft, source: Source) -> Expect:
    """What the model does not take."""
    rng.choice(draft.pictures).modality = rng.choice(
        ["video", "audio", "", "x" * 5000, "images", "Image", "vision_chunk"]
    )
    return Expect.REFUSED


def hash_alone(rng: RNG, draft: Draft, source: Source) -> Expect:
    """No tensors, though the engine may hold what the hash stands for."""
    rng.choice(draft.pictures).fields = None
    return Expect.REFUSED


def no_item(rng: RNG, draft: Draft, source: Source) -> Expect:
    """Something in an item's place that is none."""
    rng.choice(draft.pictures).fields = rng.choice([{}, [], "@@@@", "AAAA", "", "gA==", "kA==", 5, True, "x" * 9999])
    return Expect.REFUSED


# What makes up an item.


def field_gone(rng: RNG, draft: Draft, source: Source) -> Expect:
    """One of the fields that the model needs."""
    fields = rng.choice(draft.pictures).fields
    del fields[rng.choice(list(fields))]
    return Expect.REFUSED


def field_added(rng: RNG, draft: Draft, source: Source) -> Expect:
    """One that the model does not take, or knows for something else."""
    fields = rng.choice(draft.pictures).fields
    name = rng.choice(["x", "image_embeds", "pixel_values_videos", "video_grid_thw", "address", "timestamps", ""])
    data = rng.choice([copy.deepcopy(fields[PIXELS].data), Tensor("float32", [6, 384], bytes(6 * 384 * 4)), 1, None])
    fields[name] = Field("batched", {"keep_on_cpu": rng.random() < 0.5}, data, rng.random() < 0.5)
    return Expect.REFUSED


def field_renamed(rng: RNG, draft: Draft, source: Source) -> Expect:
    """One of the fields goes by another name."""
    fields = rng.choice(draft.pictures).fields
    fields[rng.choice(["image_embeds", "x", "pixel_values_videos"])] = fields.pop(rng.choice(list(fields)))
    return Expect.REFUSED


def retyped(rng: RNG, draft: Draft, source: Source) -> Expect:
    """The same bytes, said to be something else."""
    tensor = rng.choice(draft.pictures).fields[PIXELS].data
    dtype, shrink = rng.choice(
        [("int8", 1), ("bool", 1), ("float32", 4), ("bfloat16", 2), ("int64", 8), ("float64", 8)]
    )
    tensor.dtype, tensor.shape = dtype, [tensor.shape[0], tensor.shape[1] // shrink]
    return Expect.REFUSED


def dtype_of_another_kind(rng: RNG, draft: Draft, source: Source) -> Expect:
    """A dtype that there is not, or that does not fit the bytes."""
    tensor = rng.choice(list(rng.choice(draft.pictures).fields.values())).data
    tensor.dtype = rng.choice(
        ["complex64", "__class__", "quint8", "", "tensor", "float8_e4m3fn", 5, None, [], "uint16"]
    )
    return Expect.REFUSED


def converted(rng: RNG, draft: Draft, source: Source) -> Expect:
    """The same pixels as floats, or floats that are no numbers."""
    field = rng.choice(draft.pictures).fields[PIXELS]
    array = field.data.array().astype(rng.choice(["float32", "float16", "float64", "int64", "int16"]))
    if array.dtype.kind == "f" and rng.random() < 0.6:
        array = array.copy()
        array.flat[rng.randrange(array.size)] = rng.choice([NAN, INFINITY, -INFINITY])
    field.data = Tensor.of(array)
    return Expect.REFUSED


def reshaped(rng: RNG, draft: Draft, source: Source) -> Expect:
    """Rows or columns more or fewer, dimensions more or fewer."""
    field = rng.choice(draft.pictures).fields[PIXELS]
    array = field.data.array()
    changes: list[Callable[[Any], Any]] = [
        lambda a: a[:-1],
        lambda a: a[:0],
        lambda a: a[: len(a) // 2],
        lambda a: np.concatenate([a, a]),
        lambda a: a[:, :-1],
        lambda a: a[:, :0],
        lambda a: a[:, ::2],
        lambda a: np.concatenate([a, a], axis=1),
        lambda a: a[None],
        lambda a: a.ravel(),
        lambda a: a[:, :, None],
        lambda a: a.T,
        lambda a: a[0],
        lambda a: a[0, 0],
    ]
    field.data = Tensor.of(rng.choice(changes)(array))
    return Expect.REFUSED


def shape_that_lies(rng: RNG, draft: Draft, source: Source) -> Expect:
    """A shape that the bytes do not fill, or that is none."""
    tensor = rng.choice(list(rng.choice(draft.pictures).fields.values())).data
    tensor.shape = rng.choice(
        [[-1], [0], [2**40, 2**40], [2**63], [2**64, 0], [-1, -1536], [1.0], None, "x", [None], [], [[1]], [True] * 40]
    )
    return Expect.REFUSED


def bytes_that_lack(rng: RNG, draft: Draft, source: Source) -> Expect:
    """A tensor's bytes, cut or with more behind them."""
    tensor = rng.choice(list(rng.choice(draft.pictures).fields.values())).data
    tensor.data = rng.choice([tensor.data[:-1], b"", tensor.data + b"\0", tensor.data[: len(tensor.data) // 2]])
    return Expect.REFUSED


def data_of_another_kind(rng: RNG, draft: Draft, source: Source) -> Expect:
    """A field that is no tensor."""
    field = rng.choice(list(rng.choice(draft.pictures).fields.values()))
    rows = [Tensor(field.data.dtype, field.data.shape[1:], field.data.data[:0]) for _ in range(2)]
    field.data = rng.choice([None, 1, 1.5, NAN, 2**63, "x", [], [1, 4, 6], rows, _nested(7), _nested(300), True, {}])
    return Expect.REFUSED


def rows_in_a_list(rng: RNG, draft: Draft, source: Source) -> Expect:
    """The right tensor, in pieces."""
    field = rng.choice(draft.pictures).fields[PIXELS]
    field.data = [Tensor.of(row) for row in field.data.array()]
    return Expect.REFUSED


def batched_otherwise(rng: RNG, draft: Draft, source: Source) -> Expect:
    """How a field is batched is a lie, but one that could be true."""
    for field in rng.choice(draft.pictures).fields.values():
        field.kind, field.options = rng.choice(
            [
                ("batched", {"keep_on_cpu": False}),
                ("shared", {"keep_on_cpu": True, "batch_size": rng.choice([1, 0, 2**40])}),
                ("flat", {"keep_on_cpu": False, "dim": rng.choice([0, 1, 7, -9]), "slices": []}),
                ("flat", {"keep_on_cpu": False, "dim": 0, "slices": [[[0, 10**9, None]], [[5, 2, -1]]]}),
            ]
        )
    return Expect.RIGHT


def batched_somehow(rng: RNG, draft: Draft, source: Source) -> Expect:
    """How a field is batched is nonsense."""
    field = rng.choice(list(rng.choice(draft.pictures).fields.values()))
    if rng.random() < 0.5:
        field.kind = rng.choice(["", "x", "build_elems", "flat_from_sizes", "__init__", 5, None])
    else:
        field.options = rng.choice(
            [{}, None, [], {"x": 1}, {"keep_on_cpu": 5}, {"slices": "x", "dim": 0}, {"dim": NAN}]
        )
    return Expect.RIGHT


def pixels_changed(rng: RNG, draft: Draft, source: Source) -> Expect:
    """Other pixels: what they show is not known."""
    tensor = rng.choice(draft.pictures).fields[PIXELS].data
    data = bytearray(tensor.data)
    for _ in range(rng.choice([1, 100, 5000])):
        data[rng.randrange(len(data))] = rng.randrange(256)
    tensor.data = bytes(data)
    return Expect.ANY


def metadata_flag(rng: RNG, draft: Draft, source: Source) -> Expect:
    """Fields that are, or are not, in mm_metadata too."""
    for field in rng.choice(draft.pictures).fields.values():
        field.metadata = rng.random() < 0.5
    return Expect.RIGHT


# Grids.


def _bad_grid(rng: RNG, grid: list[int]) -> Any:
    frames, rows, columns = grid
    wrong: list[Sequence[int]] = [
        (frames, rows, -columns),
        (frames, -rows, -columns),
        (-1, -rows, columns),
        (0, rows, columns),
        (frames, 0, columns),
        (frames, rows - 2, columns),
        (frames, rows + 2, columns),
        (frames, rows, columns * 2),
        (frames * 2, rows, columns),
        (frames * 2, rows // 2, columns),
        (frames, rows * columns, 1),
        (frames, 1, 1),
        (frames, 2**31, 2**31),
        (frames, 2**62, 4),
        (frames, 2**62 + rows, columns),
        (2**33, 2**31, 1),
        (1000, 1000, 1000),
        (frames, 2**63 - 1, 2**63 - 1),
        (frames, rows),
        (frames, rows, columns, 1),
        (),
    ]
    choice = np.array(rng.choice(wrong), np.int64)
    if rng.random() < 0.3:
        return Tensor.of(np.array(grid).astype(rng.choice(["float32", "float64", "int32", "uint8", "bool"])))
    return Tensor.of(choice[None]) if rng.random() < 0.1 else Tensor.of(choice)


def grid_wrong(rng: RNG, draft: Draft, source: Source) -> Expect:
    """Everywhere the same, and not what the pixels are."""
    field = rng.choice(draft.pictures).fields[GRID]
    field.data = _bad_grid(rng, field.data.array().tolist())
    return Expect.REFUSED


def grid_wrong_in_metadata(rng: RNG, draft: Draft, source: Source) -> Expect:
    """In mm_metadata alone, which overrides the data in vLLM. Frames have no second one."""
    field = rng.choice(draft.pictures).fields[GRID]
    field.kept = _bad_grid(rng, field.data.array().tolist())
    return Expect.RIGHT


def metadata_of_another_kind(rng: RNG, draft: Draft, source: Source) -> Expect:
    """In mm_metadata, something that is no grid, or more than the data have."""
    fields = rng.choice(draft.pictures).fields
    if rng.random() < 0.5:
        fields[GRID].kept = rng.choice([None, 1, [1, 4, 6], "x", NAN, [Tensor.of(np.array(1))]])
    else:
        pixels = fields[PIXELS]
        pixels.kept = rng.choice([Tensor.of(pixels.data.array()[:-1]), Tensor.of(255 - pixels.data.array()), None])
    return Expect.RIGHT


def grid_turned(rng: RNG, draft: Draft, source: Source) -> Expect:
    """Rows for columns: as many patches, of a picture in one colour."""
    field = rng.choice(draft.pictures).fields[GRID]
    frames, rows, columns = field.data.array().tolist()
    field.data = Tensor.of(np.array([frames, columns, rows], np.int64))
    return Expect.ANY


# Hashes.


def hash_of_another(rng: RNG, draft: Draft, source: Source) -> Expect:
    """Other pixels under a hash that the engine knows: the answer belongs to the pixels."""
    picture = rng.choice(draft.pictures)
    other = source.picture(rng, other_than=picture.color)
    picture.fields, picture.color = other.fields, other.color
    return Expect.RIGHT


def one_hash_for_all(rng: RNG, draft: Draft, source: Source) -> Expect:
    """Two contents under one hash, within one request."""
    for picture in draft.pictures:
        picture.hash = draft.pictures[0].hash
    return Expect.RIGHT


def hash_of_another_kind(rng: RNG, draft: Draft, source: Source) -> Expect:
    """A hash that is none."""
    rng.choice(draft.pictures).hash = weird(rng)
    return Expect.RIGHT


# Where it says that it comes from.


def another_fingerprint(rng: RNG, draft: Draft, source: Source) -> Expect:
    """Of another model."""
    draft.fingerprint = rng.choice(["", "x", "0" * 64, "x" * 100_000, 5, [], {}, True])
    return Expect.REFUSED


def no_fingerprint(rng: RNG, draft: Draft, source: Source) -> Expect:
    """As bare vLLM has it."""
    draft.fingerprint = draft.signature = None
    return Expect.RIGHT


def another_signature(rng: RNG, draft: Draft, source: Source) -> Expect:
    """One that does not hold, or is none."""
    draft.signature = rng.choice([bytes(32), rng.randbytes(32), b"", b"x", rng.randbytes(1000), 5, "zz", [], True])
    return Expect.RIGHT


# Sampling params.

FLOATS = ("temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty")
INTEGERS = (
    *("n", "top_k", "seed", "max_tokens", "min_tokens", "logprobs", "prompt_logprobs", "stream_interval"),
    *("thinking_token_budget", "routed_experts_prompt_start", "output_text_buffer_length", "prompt_logprob_start"),
)
OTHERS = (
    *("stop", "stop_token_ids", "bad_words", "ignore_eos", "logit_bias", "allowed_token_ids", "extra_args"),
    *("structured_outputs", "output_kind", "skip_clone", "detokenize", "logprob_token_ids", "flat_logprobs"),
    *("repetition_detection", "trace_decode_token_ids", "prompt_logprob_token_ids", "_eos_token_id", "watermarking"),
)


def not_finite(rng: RNG, draft: Draft, source: Source) -> Expect:
    """NaN or infinity."""
    value = rng.choice([NAN, INFINITY, -INFINITY])
    if rng.random() < 0.3:
        draft.sampling_params["logit_bias"] = {str(rng.randrange(VOCABULARY)): value}
    else:
        draft.sampling_params[rng.choice(FLOATS)] = value
    return Expect.REFUSED


def ids_beyond(rng: RNG, draft: Draft, source: Source) -> Expect:
    """Token ids that the model does not have."""
    token = rng.choice([VOCABULARY, 10**6, 2**31, 2**63, 2**70, -1, -(2**40)])
    name = rng.choice(
        ["stop_token_ids", "allowed_token_ids", "logprob_token_ids", "trace_decode_token_ids", "logit_bias"]
    )
    draft.sampling_params[name] = {str(token): 1.0} if name == "logit_bias" else [1, token]
    return Expect.REFUSED


def sampling_member(rng: RNG, draft: Draft, source: Source) -> Expect:
    """A sampling param is something else."""
    draft.sampling_params[rng.choice([*FLOATS, *INTEGERS, *OTHERS])] = weird(rng)
    return Expect.ANY


def sampling_extremes(rng: RNG, draft: Draft, source: Source) -> Expect:
    """Several at once, each within its range, at the ends of it."""
    params: dict[str, Sequence[Any]] = {
        "temperature": (0, 1e-300, 0.01, 2.0),
        "top_p": (1e-300, 1e-30, 1.0),
        "top_k": (-1, 1, 10**6, 2**31, 2**63 - 1),
        "min_p": (0, 1.0, 1e-300),
        "repetition_penalty": (1e-37, 1e37, 1.0, 1e-300),
        "seed": (-(2**63), 2**63 - 1, 2**64 - 1, -1),
        "logprobs": (0, 20, 21, -1),
        "prompt_logprobs": (0, 20, 21, -1),
        "logit_bias": ({}, {"0": 3e38, "1": -3e38}, {str(token): -100 for token in range(VOCABULARY)}),
        "allowed_token_ids": ([2], [0], list(range(VOCABULARY))),
        "stop_token_ids": (list(range(VOCABULARY)), [0]),
        "min_tokens": (0, 3, 10**9),
        "n": (1, 2, 16, 17),
        "bad_words": ([" "], ["Red"], ["x" * 3000]),
        "stop": (["e"], [""], ["x" * 100_000]),
        "thinking_token_budget": (0, 1, -1, 2**40),
    }
    for name in rng.sample(sorted(params), rng.randrange(2, 6)):
        draft.sampling_params[name] = rng.choice(params[name])
    return Expect.ANY


def no_sampling_params(rng: RNG, draft: Draft, source: Source) -> Expect:
    """Something in their place that is none."""
    draft.sampling_params = rng.choice(
        [None, [], "x", 5, b"", b"{", b"[]", b"\xff", [["temperature", 0]], b"{}{}", True]
    )
    return Expect.REFUSED


MUTATIONS: Mapping[str, Mutation] = {
    mutation.__name__.replace("_", " "): mutation
    for mutation in (
        *(request_member, request_member_gone, unknown_member, side_door, head_member, reasoning_kwargs),
        *(token_out_of_vocabulary, tokens_of_another_kind, prompt_cut, prompt_too_long, placeholder_token_replaced),
        *(stray_tokens, text_changed, placeholder_moved, placeholder_resized, placeholder_of_another_kind),
        *(placeholders_overlap, mask, mask_of_ones, items_swapped, items_reordered, item_dropped, too_many_items),
        *(another_modality, hash_alone, no_item, field_gone, field_added, field_renamed, retyped),
        *(dtype_of_another_kind, converted, reshaped, shape_that_lies, bytes_that_lack, data_of_another_kind),
        *(rows_in_a_list, batched_otherwise, batched_somehow, pixels_changed, metadata_flag, grid_wrong),
        *(grid_wrong_in_metadata, metadata_of_another_kind, grid_turned, hash_of_another, one_hash_for_all),
        *(hash_of_another_kind, another_fingerprint, no_fingerprint, another_signature, not_finite, ids_beyond),
        *(sampling_member, sampling_extremes, no_sampling_params),
    )
}
