"""Server-sent events out of bytes that are cut anywhere."""

from __future__ import annotations

from rendergen.vllm_plugin.errors import TooLarge

_BOM = b"\xef\xbb\xbf"


class EventReader:
    """Reads the events' data by the rules of the event stream format (WHATWG HTML, 9.2.6).

    Lines end with CR, LF or both, and with nothing else: a U+2028 in a text is no end. Comments and the fields other
    than `data` are left out. An event is whole with the empty line after it; what has none when the stream ends never
    was one.

    Work is linear in the bytes fed, however they are cut.
    """

    def __init__(self, max_event_bytes: int) -> None:
        self._max_event_bytes = max_event_bytes
        self._pieces: list[bytes] = []  # of the line that has not ended
        self._data: list[bytes] = []  # of the event that has not ended
        self._held_bytes = 0
        self._after_cr = False
        self._started = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """The data of the events that end in this chunk, in order.

        Raises TooLarge when an event has more bytes than it may.
        """
        if self._after_cr and chunk:
            self._after_cr = False
            chunk = chunk.removeprefix(b"\n")  # the other half of a CRLF
        if b"\n" not in chunk and b"\r" not in chunk:
            self._hold(self._pieces, chunk)
            return []
        self._after_cr = chunk.endswith(b"\r")
        lines = (b"".join(self._pieces) + chunk).splitlines(keepends=True)
        self._held_bytes -= sum(map(len, self._pieces))
        self._pieces.clear()
        events: list[bytes] = []
        for line in lines:
            if line.endswith((b"\n", b"\r")):
                self._take(line.rstrip(b"\r\n"), events)
            else:
                self._hold(self._pieces, line)
        return events

    def _take(self, line: bytes, events: list[bytes]) -> None:
        if not self._started:
            self._started = True
            line = line.removeprefix(_BOM)
        if line.startswith(b"data:"):
            self._hold(self._data, line[6:] if line.startswith(b" ", 5) else line[5:])
        elif not line and self._data:
            if data := b"\n".join(self._data):
                events.append(data)
            self._data.clear()
            self._held_bytes = 0

    def _hold(self, where: list[bytes], piece: bytes) -> None:
        where.append(piece)
        self._held_bytes += len(piece) + (where is self._data)  # or lines without data would be held without end
        if self._held_bytes > self._max_event_bytes:
            raise TooLarge(
                f"an event of generate's stream is over the limit of {self._max_event_bytes} bytes; "
                "ask for fewer log probabilities"
            )
