"""Image files that are broken, mislabelled or of odd kinds, made here rather than kept as files."""

from __future__ import annotations

import struct
import zlib

from PIL import Image

from tests.e2e.calls import encoded, noise, solid

HTML = b"<!doctype html><html><body>404 Not Found</body></html>"
SVG = b'<svg xmlns="http://www.w3.org/2000/svg" width="64" height="64"><rect width="64" height="64" fill="red"/></svg>'

_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def cut(data: bytes, share: float = 0.6) -> bytes:
    """The first ``share`` of the file."""
    return data[: int(len(data) * share)]


def bomb(width: int = 20000, height: int = 9000) -> bytes:
    """A PNG of 90 bytes whose header claims 180 million pixels."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = zlib.compress(bytes(64))
    return _PNG_SIGNATURE + _chunk(b"IHDR", header) + _chunk(b"IDAT", data) + _chunk(b"IEND", b"")


def png_with_broken_chunk() -> bytes:
    """A PNG whose pixel data go on in a chunk that has no valid name: Pillow fails on it with a SyntaxError."""
    data = zlib.compress(b"".join(bytes(1) + bytes((230, 25, 30)) * 64 for _ in range(64)), 0)
    header = struct.pack(">IIBBBBB", 64, 64, 8, 2, 0, 0, 0)
    return _PNG_SIGNATURE + _chunk(b"IHDR", header) + _chunk(b"IDAT", data[:1000]) + _chunk(b"\0\0IE", data[1000:])


def unsupported_dds() -> bytes:
    """A DDS texture of a format that Pillow does not know: it fails with a NotImplementedError."""
    head = struct.pack("<7I", 124, 0x1007, 64, 64, 0, 0, 0) + bytes(44)
    pixel_format = struct.pack("<II", 32, 0x4) + b"ZZZZ" + bytes(20)
    return b"DDS " + head + pixel_format + struct.pack("<5I", 0x1000, 0, 0, 0, 0) + bytes(4096)


def broken_avif() -> bytes:
    """An AVIF file that ends within its pixels: Pillow fails with an error of its decoder's."""
    return cut(encoded(noise(64, 3), "AVIF"))


def palette_with_transparency() -> bytes:
    """A palette image with one colour, red, and half of it transparent."""
    image = solid().convert("P", palette=Image.Palette.ADAPTIVE, colors=2)
    return encoded(image, "PNG", transparency=bytes([255] * 256))


def animation(kind: str) -> bytes:
    """Red for a frame, then blue."""
    blue = solid((0, 0, 255))
    return encoded(solid(), kind, save_all=True, append_images=[blue, blue], duration=100)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
