"""How large a document may be in the respects that cost the reader memory or time."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """What one document may hold. The size of a value has no limit: values are passed over, not kept.

    The defaults are far above what vLLM renders: 17 members, depth 6.
    """

    depth: int = 512
    """Lists and objects inside one another, not counting the top level."""

    members: int = 1024
    """Members of the top-level object, or elements of the top-level list."""

    key_bytes: int = 1024
    """Bytes of one top-level key as written, without its quotes."""

    scalar_bytes: int = 8192
    """Bytes of one top-level number or literal. Python's `json` refuses integers above 4,300 digits."""


DEFAULT_LIMITS = Limits()
