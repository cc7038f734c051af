"""Hypothesis strategies for JSON documents, in all the ways they can be written, and for cutting them in chunks."""

from __future__ import annotations

import json
from random import Random

from hypothesis import settings
from hypothesis import strategies as st

# Every run tries the same examples, and no machine is too slow for them.
repeatable = settings(derandomize=True, deadline=None, max_examples=100)

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]

# What could confuse a reader of raw bytes, and everything else, lone surrogates included.
_characters = st.one_of(st.sampled_from('"\\[]{},:/ \n\x00u0é한😀'), st.characters())
texts = st.text(_characters, max_size=12)
names = st.one_of(texts, st.sampled_from(["sampling_params", "token_ids", "max_tokens", "seed", "features"]))
scalars: st.SearchStrategy[Json] = st.one_of(
    st.none(), st.booleans(), st.integers(), st.integers(-(10**40), 10**40), st.floats(), texts
)
values: st.SearchStrategy[Json] = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=5), st.dictionaries(names, inner, max_size=4)),
    max_leaves=12,
)
objects = st.dictionaries(names, values, max_size=6)
randoms = st.randoms(use_true_random=False)


def space(rng: Random) -> str:
    """Whitespace, mostly none."""
    return "".join(rng.choices(" \t\n\r", k=rng.choice([0, 0, 0, 1, 2])))


def write_text(text: str, rng: Random) -> str:
    """`text` as a JSON string, each character escaped or not at random, where JSON leaves the choice."""
    written = []
    for char in text:
        ways = [json.dumps(char)[1:-1], json.dumps(char, ensure_ascii=False)[1:-1]]
        if ord(char) < 0x10000:
            ways.append(f"\\u{ord(char):04X}")
        written.append(rng.choice(ways))
    return '"' + "".join(written) + '"'


def write(value: Json, rng: Random) -> str:
    """`value` as JSON, with random whitespace and escapes."""
    match value:
        case str():
            return write_text(value, rng)
        case list():
            inner = ",".join(space(rng) + write(item, rng) + space(rng) for item in value)
            return f"[{inner or space(rng)}]"
        case dict():
            members = (
                space(rng) + write_text(name, rng) + space(rng) + ":" + space(rng) + write(item, rng) + space(rng)
                for name, item in value.items()
            )
            return "{" + (",".join(members) or space(rng)) + "}"
        case _:
            return json.dumps(value)


def encode(value: Json, rng: Random) -> bytes:
    """`value` as a whole document."""
    return (space(rng) + write(value, rng) + space(rng)).encode("utf-8", "surrogatepass")


small_documents = st.builds(encode, objects, randoms)


def grow(rng: Random, depth: int = 0) -> Json:
    """A random value that is often long: long strings, runs of escapes, many small values, deep nesting."""
    size = rng.choice([1, 3, 20, 70, 300])
    match rng.randrange(9 if depth < 6 else 5):
        case 0:
            return "x" * size * rng.randrange(30)
        case 1:
            return "".join(rng.choices('\\"', k=size))
        case 2:
            return "".join(rng.choices('ab\\"]}[{', k=size))
        case 3:
            return rng.choice([None, True, 12345678, -1.5e-7, ""])
        case 4:
            return [rng.choice(["", [], {}, 0, '"', "\\", [[]]]) for _ in range(size)]
        case 5 | 6:
            return [grow(rng, depth + 1) for _ in range(rng.randrange(6))]
        case _:
            return {f"k{n}": grow(rng, depth + 1) for n in range(rng.randrange(6))}


def grown_document(rng: Random) -> bytes:
    """A document of some kilobytes, so that values cross the windows they are read in."""
    names = rng.sample(["a", 'b"', "\\", "sampling_params", "token_ids", "é"], rng.randrange(1, 6))
    return encode({name: grow(rng) for name in names}, rng)


documents = st.one_of(small_documents, st.builds(grown_document, st.builds(Random, st.integers(0, 2**32))))


def cut(data: bytes, rng: Random) -> list[bytes]:
    """`data` in chunks of random sizes: byte by byte, or some large and some small, or whole."""
    largest = rng.choice([1, 3, 40, 1_000, len(data) + 1])
    chunks, start = [], 0
    while start < len(data):
        stop = start + rng.randint(1, largest)
        chunks.append(data[start:stop])
        start = stop
    return chunks


def one_by_one(data: bytes) -> list[bytes]:
    """`data` in chunks of one byte."""
    return [data[n : n + 1] for n in range(len(data))]
