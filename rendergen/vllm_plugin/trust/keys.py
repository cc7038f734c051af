"""The keys that payloads are signed with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import blake3

from rendergen.vllm_plugin.settings import PluginSettings

MIN_SECRET_CHARACTERS = 32

# BLAKE3's key derivation wants a context that no other use of the same secret has.
_CONTEXT = "rendergen 2026-12-01 payload signature v1"


class KeysError(ValueError):
    """The keys that are configured cannot be used."""


@dataclass(frozen=True, slots=True)
class Keys:
    """Keys of 32 bytes, derived from the secrets that are configured.

    Attributes:
        accepted: the first is what payloads are signed with; a signature made with any of them holds.
    """

    accepted: tuple[bytes, ...]

    @classmethod
    def of(cls, settings: PluginSettings) -> Self:
        """Raises: KeysError: the file cannot be read, or a secret is too short."""
        if settings.signing_keys_file is not None:
            try:
                secrets = settings.signing_keys_file.read_text().split("\n")
            except (OSError, UnicodeDecodeError) as error:
                raise KeysError(f"the signing keys' file cannot be read: {error}") from error
        else:
            secrets = settings.signing_keys.get_secret_value().split(",")
        secrets = [secret.strip() for secret in secrets if secret.strip()]
        if settings.signing_keys_file is not None and not secrets:
            raise KeysError("the signing keys' file holds none")
        if any(len(secret) < MIN_SECRET_CHARACTERS for secret in secrets):
            raise KeysError(f"a signing key has fewer than {MIN_SECRET_CHARACTERS} characters")
        return cls(tuple(_derived(secret) for secret in secrets))

    def __bool__(self) -> bool:
        """Whether any is configured."""
        return bool(self.accepted)


def _derived(secret: str) -> bytes:
    return blake3.blake3(secret.encode(), derive_key_context=_CONTEXT).digest()
