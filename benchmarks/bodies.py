"""Bodies for the hop: payloads of an exact size, and the check that one arrived as it was sent.

The check shares no code with the library: it uses Python's own JSON decoder and plain searches.
"""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Mapping

SIZES: Mapping[str, int] = {"1 KB": 1_000, "400 KB": 400_000, "8 MB": 8_000_000, "25 MB": 25_000_000}
"""Bytes of a body, by the name that the tables give it."""

MODEL = "benchmark"
OVERRIDES: Mapping[str, object] = {"seed": 7, "top_p": 0.9}
"""Sampling params that the chat request asks for: one that the rendered ones lack, and one that they have."""

# A 1024×1024 image of Qwen3-VL: 6.29 MB of pixel values, a byte each, 8.39 MB as base64; 1,024 placeholder tokens.
_IMAGE_BASE64_BYTES = 8_390_000
_IMAGE_TOKENS = 1_024
_IMAGE_TOKEN = 151_655
_LEAST_BYTES_WITH_IMAGE = 100_000
_RENDERED_PARAMS = {"temperature": 0.7, "top_p": 0.8, "top_k": 20, "max_tokens": 64, "stop_token_ids": [151_643]}


def chat_request() -> bytes:
    """What a client sends to the router. It is small: the payload made of it is what is measured."""
    document = {
        "model": MODEL,
        "messages": [{"role": "user", "content": "What colour is the picture?"}],
        "sampling_params": OVERRIDES,
    }
    return json.dumps(document).encode()


def payload(size: int) -> bytes:
    """A render response of exactly `size` bytes, its members in vLLM's order.

    It holds as many images as it takes, each with its placeholder tokens; below 100 KB none, and a longer prompt.

    Raises:
        ValueError: `size` is below what the other members take.
    """
    images = -(-size // _IMAGE_BASE64_BYTES) if size >= _LEAST_BYTES_WITH_IMAGE else 0
    tokens = 1 + images * _IMAGE_TOKENS
    left = size - len(_document([""] * images, tokens, pad=0))
    if left < 0:
        raise ValueError(f"a payload has more than {size} bytes")
    if images:
        # Base64 comes in fours; what is left over is padded.
        fours = left // images // 4
        rng = random.Random(0)
        values = [base64.b64encode(rng.randbytes(3 * fours)).decode() for _ in range(images)]
        return _document(values, tokens, pad=left - 4 * fours * images)
    more, pad = divmod(left, len(f",{_IMAGE_TOKEN}"))
    return _document([], tokens + more, pad)


def _document(images: list[str], tokens: int, pad: int) -> bytes:
    numbers = range(len(images))
    features = {
        "mm_hashes": {"image": [f"{number:064x}" for number in numbers]},
        "mm_placeholders": {
            "image": [{"offset": 1 + number * _IMAGE_TOKENS, "length": _IMAGE_TOKENS} for number in numbers]
        },
        "kwargs_data": {"image": images},
        "mm_metadata": None,
    }
    document = {
        "request_id": "chatcmpl-" + "0" * pad,
        "token_ids": [_IMAGE_TOKEN] * tokens,
        "token_offsets": None,
        "features": features if images else None,
        "content_parts": None,
        "sampling_params": _RENDERED_PARAMS,
        "model": MODEL,
        "reasoning_ended": None,
        "reasoning_parser_kwargs": None,
        "return_token_ids": None,
        "output_mode": None,
        "stream": False,
        "stream_options": None,
        "cache_salt": None,
        "priority": 0,
        "kv_transfer_params": None,
        "ec_transfer_params": None,
    }
    return json.dumps(document, separators=(",", ":")).encode()


def differs_in_sampling_params_alone(sent: bytes, received: bytes) -> bool:
    """Whether `received` is `sent` with `OVERRIDES` merged into its sampling params, and every other byte the same."""
    start, end = _sampling_params_span(sent)
    received_start, received_end = _sampling_params_span(received)
    return (
        received[:received_start] == sent[:start]
        and received[received_end:] == sent[end:]
        and json.loads(received[received_start:received_end]) == {**json.loads(sent[start:end]), **OVERRIDES}
    )


def _sampling_params_span(body: bytes) -> tuple[int, int]:
    """Where the value of `sampling_params` is, in a body that holds this name exactly once."""
    name = b'"sampling_params":'
    if body.count(name) != 1:
        raise ValueError("the name of the sampling params is not there exactly once")
    start = body.index(name) + len(name)
    # What follows is ASCII, so that a count of characters is one of bytes.
    _, length = json.JSONDecoder().raw_decode(body[start:].decode("ascii"))
    return start, start + length
