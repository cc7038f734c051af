"""The pictures the tiny model was trained on and is measured with: one solid colour, any size, PNG or JPEG.

Shades and side lengths are parted into a training split and a held-out split. The parting is fixed and depends on
nothing but the number itself, so the measure can never use a shade or a side length that training has seen.
"""

import base64
import enum
import io
import math
import random
import zlib
from dataclasses import dataclass

from PIL import Image

Rgb = tuple[int, int, int]
"""Red, green and blue, each 0 to 255."""

MIN_SIDE = 32
MAX_SIDE = 1024
"""The range of image sides in pixels for which the model is trained and measured."""

COLORS: dict[str, tuple[Rgb, ...]] = {
    "red": ((255, 0, 0), (225, 25, 30)),
    "green": ((0, 128, 0), (0, 255, 0), (30, 140, 50)),
    "blue": ((0, 0, 255), (30, 60, 220)),
    "yellow": ((255, 255, 0), (250, 225, 40)),
    "white": ((255, 255, 255), (245, 245, 245)),
    "black": ((0, 0, 0), (15, 15, 15)),
    "orange": ((255, 165, 0), (245, 130, 30)),
    "purple": ((128, 0, 128), (130, 40, 160)),
    "gray": ((128, 128, 128), (105, 105, 105), (160, 160, 160)),
    "pink": ((255, 192, 203), (250, 160, 190)),
    "brown": ((165, 42, 42), (110, 65, 30), (139, 69, 19)),
    "cyan": ((0, 255, 255), (60, 210, 220)),
}
"""The twelve colours by their anchors. The first anchor is the colour's pure value, the one CSS and Pillow give the
name. The shades of a colour are the points between its anchors, each channel moved by at most `JITTER`."""

JITTER = 8
"""How far a shade may lie from the line between its colour's anchors, per channel, of 255."""

HELD_OUT_SIDES = (
    *(32, 50, 64, 96, 100, 128, 150, 200, 224, 256, 300),
    *(333, 400, 448, 512, 600, 640, 768, 800, 900, 1000, 1024),
)
"""Image sides in pixels that no picture of the training split has."""

_CELL = 8
_HELD_OUT_PERCENT = 20


class Split(enum.Enum):
    """Which part of the shades and sides a picture is drawn from."""

    TRAINING = "training"
    HELD_OUT = "held out"


def split_of_shade(rgb: Rgb) -> Split:
    """Say to which split a shade belongs: cells of 8×8×8 values are held out whole, or not at all."""
    cell = bytes(channel // _CELL for channel in rgb)
    return Split.HELD_OUT if zlib.crc32(cell) % 100 < _HELD_OUT_PERCENT else Split.TRAINING


def split_of_side(side: int) -> Split:
    """Say to which split an image side, in pixels, belongs."""
    return Split.HELD_OUT if side in HELD_OUT_SIDES else Split.TRAINING


@dataclass(frozen=True, slots=True)
class Picture:
    """A solid picture and how it is encoded.

    `color` is one of `COLORS`, `width` and `height` are pixels, `image_format` is `png` or `jpeg`, and `quality` is
    JPEG's, 1 to 95 (PNG has none).
    """

    color: str
    rgb: Rgb
    width: int
    height: int
    image_format: str = "png"
    quality: int = 90

    def encode(self) -> bytes:
        """Return the file's bytes."""
        buffer = io.BytesIO()
        image = Image.new("RGB", (self.width, self.height), self.rgb)
        if self.image_format == "jpeg":
            image.save(buffer, "JPEG", quality=self.quality)
        else:
            image.save(buffer, "PNG")
        return buffer.getvalue()

    def data_url(self) -> str:
        """Return the file as a `data:` URL, the form in which a chat request carries it."""
        return f"data:image/{self.image_format};base64,{base64.b64encode(self.encode()).decode()}"


def pure_picture(color: str, side: int = 224) -> Picture:
    """Return a square PNG of the colour's pure value, such as (255, 0, 0) for red."""
    return Picture(color, COLORS[color][0], side, side)


def random_picture(
    rng: random.Random,
    split: Split = Split.HELD_OUT,
    *,
    min_side: int = MIN_SIDE,
    max_side: int = MAX_SIDE,
    color: str | None = None,
) -> Picture:
    """Draw a picture of the split: a shade, a width and a height (pixels, small ones as likely as large), a format."""
    color = color or rng.choice(list(COLORS))
    return Picture(
        color=color,
        rgb=_random_shade(rng, color, split),
        width=_random_side(rng, split, min_side, max_side),
        height=_random_side(rng, split, min_side, max_side),
        image_format=rng.choice(("png", "jpeg")),
        quality=rng.randint(75, 95),
    )


def _random_shade(rng: random.Random, color: str, split: Split) -> Rgb:
    anchors = COLORS[color]
    while True:
        weights = [rng.expovariate(1.0) for _ in anchors]
        if rng.random() < 0.3:
            weights = [float(index == 0) for index in range(len(anchors))]
        total = sum(weights)
        red, green, blue = (
            round(sum(w * anchor[i] for w, anchor in zip(weights, anchors, strict=True)) / total) for i in range(3)
        )
        shade = (_jittered(rng, red), _jittered(rng, green), _jittered(rng, blue))
        if split_of_shade(shade) is split:
            return shade


def _jittered(rng: random.Random, channel: int) -> int:
    return min(255, max(0, channel + rng.randint(-JITTER, JITTER)))


def _random_side(rng: random.Random, split: Split, low: int, high: int) -> int:
    if split is Split.HELD_OUT:
        return rng.choice([side for side in HELD_OUT_SIDES if low <= side <= high])
    while True:
        side = round(math.exp(rng.uniform(math.log(low), math.log(high))))
        if split_of_side(side) is Split.TRAINING:
            return side
