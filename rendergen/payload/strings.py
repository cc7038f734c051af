"""Finding where a JSON string ends."""

FIRST_WINDOW = 64
LARGEST_WINDOW = 4 * 1024


def without_escapes(text: bytes) -> bytes:
    r"""`text` with every `\\` and `\"` overwritten by `\_`, so that each quote left is a real one.

    `text` must not begin inside an escape. The length stays the same, and so does every other byte. If the
    result ends with a backslash, `text` ends inside an escape.
    """
    if b"\\" not in text:
        return text
    # Left to right and without overlap is how backslashes pair. The first step leaves no pair behind, so in the
    # second a backslash before a quote always escapes it.
    return text.replace(b"\\\\", b"\\_").replace(b'\\"', b"\\_")


def ends_inside_escape(data: bytes | bytearray, start: int, end: int) -> bool:
    """Whether the byte at `end` is escaped, where the byte at `start` is not: an odd run of backslashes before it."""
    if end == start or data[end - 1] != ord("\\"):
        return False
    size = 64
    while True:
        tail = data[max(start, end - size) : end]
        run = len(tail) - len(tail.rstrip(b"\\"))
        if run < len(tail) or len(tail) == end - start:
            return run % 2 == 1
        size *= 4


class StringScanner:
    """Passes over the rest of a string, given chunk by chunk, from after its opening quote.

    What is between the quotes is not checked: not its escapes, control characters or UTF-8.
    """

    __slots__ = ("_escaped", "closed")

    def __init__(self) -> None:
        self.open(escaped=False)

    def open(self, *, escaped: bool) -> None:
        """Begin inside a string; `escaped` says that a backslash was the last byte before."""
        self.closed = False
        self._escaped = escaped

    def advance(self, data: bytes | bytearray, pos: int) -> int:
        """Read from `pos` on. Returns the position after the closing quote, or, if none came, the end of `data`."""
        end = len(data)
        if self._escaped and pos < end:
            self._escaped = False
            pos += 1
        window = FIRST_WINDOW
        while pos < end:
            # Megabytes of base64 are crossed by this one search.
            quote = data.find(b'"', pos)
            stop = end if quote < 0 else quote
            escaped = ends_inside_escape(data, pos, stop)
            if quote < 0:
                self._escaped = escaped
                return end
            if not escaped:
                self.closed = True
                return quote + 1
            # Where one quote is escaped there are often more (JSON inside JSON): look at a window as a whole
            # rather than at each quote. It grows, so that what is read in vain is never more than what was passed.
            pos = quote + 1
            text = without_escapes(bytes(data[pos : pos + window]))
            quote = text.find(b'"')
            if quote >= 0:
                self.closed = True
                return pos + quote + 1
            pos += len(text)
            self._escaped = text.endswith(b"\\")
            if self._escaped and pos < end:
                self._escaped = False
                pos += 1
            window = min(2 * window, LARGEST_WINDOW)
        return pos
