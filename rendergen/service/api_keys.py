"""API keys of callers: how they are made, and the file that says which are good.

The file has one key a line, ``NAME sha256:HEX``; lines that begin with ``#`` and blank ones do not count. A name may
have several keys, so that one can be replaced while both are good. What the file holds is not the key but its SHA-256:
a fast hash is right here, because keys are 256 random bits, made by :func:`new_key`. Slow hashes are for passwords,
which can be guessed.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from rendergen.service.watched_file import BadFile

# Says what the string is, to people and to programs that look for leaked secrets.
PREFIX = "rendergen-"
KEY_BYTES = 32

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_HASH = re.compile(r"sha256:([0-9A-Fa-f]{64})")
_SPACE = " \t\r"


def new_key() -> str:
    """A key that nobody has."""
    return PREFIX + secrets.token_urlsafe(KEY_BYTES)


def key_name(text: str) -> str:
    """``text``, which has to be a name that a key can have.

    Raises:
        ValueError: it cannot.
    """
    if not _NAME.fullmatch(text):
        raise ValueError("a key's name has 1 to 64 letters, digits, dots, dashes and underscores, no dash or dot first")
    return text


def key_line(name: str, key: str) -> str:
    """The file's line for ``key``."""
    return f"{key_name(name)} sha256:{_digest(key).hex()}"


@dataclass(frozen=True, slots=True, repr=False)
class ApiKeys:
    """The keys that are good.

    Attributes:
        names: whose key it is, by the key's SHA-256.
    """

    names: Mapping[bytes, str]

    @classmethod
    def read(cls, content: bytes) -> Self:
        """The keys of a file with ``content``, at least one.

        Raises:
            BadFile: it holds what is no key, or none. The message names the line and never quotes it: somebody may have
                put the key itself there.
        """
        names: dict[bytes, str] = {}
        # Comments may be in any encoding.
        lines = content.removeprefix(b"\xef\xbb\xbf").decode("latin-1").split("\n")
        for number, line in enumerate(lines, start=1):
            words = line.strip(_SPACE)
            if not words or words.startswith("#"):
                continue
            name, digest = _entry(words, number)
            if digest in names:
                raise BadFile(f"line {number} has a key that is there already")
            names[digest] = name
        if not names:
            raise BadFile("it holds no key; `rendergen keys new NAME` makes one")
        return cls(names)

    def name_of(self, key: str) -> str | None:
        """Whose key it is; None for a key that is not good.

        The time it takes tells nothing of use: what is compared is the SHA-256 of what the caller sent, and how much of
        that agrees with a good key's is not his to choose.
        """
        return self.names.get(_digest(key))

    def __len__(self) -> int:
        return len(self.names)


def _entry(words: str, number: int) -> tuple[str, bytes]:
    name, *rest = words.split()
    found = _HASH.fullmatch(rest[0]) if len(rest) == 1 else None
    if found is None:
        raise BadFile(f"line {number} is not `NAME sha256:HEX`, as `rendergen keys new NAME` prints it")
    try:
        return key_name(name), bytes.fromhex(found[1])
    except ValueError as error:
        raise BadFile(f"line {number}: {error}") from error


def _digest(key: str) -> bytes:
    # Headers that are no UTF-8 come with their bytes escaped so; they are no key of anyone's, and no failure either.
    return hashlib.sha256(key.encode(errors="surrogateescape")).digest()
