"""What the pipeline answers with: a document, or a stream of events whose first is there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from rendergen.payload import Piece
from router.metrics import Stages


@dataclass(frozen=True, slots=True)
class WholeAnswer:
    """A whole answer.

    Attributes:
        pieces: its JSON.
        stages: how long each took.
    """

    pieces: Sequence[Piece]
    stages: Stages


@dataclass(frozen=True, slots=True)
class StreamedAnswer:
    """An answer that comes in events.

    Attributes:
        events: server-sent events as bytes, each item one or several whole ones. What ends it early is a ServiceError.
        stages: how long each took until the first event.
    """

    events: AsyncIterator[bytes]
    stages: Stages


Answer = WholeAnswer | StreamedAnswer
