"""What goes with a payload to say where it comes from: the render server's fingerprint, and a signature."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from rendergen.vllm_plugin.codec import json_masks
from rendergen.vllm_plugin.errors import BadPayload
from rendergen.vllm_plugin.items import Item
from rendergen.vllm_plugin.trust.digest import Statement, item_digest, signature
from rendergen.vllm_plugin.trust.keys import Keys

MEMBER = "rendergen"
"""The member of a JSON payload that holds it; bare vLLM ignores it."""


@dataclass(frozen=True, slots=True)
class Attestation:
    """Where a payload says that it comes from.

    Attributes:
        fingerprint: the render server's; None for a payload of bare vLLM's.
        signature: 32 bytes; None where no key was configured.
    """

    fingerprint: str | None
    signature: bytes | None

    @classmethod
    def read(cls, member: Any) -> tuple[Self, Any]:
        """Of a JSON payload's member, or None where it has none; and the `is_embed` masks that are in it.

        Raises:
            BadPayload: it is no such member.
        """
        if member is None:
            return cls(None, None), None
        if not isinstance(member, dict):
            raise BadPayload(f"{MEMBER} is no object.")
        fingerprint, signed = member.get("fingerprint"), member.get("signature")
        try:
            if not isinstance(fingerprint, str | None):
                raise TypeError
            return cls(fingerprint, None if signed is None else bytes.fromhex(signed)), member.get("is_embed")
        except (TypeError, ValueError) as error:
            raise BadPayload(f"{MEMBER} holds no fingerprint and signature.") from error

    def member(self, items: Sequence[Item]) -> dict[str, Any]:
        """As a member of a JSON payload, with what vLLM's JSON has no place for."""
        return {
            "fingerprint": self.fingerprint,
            "signature": None if self.signature is None else self.signature.hex(),
            "is_embed": json_masks(items),
        }


@dataclass(frozen=True, slots=True)
class Attestor:
    """Makes attestations.

    Attributes:
        fingerprint: this server's.
        keys: with the first of which it signs; it does not where there are none.
    """

    fingerprint: str
    keys: Keys

    def attest(self, token_ids: bytes, items: Sequence[Item]) -> Attestation:
        """For a payload of this server's. Megabytes are read where it signs: not for an event loop."""
        if not self.keys:
            return Attestation(self.fingerprint, None)
        digests = [None if item.fields is None else item_digest(item.fields) for item in items]
        statement = Statement(self.fingerprint, token_ids, items, digests)
        return Attestation(self.fingerprint, signature(statement, self.keys.accepted[0]))
