"""One line of the table: a request, what one server makes of it, and how the router may differ."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

# In the place of a status: one server begins a stream and breaks it off.
BROKEN_OFF = 0


@dataclass(frozen=True, slots=True)
class Difference:
    """What the router answers where one server's answer is not the right one, or cannot be had.

    Attributes:
        why: the reason, for whoever reads the table.
        status: HTTP status of the router's answer.
        says: a regular expression that its error's message must contain, letters of either case.
        same_error: its error is the one that one server has in its stream, and its status is that error's code.
        only_words: nothing but the message is another one.
        at_times: it hangs on how the pods cut their streams, so that it need not be there.
    """

    why: str
    status: int
    says: str = ""
    same_error: bool = False
    only_words: bool = False
    at_times: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """A request that is sent to one server and to the router.

    Attributes:
        name: what it is about; one of its own for each path.
        path: of the API.
        body: bytes as they are, anything else as JSON.
        status: HTTP status of one server's answer: holds the row to what it means to test.
        headers: to send besides the content type.
        differs: where the router's answer is another one.
        bare: the same with pods that have no plugin.
    """

    name: str
    path: str
    body: Any
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    differs: Difference | None = None
    bare: Difference | None = None

    def __str__(self) -> str:
        return f"{self.path.removeprefix('/v1/')}: {self.name}"

    def streamed(self) -> Row:
        """The same request, streamed."""
        return replace(self, name=f"{self.name}, streamed", body={**self.body, "stream": True})

    def whole(self) -> Row:
        """The same request, not streamed, and so without options of a stream."""
        body = {name: value for name, value in self.body.items() if name not in ("stream", "stream_options")}
        return replace(self, body=body)

    def data(self) -> bytes:
        """The body's bytes."""
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


def both(path: str, requests: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> list[Row]:
    """Each request as it is and streamed."""
    rows = [Row(name, path, body, headers=headers or {}) for name, body in requests.items()]
    return [each for row in rows for each in (row.whole(), row.streamed())]


def refused(path: str, requests: Mapping[str, Any], streamed: tuple[str, ...]) -> list[Row]:
    """Each request as one that is a 400, and those of the names in ``streamed`` streamed too."""
    rows = [Row(name, path, body, status=400) for name, body in requests.items()]
    return [*rows, *(row.streamed() for row in rows if row.name in streamed)]
