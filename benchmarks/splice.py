"""What looking at a payload and setting its sampling params costs, against `json.loads` of it.

Run `python -m benchmarks.splice`. The payload is shaped as vLLM renders one, and 16 MB large: a few thousand token
ids, two images of base64 in `features.kwargs_data`, and the small members after them.
"""

from __future__ import annotations

import base64
import json
import random
import statistics
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from rendergen.payload import (
    MemberScanner,
    PayloadError,
    SamplingParamsEdit,
    SamplingParamsSplicer,
    index_members,
    splice_sampling_params,
)

KIB = 1024
REPEATS = 25
ADVERSARIAL_REPEATS = 7
TARGET = 20
ADVERSARIAL_BYTES = 64 * KIB
EDIT = SamplingParamsEdit({"seed": b"7"}, default_max_tokens=16)


def payload(image_bytes: int = 6_000_000, images: int = 2, tokens: int = 4_000) -> bytes:
    """A render response with `images` tensors of `image_bytes` random bytes each, before base64."""
    rng = random.Random(0)
    tensors = [base64.b64encode(rng.randbytes(image_bytes)).decode() for _ in range(images)]
    document = {
        "request_id": "chatcmpl-benchmark",
        "token_ids": [rng.randrange(150_000) for _ in range(tokens)],
        "token_offsets": None,
        "features": {
            "mm_hashes": {"image": [rng.randbytes(32).hex() for _ in range(images)]},
            "mm_placeholders": {"image": [{"offset": 8 + 1_032 * n, "length": 1_024} for n in range(images)]},
            "kwargs_data": {"image": tensors},
            "mm_metadata": None,
        },
        "content_parts": None,
        "sampling_params": {"temperature": 0.7, "top_p": 0.8, "top_k": 20, "stop_token_ids": [151_643], "seed": 1},
        "model": "model",
        "stream": False,
        "stream_options": None,
        "cache_salt": None,
        "priority": 0,
        "kv_transfer_params": None,
    }
    return json.dumps(document, separators=(",", ":")).encode()


def cut(data: bytes, size: int) -> list[bytes]:
    """`data` in chunks of `size` bytes, as a socket would give it."""
    return [data[start : start + size] for start in range(0, len(data), size)]


def scan(chunks: list[bytes]) -> None:
    """The incremental index."""
    scanner = MemberScanner()
    for chunk in chunks:
        scanner.feed(chunk)
    scanner.finish()


def splice(chunks: list[bytes]) -> None:
    """The incremental splice, token ids captured."""
    splicer = SamplingParamsSplicer(EDIT, capture=("request_id", "token_ids"))
    for chunk in chunks:
        splicer.feed(chunk)
    splicer.finish()


@dataclass(frozen=True, slots=True)
class Case:
    """One action on one input, given to it as a list of byte strings."""

    name: str
    chunks: list[bytes]
    action: Callable[[list[bytes]], object]


def medians(cases: list[Case], repeats: int) -> dict[str, float]:
    """Milliseconds of each case: the median over rounds in which each runs once."""
    taken: dict[str, list[float]] = {case.name: [] for case in cases}
    for _ in range(repeats):
        for case in cases:
            # Bytes that have just arrived are in the cache: no case pays for what the one before it evicted.
            for chunk in case.chunks:
                chunk.find(b"\0")
            started = time.perf_counter()
            case.action(case.chunks)
            taken[case.name].append((time.perf_counter() - started) * 1e3)
    return {name: statistics.median(times) for name, times in taken.items()}


def adversarial() -> dict[str, bytes]:
    """Chunks made to cost the most for each byte, each inside the value of an open member."""
    seed = random.Random(0)
    random_nesting, depth = bytearray(), 0
    while len(random_nesting) < ADVERSARIAL_BYTES:
        down = depth < 500 and (depth == 0 or seed.random() < 0.5)
        random_nesting += b"[" if down else b"]"
        depth += 1 if down else -1
    patterns = {
        "[[[[": b"[",
        "[],[],[]": b"[],",
        "[][][]": b"[]",
        "[[]][[]]": b"[[]]",
        "500 deep": b"[" * 500 + b"]" * 500,
        "{}[]{}": b"{}[]",
        '"","",""': b'"",',
        '""""': b'""',
        r'"\""': rb'"\"",',
        '[""][""]': b'[""]',
        '["\\""]': rb'["\""]',
        "spaces": b" ",
        "digits": b"1,",
        "random nesting": bytes(random_nesting),
    }
    chunks = {f"list: {name}": fill(b'{"k":[', pattern) for name, pattern in patterns.items()}
    chunks |= {
        r"string: \"\"\"": fill(b'{"k":"', b'\\"'),
        r"string: \\\\": fill(b'{"k":"', b"\\"),
        r"string: a…a\"": fill(b'{"k":"', b"a" * 300 + b'\\"'),
        "top level: spaces": fill(b'{"k":', b" "),
        "top level: 1,024 small members": members(b"[]"),
        "top level: 1,024 strings with escapes": members(rb'"\"\\"'),
        "top level: 1,024 numbers": members(b"0"),
        "top level: 100 lists": members(b"[" + b"[]" * 320 + b"]", 100),
        "top level: 4 lists": members(b"[" + b"[]" * 8_000 + b"]", 4),
    }
    return chunks


def fill(start: bytes, pattern: bytes) -> bytes:
    """`start` and then `pattern` again and again, up to the size of an adversarial chunk."""
    return (start + pattern * (ADVERSARIAL_BYTES // len(pattern) + 1))[:ADVERSARIAL_BYTES]


def members(value: bytes, count: int = 1_024) -> bytes:
    """The start of an object of `count` members of one value."""
    return b"{" + b",".join(b'"%d":%b' % (number, value) for number in range(count))


def scan_first(chunks: list[bytes]) -> None:
    """The incremental index of a document's first chunk, for which being refused is an answer too."""
    with suppress(PayloadError):
        MemberScanner().feed(chunks[0])


def run() -> None:
    """Print both tables."""
    data = payload()
    whole = [data]
    cases = [
        Case("json.loads", whole, lambda chunks: json.loads(chunks[0])),
        Case("index_members, whole", whole, lambda chunks: index_members(chunks[0])),
        Case("index_members, whole, memoryview", whole, lambda chunks: index_members(memoryview(chunks[0]))),
        *(Case(f"MemberScanner, chunks of {size} KiB", cut(data, size * KIB), scan) for size in (64, 256, 1024)),
        Case("SamplingParamsSplicer, chunks of 256 KiB", cut(data, 256 * KIB), splice),
        Case("splice_sampling_params, whole", whole, lambda chunks: splice_sampling_params(chunks[0], EDIT)),
        Case("memcpy", whole, lambda chunks: bytearray(chunks[0])),
    ]
    taken = medians(cases, REPEATS)
    loads, index = taken["json.loads"], taken["index_members, whole"]
    print(f"payload of {len(data) / 1e6:.1f} MB, median of {REPEATS} interleaved repeats")
    print(f"{'':44}{'ms':>8}  of json.loads")
    for name, milliseconds in taken.items():
        print(f"{name:44}{milliseconds:8.3f}  1/{loads / milliseconds:.1f}")
    print(f"index ≤ 1/{TARGET} of json.loads: {'met' if index * TARGET <= loads else 'missed'}")

    worst = medians([Case(name, [chunk], scan_first) for name, chunk in adversarial().items()], ADVERSARIAL_REPEATS)
    print(f"\nadversarial chunks of up to {ADVERSARIAL_BYTES // KIB} KiB, ms for one")
    for name, milliseconds in sorted(worst.items(), key=lambda item: -item[1]):
        print(f"{name:44}{milliseconds:8.3f}")


if __name__ == "__main__":
    run()
