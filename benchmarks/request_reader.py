"""Reading HTTP requests at the least cost: what the stub pods do with a connection's bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

_CRLF = b"\r\n"
# How much is looked at for the end of a line. Those of our peers are shorter; a longer one is put together.
_LOOK_BYTES = 512


@dataclass(frozen=True, slots=True)
class Request:
    """A request that has been read to its end.

    Attributes:
        method: HTTP method.
        path: request target.
        body: its bytes if it was to be kept, else empty.
    """

    method: str
    path: str
    body: bytes


class _State(Enum):
    HEAD = auto()
    CHUNK = auto()
    TRAILER = auto()


class RequestReader:
    """Cuts a connection's bytes into requests. Bodies are counted and not copied, unless they are to be kept.

    Args:
        ended: called with each request when its last byte has come.
        keep: asked with method and path, when a head has come, whether the body is to be kept.
    """

    def __init__(self, ended: Callable[[Request], None], keep: Callable[[str, str], bool]) -> None:
        self._ended = ended
        self._keep = keep
        self._state = _State.HEAD
        self._line = bytearray()
        self._body_left = 0
        self._method = self._path = ""
        self._body: bytearray | None = None

    def feed(self, data: memoryview) -> None:
        """Take the next bytes of the connection."""
        pos = 0
        while pos < len(data):
            pos += self._feed_body(data[pos:]) if self._body_left else self._feed_line(data[pos:])

    def _feed_body(self, data: memoryview) -> int:
        taken = min(self._body_left, len(data))
        if self._body is not None:
            self._body += data[:taken]
        self._body_left -= taken
        if not self._body_left:
            if self._state is _State.HEAD:
                self._end()
            elif self._body is not None:
                del self._body[-len(_CRLF) :]
        return taken

    def _feed_line(self, data: memoryview) -> int:
        """Look for the end of the line, or of the head. Returns how many bytes of `data` were taken."""
        delimiter = _CRLF * 2 if self._state is _State.HEAD else _CRLF
        before = len(self._line)
        self._line += data[:_LOOK_BYTES]
        found = self._line.find(delimiter)
        if found < 0:
            return len(self._line) - before
        line = bytes(self._line[:found])
        self._line.clear()
        self._read_line(line)
        return found + len(delimiter) - before

    def _read_line(self, line: bytes) -> None:
        match self._state:
            case _State.HEAD:
                self._read_head(line)
            case _State.CHUNK:
                size = int(line, 16)
                if size:
                    self._body_left = size + len(_CRLF)  # the line end after a chunk passes with it
                else:
                    self._state = _State.TRAILER
            case _State.TRAILER if not line:
                self._end()

    def _read_head(self, head: bytes) -> None:
        first, *fields = head.decode("latin-1").split("\r\n")
        self._method, self._path, _ = first.split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (field.partition(":") for field in fields)}
        self._body = bytearray() if self._keep(self._method, self._path) else None
        if headers.get("transfer-encoding") == "chunked":
            self._state = _State.CHUNK
            return
        self._body_left = int(headers.get("content-length", "0"))
        if not self._body_left:
            self._end()

    def _end(self) -> None:
        self._state = _State.HEAD
        self._ended(Request(self._method, self._path, bytes(self._body or b"")))
