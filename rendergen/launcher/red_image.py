"""A PNG of red pixels, for examples that need no image file and no imaging library."""

from __future__ import annotations

import base64
import struct
import zlib

__all__ = ["red_png", "red_png_data_url"]

_RED = bytes((230, 25, 30))


def red_png(side: int) -> bytes:
    """A square PNG, 8 bits RGB, `side` pixels wide and high."""
    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    rows = (b"\x00" + _RED * side) * side
    return (
        b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", zlib.compress(rows, 9)) + _chunk(b"IEND", b"")
    )


def red_png_data_url(side: int) -> str:
    return "data:image/png;base64," + base64.b64encode(red_png(side)).decode()


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
