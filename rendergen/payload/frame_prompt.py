"""The prompt of a payload in frames, out of its head. The format: docs/payload-format.md."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import msgpack

from rendergen.payload.frames import TOKEN_BYTES, MalformedFrames


@dataclass(frozen=True, slots=True)
class TokenIds:
    """A prompt.

    Attributes:
        raw: its token ids, a little-endian u32 each.
    """

    raw: bytes

    def __len__(self) -> int:
        return len(self.raw) // TOKEN_BYTES

    def last(self, count: int) -> tuple[int, ...]:
        """The last `count` of them, or all if there are no more."""
        tail = self.raw[-TOKEN_BYTES * count :] if count else b""
        return struct.unpack(f"<{len(tail) // TOKEN_BYTES}I", tail)


@dataclass(frozen=True, slots=True)
class Placeholder:
    """Where an item's tokens are in the prompt.

    Attributes:
        modality: `image`, `video`, `audio`.
        offset: the first of them.
        length: how many there are.
    """

    modality: str
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class PromptOutline:
    """What a payload's head says of its prompt.

    Attributes:
        token_ids: the prompt.
        placeholders: where its items are.
    """

    token_ids: TokenIds
    placeholders: tuple[Placeholder, ...]


_OF_PLACEHOLDER = frozenset({"modality", "offset", "length"})


def read_prompt(head: bytes) -> PromptOutline:
    """The prompt, out of a payload's head; all else in the head is passed over.

    Takes some milliseconds a megabyte of what is passed over.

    Raises `MalformedFrames` if the head is no map, or has no such members.
    """
    # Lists and maps among the keys, each a hundred times its size in memory, are refused before they are made.
    unpacker = msgpack.Unpacker(max_buffer_size=len(head), max_array_len=0, max_map_len=0)
    unpacker.feed(head)
    token_ids: object = None
    items: list[dict[str, object]] = []
    try:
        for _ in range(unpacker.read_map_header()):
            match unpacker.unpack():
                case "token_ids":
                    token_ids = unpacker.unpack()
                case "items":
                    items = [_read_item(unpacker) for _ in range(unpacker.read_array_header())]
                case _:
                    unpacker.skip()
    except (ValueError, msgpack.UnpackException) as error:
        raise MalformedFrames("the head is no msgpack map") from error
    if not isinstance(token_ids, bytes) or len(token_ids) % TOKEN_BYTES:
        raise MalformedFrames("the head has no token_ids that are u32")
    return PromptOutline(TokenIds(token_ids), tuple(_placeholder(item) for item in items))


def _read_item(unpacker: msgpack.Unpacker) -> dict[str, object]:
    """The members of one item that say where it is."""
    found: dict[str, object] = {}
    for _ in range(unpacker.read_map_header()):
        name = unpacker.unpack()
        if name in _OF_PLACEHOLDER:
            found[name] = unpacker.unpack()
        else:
            unpacker.skip()
    return found


def _placeholder(item: dict[str, object]) -> Placeholder:
    modality, offset, length = (item.get(name) for name in ("modality", "offset", "length"))
    if not isinstance(modality, str) or not isinstance(offset, int) or not isinstance(length, int):
        raise MalformedFrames("an item of the head does not say where it is in the prompt")
    return Placeholder(modality, offset, length)
