"""What a pod can do beyond vLLM's own endpoints: asked of it, once for each time that it becomes ready."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Self

from rendergen.payload.frames import (
    VERSION,
)
from rendergen.service.errors import PodRefusal
from rendergen.service.pods import CAPABILITIES, PodClient

MAX_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a pod says of itself.

    Attributes:
        payload_versions: the versions of payloads in frames that it takes or gives. JSON it always does.
        fingerprint: what its model, processor and tokenizer are; None if it does not say.
        rendergen: the plugin's version; None without it.
        vllm: vLLM's version; None if it does not say.
        derender_stream: the paths of its derender that makes whole answers (``docs/derender-stream.md``).
    """

    payload_versions: frozenset[int] = frozenset()
    fingerprint: str | None = None
    rendergen: str | None = None
    vllm: str | None = None
    derender_stream: frozenset[str] = frozenset()

    @property
    def speaks_frames(self) -> bool:
        """Whether it takes and gives payloads in frames as this process splices them."""
        return VERSION in self.payload_versions

    @classmethod
    def read(cls, body: bytes) -> Self:
        """From a pod's answer. A member that is missing, or not what it should be, is taken for not having it.

        Raises:
            ValueError: it is no JSON object.
        """
        try:
            said = json.loads(body)
        except RecursionError as error:
            raise ValueError("nested too deep") from error
        if not isinstance(said, dict):
            raise ValueError("no object")
        return cls(
            payload_versions=frozenset(item for item in _items(said.get("payload_versions")) if type(item) is int),
            fingerprint=_text(said.get("fingerprint")),
            rendergen=_text(said.get("rendergen")),
            vllm=_text(said.get("vllm")),
            derender_stream=frozenset(
                path for path in _items(_object(said.get("supports")).get("derender_stream")) if isinstance(path, str)
            ),
        )


JSON_ONLY = Capabilities()


async def ask_capabilities(pod: PodClient, timeout_s: float) -> Capabilities:
    """What ``pod`` can do: :data:`JSON_ONLY` if it has no such path, or answers what is no answer to this.

    Raises:
        ServiceError: it did not answer in time, or it failed: ask again later.
    """
    try:
        async with pod.request("GET", CAPABILITIES, headers={}, timeout_s=timeout_s) as answer:
            body = await answer.read(MAX_BYTES)
    except PodRefusal as refusal:
        if refusal.status < 500 and refusal.status != 429:
            return JSON_ONLY
        raise
    try:
        return Capabilities.read(body)
    except ValueError:
        return JSON_ONLY


def _object(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


def _items(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
