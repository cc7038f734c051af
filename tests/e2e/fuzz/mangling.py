"""The ways in which a payload's bytes are tampered with, once it has been put together."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

from tests.e2e.fuzz.drafts import FRAMES_TYPE, JSON_TYPE
from tests.e2e.fuzz.outcomes import Expect

Mangled = tuple[bytes, str, Expect]
"""The body, its content type, and what may come of it."""

Mangling = Callable[[random.Random, bytes, str], Mangled]

PREAMBLE_BYTES = 32


def cut_off(rng: random.Random, body: bytes, content_type: str) -> Mangled:
    """It ends early."""
    return body[: rng.choice([0, 1, 7, 31, 32, rng.randrange(len(body)), len(body) - 1])], content_type, Expect.REFUSED


def bytes_behind(rng: random.Random, body: bytes, content_type: str) -> Mangled:
    """More behind its end."""
    return body + rng.choice([b"x", b"\0" * 16, body]), content_type, Expect.REFUSED


def bits_flipped(rng: random.Random, body: bytes, content_type: str) -> Mangled:
    """Some bits, most of them near the beginning or the end, where what is not pixels is."""
    data = bytearray(body)
    for _ in range(rng.choice([1, 1, 3, 20])):
        near = rng.choice([min(400, len(data)), len(data)])
        at = rng.randrange(near)
        data[at if rng.random() < 0.7 else -1 - at] ^= 1 << rng.randrange(8)
    return bytes(data), content_type, Expect.ANY


def piece_moved(rng: random.Random, body: bytes, content_type: str) -> Mangled:
    """Bytes taken out, put in twice, or replaced."""
    begin = rng.randrange(len(body))
    end = min(len(body), begin + rng.choice([1, 4, 16, 1000]))
    piece = rng.choice([b"", body[begin:end] * 2, rng.randbytes(end - begin)])
    return body[:begin] + piece + body[end:], content_type, Expect.ANY


def preamble_changed(rng: random.Random, body: bytes, content_type: str) -> Mangled:
    """A number of a frame's preamble; the first bytes of JSON."""
    at, size = rng.choice([(0, 8), (8, 2), (10, 2), (12, 2), (14, 2), (16, 4), (20, 4), (24, 8)])
    value = rng.choice([bytes(size), b"\xff" * size, rng.randbytes(size), (1).to_bytes(size, "little")])
    return body[:at] + value + body[at + size :], content_type, Expect.ANY


def garbage(rng: random.Random, body: bytes, content_type: str) -> Mangled:
    """Nothing that could be a payload."""
    bodies = [
        b"",
        b"{}",
        b"[]",
        b"null",
        b"\0" * 100,
        rng.randbytes(1000),
        b"[" * 100_000,
        b'{"a":' * 5000,
        b"\x89RGPAY",
    ]
    return rng.choice(bodies), content_type, Expect.REFUSED


def another_type(rng: random.Random, body: bytes, content_type: str) -> Mangled:
    """Said to be in the other encoding, or in one that there is not."""
    other = FRAMES_TYPE if content_type == JSON_TYPE else JSON_TYPE
    types = [other, "text/plain", "", "application/vnd.rendergen.payload.v2", "application/msgpack"]
    return body, rng.choice(types), Expect.REFUSED


def member_twice(rng: random.Random, body: bytes, content_type: str) -> Mangled:
    """A member of JSON given twice; for frames, of the sampling params."""
    twin = rng.choice(
        [b'"temperature":2}', b'"token_ids":[1]}', b'"features":null}', b'"sampling_params":{}}', b'"model":"x"}']
    )
    if content_type == JSON_TYPE:
        return body[:-1] + b"," + twin, content_type, Expect.ANY
    at = body.rindex(b"{")
    params = body[at:-1] + b"," + twin
    return body[: at - 4] + len(params).to_bytes(4, "little") + params, content_type, Expect.ANY


MANGLINGS: Mapping[str, Mangling] = {
    mangling.__name__.replace("_", " "): mangling
    for mangling in (
        *(cut_off, bytes_behind, bits_flipped, piece_moved, preamble_changed, garbage, another_type, member_twice),
    )
}
