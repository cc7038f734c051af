"""Generate's events, gathered for each choice while derender is busy with earlier ones."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Self

from rendergen.service.errors import PodFailed

# Of one choice, what goes to derender at once; the rest waits for the next time.
MAX_TOGETHER_BYTES = 64 * 1024
# Of all choices, what is held. Then no more is read from generate.
MAX_HELD_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Delta:
    """What was generated of one choice: of one event, or of several that follow each other.

    Attributes:
        index: which choice.
        token_ids: the tokens.
        logprobs: of each token, as generate has them; None if there are none.
        finish_reason: why it ended, if it did.
        stop_reason: what ended it, if anything did: a string, or a token's id.
    """

    index: int
    token_ids: list[int]
    logprobs: list[dict[str, Any]] | None
    finish_reason: str | None
    stop_reason: int | str | None

    @classmethod
    def read(cls, choice: dict[str, Any]) -> Self:
        """Raises: LookupError, TypeError: it is none."""
        logprobs = choice.get("logprobs")
        return cls(
            index=int(choice["index"]),
            token_ids=list(choice.get("token_ids") or ()),
            logprobs=None if logprobs is None else list(logprobs["content"] or ()),
            finish_reason=choice.get("finish_reason"),
            stop_reason=choice.get("stop_reason"),
        )

    def followed_by(self, later: Delta) -> Delta:
        """Both together."""
        logprobs = self.logprobs if later.logprobs is None else (self.logprobs or []) + later.logprobs
        tokens = self.token_ids + later.token_ids
        return Delta(self.index, tokens, logprobs, later.finish_reason, later.stop_reason)


@dataclass(slots=True)
class _Waiting:
    """The deltas of one choice that wait, each with the size of its event."""

    deltas: deque[tuple[Delta, int]] = field(default_factory=deque)


class Gathering:
    """What has come of generate's events and was not taken. See :func:`gathering`."""

    def __init__(self) -> None:
        self._waiting: dict[int, _Waiting] = {}  # in the order in which their first delta came
        self._held = 0
        self._ended = False
        self._failure: BaseException | None = None
        self._changed = asyncio.Event()
        self._usage: dict[str, Any] = {}
        self._metrics: Any = None

    @property
    def usage(self) -> dict[str, Any]:
        """The last usage that an event had."""
        return self._usage

    @property
    def metrics(self) -> Any:
        """The last metrics that an event had."""
        return self._metrics

    async def take(self) -> Delta | None:
        """The next delta, of the choice that has waited longest; None at the end.

        Raises:
            PodFailed: what came is no event of generate's; or whatever reading the events raised, once all before it
                has been taken.
        """
        while not self._waiting:
            if self._failure is not None:
                raise self._failure
            if self._ended:
                return None
            await self._change()
        index = next(iter(self._waiting))
        waiting = self._waiting.pop(index)
        delta, size = waiting.deltas.popleft()
        while waiting.deltas and size + waiting.deltas[0][1] <= MAX_TOGETHER_BYTES:
            later, more = waiting.deltas.popleft()
            delta, size = delta.followed_by(later), size + more
        if waiting.deltas:
            self._waiting[index] = waiting  # behind the others
        self._held -= size
        self._changed.set()
        return delta

    async def read(self, events: AsyncIterator[bytes]) -> None:
        """Read all ``events``, no faster than they are taken."""
        try:
            async for data in events:
                self._add(data)
                while self._held > MAX_HELD_BYTES:
                    await self._change()
        except Exception as error:  # whatever it is, it is raised where the deltas are taken
            self._failure = error
        finally:
            self._ended = True
            self._changed.set()

    def _add(self, data: bytes) -> None:
        try:
            event = json.loads(data)
            deltas = [Delta.read(choice) for choice in event["choices"]]
            self._usage = event.get("usage") or self._usage
            self._metrics = event.get("metrics") or self._metrics
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise PodFailed("The generate pod's stream has an event that is none.") from error
        for delta in deltas:
            self._waiting.setdefault(delta.index, _Waiting()).deltas.append((delta, len(data)))
            self._held += len(data)
        self._changed.set()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()


@asynccontextmanager
async def gathering(events: AsyncIterator[bytes]) -> AsyncIterator[Gathering]:
    """Gather ``events``, the data of generate's events, in the background."""
    gathered = Gathering()
    reading = asyncio.create_task(gathered.read(events))
    try:
        yield gathered
    finally:
        reading.cancel()
        await asyncio.wait([reading])
