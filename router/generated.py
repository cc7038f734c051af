"""Generate's stream: its first event is read before anyone is told that all is well."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

from rendergen.service.errors import PodFailed
from rendergen.service.pods import PodAnswer
from rendergen.service.refusals import refusal_of
from rendergen.sse import EventReader, EventTooLarge

DONE = b"[DONE]"

# An event with all its log probabilities; what is longer is no event of generate's.
MAX_EVENT_BYTES = 8 * 1024 * 1024

ERROR = b'{"error"'


class GeneratedStream:
    """A generate pod's stream, begun.

    Args:
        role: what to call the pod in messages.
        answer: its answer, of which nothing has been read.
    """

    def __init__(self, role: str, answer: PodAnswer) -> None:
        self._role = role
        self._answer = answer
        self._chunks = answer.chunks()
        self._reader = EventReader(MAX_EVENT_BYTES)
        self._read: list[bytes] = []
        self._first: list[bytes] = []

    async def begin(self) -> None:
        """Wait for the first event.

        Raises:
            ServiceError: it is an error, with the status that it says; or the pod broke off, or sent no event.
        """
        async for chunk in self._chunks:
            self._read.append(chunk)
            self._first += self._data(chunk)
            if self._first:
                return
        raise PodFailed(f"The {self._role}'s stream ended before its first event.")

    async def chunks(self) -> AsyncIterator[bytes]:
        """The stream's bytes as they came, from its first on. Either this is iterated, or :meth:`data`.

        Raises:
            ServiceError: the pod broke off.
        """
        for chunk in self._read:
            yield chunk
        async for chunk in self._chunks:
            yield chunk

    async def data(self) -> AsyncIterator[bytes]:
        """The data of each event, ``[DONE]`` not among them.

        Raises:
            ServiceError: an event is an error; or the pod broke off, or the stream ended without ``[DONE]``.
        """
        events = self._first
        while True:
            for data in events:
                if data == DONE:
                    return
                yield data
            chunk = await anext(self._chunks, None)
            if chunk is None:
                raise PodFailed(f"The {self._role}'s stream ended before its end was told.")
            events = self._data(chunk)

    def _data(self, chunk: bytes) -> list[bytes]:
        try:
            found = [event.data for event in self._reader.feed(chunk) if event.data]
        except EventTooLarge as error:
            raise PodFailed(f"The {self._role} sent an event of more than {MAX_EVENT_BYTES} bytes.") from error
        for data in found:
            raise_error_in(data, self._role)
        return found


def raise_error_in(data: bytes, role: str) -> None:
    """See to it that an event is not an error in OpenAI's form, which pods and the services before them send.

    Args:
        data: the event's.
        role: what to call the pod in messages.

    Raises:
        ServiceError: it is one, and this is what the caller may know of it.
    """
    if not data.startswith(ERROR):
        return
    status = 500
    try:
        code = json.loads(data)["error"]["code"]
        status = code if isinstance(code, int) and 400 <= code < 600 else 500
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    raise refusal_of(role, status, None, data)
