"""Chat requests in pairs, alike but for what keeps a cache that has seen one from answering the other."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Sequence
from typing import Any

from PIL import Image

from benchmarks.latency_tables import Cell
from benchmarks.split import Pictures
from rendergen.tiny_model import TINY_MODEL_NAME

TOKENS = 32
"""Of each answer."""

_QUESTION = "Count to 50"

_BASES = 4
_MARK_BITS = 24
_MARK_PX = 16  # a block of a JPEG whose colour has half the resolution: one cannot blur the next


class MarkedPictures:
    """Images like those of the other benchmarks, alike but for a number written in the first rows of pixels."""

    def __init__(self, side_px: int) -> None:
        """Args: side_px: width and height, at least 384."""
        pictures = Pictures(seed=0)
        self._bases = [_decoded(pictures.data_url(side_px, side_px)) for _ in range(_BASES)]

    def data_url(self, base: int, number: int) -> str:
        """One of them, whose JPEG no other number has.

        Args:
            base: the picture, any number; a few of them take turns.
            number: below 2 ** 24.
        """
        image = self._bases[base % len(self._bases)].copy()
        for bit in range(_MARK_BITS):
            color = (255, 255, 255) if number >> bit & 1 else (0, 0, 0)
            image.paste(color, (_MARK_PX * bit, 0, _MARK_PX * (bit + 1), _MARK_PX))
        buffer = io.BytesIO()
        image.save(buffer, "JPEG", quality=90)
        return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode()


def _decoded(data_url: str) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(data_url.partition(",")[2]))).convert("RGB")


class Twins:
    """Makes requests in pairs of the same work, of which no cache that has seen one answers the other.

    Args:
        pictures: where their images are from.
        spoken: the tokens that answers are made of.
    """

    def __init__(self, pictures: MarkedPictures, spoken: Sequence[int]) -> None:
        self._pictures = pictures
        self._spoken = list(spoken)
        self._made = 0

    def pairs(self, cell: Cell, count: int) -> tuple[list[bytes], list[bytes]]:
        """``count`` requests for each of the two sides."""
        pairs = [(self._request(cell, pair), self._request(cell, pair)) for pair in range(count)]
        return [one for one, _ in pairs], [other for _, other in pairs]

    def _request(self, cell: Cell, pair: int) -> bytes:
        content: list[dict[str, Any]] = [
            {"type": "image_url", "image_url": {"url": self._pictures.data_url(pair + place, self._next())}}
            for place in range(cell.images)
        ]
        content.append({"type": "text", "text": _QUESTION})
        body = {
            "model": TINY_MODEL_NAME,
            "messages": [{"role": "user", "content": content}],
            "temperature": 0,
            "max_tokens": TOKENS,
            "ignore_eos": True,
            "allowed_token_ids": self._spoken,
            "cache_salt": f"request {self._next()}",
        }
        if cell.streamed:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        return json.dumps(body).encode()

    def _next(self) -> int:
        self._made += 1
        return self._made
