"""The sampling params of a payload: what is set in them, and how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from rendergen.payload.errors import NotAnObject
from rendergen.payload.members import index_members, require_value, set_members, written_members

SAMPLING_PARAMS = "sampling_params"
MAX_TOKENS = "max_tokens"

_SPACE = b" \t\n\r"


@dataclass(frozen=True, slots=True)
class SamplingParamsEdit:
    """What becomes of the sampling params that a payload came with.

    `overrides` are raw JSON values by name. With `merge` they are set in the rendered params, which keep all else
    that only the render pod knows: generation-config defaults, grammars, stop ids. With `replace` they are the params.

    `default_max_tokens` is set where the result would have no `max_tokens`. The render pod leaves it out when it is
    vLLM's default, 16, and the generate pod takes an absent one for the rest of the context; so it is 16 for what
    the chat and completions endpoints rendered. On the raw paths, where the caller's payload means what the generate
    pod takes it for, it is None.

    Raises `MalformedJson` for an override that is not one JSON value.
    """

    overrides: Mapping[str, bytes] = field(default_factory=dict)
    mode: Literal["merge", "replace"] = "merge"
    default_max_tokens: int | None = None

    def __post_init__(self) -> None:
        for value in self.overrides.values():
            require_value(value)

    def most_growth(self) -> int:
        """The most bytes by which a payload can grow: every value set is a new member, of params that were absent."""
        if self.is_empty():
            return 0
        values = dict(self.overrides)
        if self.default_max_tokens is not None:
            values.setdefault(MAX_TOKENS, b"%d" % self.default_max_tokens)
        params = written_members({SAMPLING_PARAMS: b"{}"}, after_others=True)
        return len(params) + len(written_members(values, after_others=True))

    def is_empty(self) -> bool:
        """Whether every payload stays as it is."""
        return self.mode == "merge" and not self.overrides and self.default_max_tokens is None


def merge_sampling_params(rendered: bytes | None, edit: SamplingParamsEdit) -> bytes:
    """The params to send, as a raw JSON object, from those the payload came with: a raw JSON object, or None.

    `null` counts as None, and either as `{}`. Members that are not overridden keep their bytes, and their place; when
    nothing is to be changed, `rendered` itself is returned, be it `null`.

    Raises `NotAnObject`, and whatever `index_members` raises about `rendered`, with offsets from its start.
    """
    if rendered is not None and rendered.strip(_SPACE) == b"null":
        if edit.is_empty():
            return rendered
        rendered = None
    if rendered is not None:
        if not rendered.lstrip(_SPACE).startswith(b"{"):
            raise NotAnObject(SAMPLING_PARAMS)
        # Also where it is about to be replaced: a malformed payload is refused whatever the edit.
        present = index_members(rendered)
    base = rendered if rendered is not None and edit.mode == "merge" else b"{}"
    values = dict(edit.overrides)
    has_max_tokens = MAX_TOKENS in values or (base is rendered and MAX_TOKENS in present)
    if edit.default_max_tokens is not None and not has_max_tokens:
        values[MAX_TOKENS] = str(edit.default_max_tokens).encode()
    return b"".join(set_members(base, values)) if values else base
