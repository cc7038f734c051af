"""Everything that a payload must pass before the engine sees it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import blake3
import numpy as np
from vllm.entrypoints.scale_out.token_in_token_out.protocol import GenerateRequest
from vllm.multimodal.inputs import MultiModalKwargsItem

from rendergen.vllm_plugin.attestation import Attestation
from rendergen.vllm_plugin.errors import BadPayload, FeaturesMissing, NotSigned, OtherFingerprint
from rendergen.vllm_plugin.items import Item
from rendergen.vllm_plugin.trust.digest import Statement, holds, item_digest
from rendergen.vllm_plugin.trust.geometry import Geometry
from rendergen.vllm_plugin.trust.keys import Keys
from rendergen.vllm_plugin.trust.sampling import check_sampling_params
from rendergen.vllm_plugin.trust.values import check_values

MOST_NAMED = 8
"""Items that a message names."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """An item that passed.

    Attributes:
        item: the item.
        fields: its tensors.
        identity: what the engine may know it by: a keyed digest of its own tensors, whatever hash it came with.
    """

    item: Item
    fields: MultiModalKwargsItem
    identity: str


@dataclass(frozen=True, slots=True)
class Checks:
    """What payloads are held to.

    Attributes:
        fingerprint: this server's.
        keys: whose signatures are accepted; a payload needs one where there are any.
        identity_key: 32 random bytes. Other routes of this server hand the engine names that callers choose: without
            the key no one can choose an identity.
        geometry: what the model takes.
        vocab_size: how many logits it has.
        allow_content_parts: take requests that make this server fetch URLs.
        allow_transfer_params: take requests that name other servers' caches.
    """

    fingerprint: str
    keys: Keys
    identity_key: bytes
    geometry: Geometry
    vocab_size: int
    allow_content_parts: bool
    allow_transfer_params: bool

    def admit(
        self, request: GenerateRequest, token_ids: bytes, items: Sequence[Item], attestation: Attestation
    ) -> tuple[Admitted, ...]:
        """Check all of a request, and say what the engine may be given. Megabytes are read: not for an event loop.

        Args:
            request: the request, its features not looked at.
            token_ids: its prompt, little-endian u32 each.
            items: its items.
            attestation: where it says it comes from.

        Raises:
            Refusal: the first thing that is wrong with it.
        """
        self._check_switches(request)
        self._check_fingerprint(attestation)
        self._check_presence(items)
        self.geometry.check_limits(items)
        digests = [None if item.fields is None else item_digest(item.fields) for item in items]
        self._check_signature(token_ids, items, digests, attestation)
        proven = self.geometry.check(np.frombuffer(token_ids, dtype="<u4"), items, signed=bool(self.keys))
        check_values("request_id", request.request_id)
        if request.reasoning_parser_kwargs is not None:
            check_values("reasoning_parser_kwargs", request.reasoning_parser_kwargs.chat_template_kwargs)
        check_sampling_params(
            request.sampling_params,
            vocab_size=self.vocab_size,
            max_model_len=self.geometry.max_model_len,
            allow_transfer_params=self.allow_transfer_params,
        )
        return tuple(
            Admitted(item, fields, blake3.blake3(digest, key=self.identity_key).hexdigest())
            for item, fields, digest in zip(items, proven, digests, strict=True)
            if fields is not None and digest is not None
        )

    def _check_switches(self, request: GenerateRequest) -> None:
        if request.content_parts and not self.allow_content_parts:
            raise BadPayload(
                "`content_parts` makes this server fetch URLs, which it is not set up to do. Render the request first.",
                param="content_parts",
            )
        for name in ("kv_transfer_params", "ec_transfer_params"):
            if getattr(request, name) and not self.allow_transfer_params:
                raise BadPayload(
                    f"`{name}` names other servers' caches, which this server is not set up for.", param=name
                )

    def _check_fingerprint(self, attestation: Attestation) -> None:
        theirs = attestation.fingerprint
        if theirs is not None and theirs != self.fingerprint:
            raise OtherFingerprint(
                f"The payload was rendered for {_shown(theirs)} and this server runs {self.fingerprint}: their model, "
                "processor, tokenizer, dtype or vLLM version differ. Render it on a pod of the same deployment."
            )

    def _check_signature(
        self,
        token_ids: bytes,
        items: Sequence[Item],
        digests: Sequence[bytes | None],
        attestation: Attestation,
    ) -> None:
        if not self.keys:
            return
        if attestation.fingerprint is None or attestation.signature is None:
            raise NotSigned("The payload has no signature, and this server takes none without.")
        statement = Statement(attestation.fingerprint, token_ids, items, digests)
        if not holds(statement, attestation.signature, self.keys):
            raise NotSigned("The payload's signature does not hold: it was changed, or signed with another key.")

    def _check_presence(self, items: Sequence[Item]) -> None:
        missing = [f"{_shown(str(item))} ({_shown(item.hint)})" for item in items if item.fields is None]
        if missing:
            missing[MOST_NAMED:] = ["…"] if len(missing) > MOST_NAMED else []
            raise FeaturesMissing(
                f"The payload has no tensors for {', '.join(missing)}, and nothing proves that the engine still holds "
                "them. Render the request again, with its tensors."
            )


def _shown(text: str) -> str:
    """A caller's text as it may be said again: any of its characters, in any number, could be there."""
    return ascii(text[:64])[1:-1]
