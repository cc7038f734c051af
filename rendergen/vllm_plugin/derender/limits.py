"""What one derender stream may take."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class DerenderLimits:
    """Bounds of one stream. Tokens are bounded beside these by the model's context length."""

    context_bytes: int = 64 * MIB
    """The first line, in bytes. Whoever leaves media in the request needs room for it."""

    event_bytes: int = 8 * MIB
    """One event of generate's stream, in bytes; log probabilities of many candidates are long."""

    answer_bytes: int = 64 * MIB
    """Generate's answer where it was not streamed, in bytes."""

    events: int = 1_000_000
    """Events of one stream, those without a choice included."""

    choices: int = 128
    """Choices of one request, its `n`."""

    silence_s: float = 600.0
    """Longest wait for the next bytes of the body, and for the caller to take the next bytes of the answer, in s."""
