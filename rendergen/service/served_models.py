"""Which models a pod serves: what it answers to ``GET /v1/models``, and how it is asked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from rendergen.payload import Limits, index_members, set_members, split_list
from rendergen.service.errors import PodRefusal
from rendergen.service.pods import MODELS, PodClient

MAX_BYTES = 256 * 1024
MAX_MODELS = 256

# Above this the answer is read in a thread: lists of objects are crossed bracket by bracket.
_LARGE_BYTES = 16 * 1024

# How a path begins that names a directory of the pod's, and no model of a hub.
_PATHS = ("/", ".", "~")


@dataclass(frozen=True, slots=True)
class ServedModel:
    """One model, or one LoRA adapter, that a pod serves.

    Attributes:
        id: the name by which callers ask for it.
        root: where it was loaded from, a name or a path of the pod's; None if the pod does not say.
        parent: the ``id`` of the model that it is an adapter of; None if it is none.
        raw: the pod's own object for it, raw JSON, as callers may see it: a ``root`` that is a path is the ``id``.
    """

    id: str
    root: str | None
    parent: str | None
    raw: bytes

    @classmethod
    def read(cls, raw: bytes) -> Self:
        """Raises: ValueError: it is no object with a name."""
        said = json.loads(raw)
        if not isinstance(said, dict) or not isinstance(said.get("id"), str) or not said["id"]:
            raise ValueError("a model is no object with an id")
        root = _text(said.get("root"))
        if root is not None and root.startswith(_PATHS):
            raw = b"".join(set_members(raw, {"root": json.dumps(said["id"]).encode()}))
        return cls(said["id"], root, _text(said.get("parent")), raw)


Models = Mapping[str, ServedModel]


def read_models(body: bytes) -> Models:
    """The models of a pod's answer by their ids, in its order; of two with one id, the first.

    Raises:
        ValueError: it is no list of models, has none, or more than :data:`MAX_MODELS`. A part of them would be worse
            than nothing: what is left out would be taken for not being served.
    """
    try:
        data = index_members(body).get("data")
        if data is None:
            raise ValueError("no list of models")
        listed = body[data.start : data.end]
        found: dict[str, ServedModel] = {}
        for span in split_list(listed, Limits(members=MAX_MODELS)):
            model = ServedModel.read(listed[span.start : span.end])
            found.setdefault(model.id, model)
    except RecursionError as error:
        raise ValueError("nested too deep") from error
    if not found:
        raise ValueError("an empty list of models")
    return found


async def ask_models(pod: PodClient, timeout_s: float) -> Models | None:
    """What ``pod`` serves; None if it has no such path, or answers what is no answer to this.

    Raises:
        ServiceError: it did not answer in time, or it failed: ask again later.
    """
    try:
        async with pod.request("GET", MODELS, headers={}, timeout_s=timeout_s) as answer:
            body = await answer.read(MAX_BYTES)
    except PodRefusal as refusal:
        if refusal.status < 500 and refusal.status != 429:
            return None
        raise
    try:
        return await asyncio.to_thread(read_models, body) if len(body) > _LARGE_BYTES else read_models(body)
    except ValueError:
        return None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
