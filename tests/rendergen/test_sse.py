"""Events come out the same however the bytes are cut, and by the format's rules; what is written can be read."""

from __future__ import annotations

import ast
import inspect

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rendergen import sse
from rendergen.sse import COMMENT_KEEP_ALIVE, DONE, Event, EventReader, EventTooLarge, written

LIMIT = 1000
BOM = b"\xef\xbb\xbf"

# Bytes, and what they tell: the data of each event, with its name where it has one.
STREAMS: dict[str, tuple[bytes, list[bytes | tuple[bytes, bytes]]]] = {
    "nothing": (b"", []),
    "two events": (b"data: a\n\ndata: b\n\n", [b"a", b"b"]),
    "no blank after the colon": (b"data:a\n\n", [b"a"]),
    "one blank is not the data's": (b"data:  a\n\n", [b" a"]),
    "a tab is the data's": (b"data:\ta\n\n", [b"\ta"]),
    "colons within": (b"data: a: b:\n\n", [b"a: b:"]),
    "CRLF": (b"data: a\r\n\r\ndata: b\r\n\r\n", [b"a", b"b"]),
    "CR": (b"data: a\r\rdata: b\r\r", [b"a", b"b"]),
    "ends of all kinds": (
        b"data: a\r\n\ndata: b\n\r\ndata: c\r\r\ndata: d\n\rdata: e\n\n",
        [b"a", b"b", b"c", b"d", b"e"],
    ),
    "several lines of data": (b"data: a\ndata: b\ndata\ndata:c\n\n", [b"a\nb\n\nc"]),
    "several lines of data with CRLF": (b"data: a\r\ndata: b\r\n\r\n", [b"a\nb"]),
    "several lines of data with CR": (b"data: a\rdata: b\r\r", [b"a\nb"]),
    "a CR within": (b"data: a\rdata: b\ndata: c\rd\n\ndata: e\rdata: f\n\n", [b"a\nb\nc", b"e\nf"]),
    "comments": (b": keep-alive\n\ndata: a\n: in between\n\n:\n\n", [b"a"]),
    "the standard's stock ticker": (b"data: YHOO\ndata: +2\ndata: 10\n\n", [b"YHOO\n+2\n10"]),
    "the standard's four blocks": (
        b": test stream\n\ndata: 1\nid: 1\n\ndata:2\nid\n\ndata:  3\n\n",
        [b"1", b"2", b" 3"],
    ),
    "the standard's empty data": (b"data\n\ndata\ndata\n\ndata:", [b"\n"]),
    "other fields": (b"id: 7\nretry: 1\ndata: a\ndatum: b\nda\n data: c\nDATA: d\n\n", [b"a"]),
    "a name": (b"event: x\ndata: a\n\ndata: b\n\n", [(b"x", b"a"), b"b"]),
    "a name after the data": (b"data: a\nevent:x\n\n", [(b"x", b"a")]),
    "two names": (b"event: x\nevent: y\ndata: a\n\n", [(b"y", b"a")]),
    "a name taken back": (b"event: x\nevent\ndata: a\n\nevent: x\nevent:\ndata: b\n\n", [b"a", b"b"]),
    "a name without data": (b"event: x\n\ndata: b\n\n", [b"b"]),
    "what only some take for line ends": (
        "data: a\u2028b\u2029c\u0085d\x0be\x0cf\x1cg\x1dh\x1ei\n\n".encode(),
        ["a\u2028b\u2029c\u0085d\x0be\x0cf\x1cg\x1dh\x1ei".encode()],
    ),
    "NUL and what is no UTF-8": (b"data: \x00\xff\x85\n\n", [b"\x00\xff\x85"]),
    "characters of many bytes": ("data: 빨간색 🔴\n\n".encode(), ["빨간색 🔴".encode()]),
    "a byte order mark": (BOM + b"data: a\n\n", [b"a"]),
    "a byte order mark before nothing": (BOM + b"\ndata: a\n\n", [b"a"]),
    "two byte order marks": (BOM + BOM + b"data: a\n\ndata: b\n\n", [b"b"]),
    "a byte order mark in the midst": (b"data: a\n\n" + BOM + b"data: b\n\n", [b"a"]),
    "empty lines": (b"\n\n\ndata: a\n\n\n\n\ndata: b\n\n", [b"a", b"b"]),
    "empty lines with CRLF": (b"\r\n\r\ndata: a\r\n\r\n\r\ndata: b\r\n\r\n", [b"a", b"b"]),
    "empty lines with CR": (b"\rdata: a\r\r\r\rdata: b\r\r", [b"a", b"b"]),
    "no data in it": (b"data:\n\nevent: a\n\n", []),
    "an event that has not ended": (b"data: a\n\ndata: b\n", [b"a"]),
    "a line that has not ended": (b"data: a\n\ndata: [DONE]", [b"a"]),
    "half a CRLF": (b"data: a\r\n\r\ndata: b\r\n", [b"a"]),
    "line ends told in JSON": (b'data: {"a":"\\r\\n\\n"}\n\n', [b'{"a":"\\r\\n\\n"}']),
    "ours": (COMMENT_KEEP_ALIVE + DONE, [b"[DONE]"]),
}

# Line ends, what matters of fields, and whole events, in every order.
PARTS = st.lists(
    st.sampled_from(
        [b"\n", b"\r", b"\r\n", b"\n\n", b"data", b":", b" ", b"a", b"event", BOM, b"data: a\n\n", b"data: a\r\r"]
    ),
    max_size=30,
)
CUTS = st.lists(st.integers(0, 200), max_size=20)


def read(pieces: list[bytes], limit: int = LIMIT) -> tuple[list[Event], bytes]:
    """All events of a stream that comes in these pieces, and what is left."""
    reader = EventReader(limit)
    return [event for piece in pieces for event in reader.feed(piece)], reader.finish()


def told(events: list[Event]) -> list[bytes | tuple[bytes, bytes]]:
    """What the events with data say."""
    return [(event.name, event.data) if event.name else event.data for event in events if event.data]


def cut(stream: bytes, cuts: list[int]) -> list[bytes]:
    """The stream in pieces, some of them empty perhaps."""
    ends = sorted(min(each, len(stream)) for each in cuts)
    return [stream[begin:end] for begin, end in zip([0, *ends], [*ends, len(stream)], strict=True)]


def bytewise(stream: bytes) -> list[bytes]:
    return [stream[i : i + 1] for i in range(len(stream))]


def by_the_standard(stream: bytes) -> list[bytes | tuple[bytes, bytes]]:
    """WHATWG HTML 9.2.6, word by word, on a whole stream. (What an empty data buffer would tell is left out.)"""
    lines = stream.removeprefix(BOM).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")[:-1]
    events: list[bytes | tuple[bytes, bytes]] = []
    name, data = b"", b""
    for line in lines:
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if not line:
            if data := data.removesuffix(b"\n"):
                events.append((name, data) if name else data)
            name, data = b"", b""
        elif field == b"event":
            name = value
        elif field == b"data":
            data += value + b"\n"
    return events


@pytest.mark.parametrize("name", STREAMS)
def test_at_once_bytewise_and_event_by_event(name: str) -> None:
    stream, expected = STREAMS[name]
    at_once = read([stream])
    assert told(at_once[0]) == expected
    assert read(bytewise(stream)) == at_once
    assert read([part + b"\n\n" for part in stream.split(b"\n\n")])[0][: len(at_once[0])] == at_once[0]


@pytest.mark.parametrize("name", STREAMS)
def test_the_table_is_the_standards(name: str) -> None:
    """But for what may be told at the stream's end only: the format has no event without an empty line after it."""
    stream, expected = STREAMS[name]
    assert by_the_standard(stream) == expected


@given(PARTS, CUTS)
def test_cut_anywhere(parts: list[bytes], cuts: list[int]) -> None:
    """The same events, and every byte in one of them or left."""
    stream = b"".join(parts)
    at_once = read([stream])
    assert read(cut(stream, cuts)) == at_once
    assert read(bytewise(stream)) == at_once
    assert read(parts) == at_once
    assert b"".join(event.raw for event in at_once[0]) + at_once[1] == stream


def test_what_came_before_a_plain_event_is_forgotten() -> None:
    """A CR after it is half of a CRLF, not the second of two."""
    pieces = [b"data: a\r\r", b"data: b\n\n", b"\r", b"\n"]
    assert [event.raw for event in read(pieces)[0]] == [*pieces[:2], b"\r\n"]


@given(PARTS)
def test_as_the_standard_says(parts: list[bytes]) -> None:
    """What is told, in any order of line ends and fields."""
    stream = b"".join(parts) + b"x\n\n"  # a lone CR at the very end could still become a CRLF
    assert told(read([stream])[0]) == by_the_standard(stream)


@given(st.lists(st.tuples(st.binary(max_size=30), st.binary(max_size=10)), max_size=6), CUTS)
def test_what_is_written_is_read(events: list[tuple[bytes, bytes]], cuts: list[int]) -> None:
    """Whatever it is and however it is cut, but for the CR, which the format cannot hold in data."""
    events = [(data.replace(b"\r", b"\n"), name.translate(None, b"\r\n")) for data, name in events]
    pieces = [written(data, name) for data, name in events]
    found, left = read(cut(b"".join(pieces), cuts))
    assert found == [Event(name, data, raw) for (data, name), raw in zip(events, pieces, strict=True)]
    assert left == b""


WRITTEN = {
    "data": (written(b"a"), b"data: a\n\n"),
    "none": (written(b""), b"data: \n\n"),
    "a name": (written(b"a", b"x"), b"event: x\ndata: a\n\n"),
    "several lines": (written(b"a\nb\n", b"x"), b"event: x\ndata: a\ndata: b\ndata: \n\n"),
    "a CR": (written(b"a\revent: x"), b"data: a\ndata: event: x\n\n"),
    "another's line ends": (written(b"a\rb\r\nc\n\rd"), b"data: a\ndata: b\ndata: c\ndata: \ndata: d\n\n"),
    "separators": (written("a\u2028b\u0085c\x0bd".encode()), "data: a\u2028b\u0085c\x0bd\n\n".encode()),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_written(name: str) -> None:
    """No data can begin a line of another kind."""
    ours, expected = WRITTEN[name]
    assert ours == expected


@pytest.mark.parametrize("name", [b"a\nb", b"a\r", b"\n"])
def test_a_name_is_one_line(name: bytes) -> None:
    with pytest.raises(ValueError, match="one line"):
        written(b"a", name)


def test_raw_has_the_bytes_as_they_came() -> None:
    """Comments, odd fields, line ends and empty lines included."""
    parts = [
        BOM + b": hello\r\n\r\n",
        b"id: 1\r\ndata:a\r\n: c\r\n\r\n",
        b"\n",
        b"data: b\r\r",
        b"event: x\n\n",
        b"data: c\n\n",
    ]
    found, left = read([b"".join(parts) + b"data: d\n"])
    assert [event.raw for event in found] == parts
    assert [event.data for event in found] == [b"", b"a", b"", b"b", b"", b"c"]
    assert left == b"data: d\n"


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_an_event_is_there_with_its_last_byte(end: bytes) -> None:
    """Not one later: who waits for it has nothing to wait for any more."""
    event = b"data: 1%bid: 2%b%b" % (end, end, end)
    reader = EventReader(LIMIT)
    found = [reader.feed(byte) for byte in bytewise(event)]
    assert found == [[]] * (len(event) - 1) + [[Event(b"", b"1", event)]]
    assert reader.finish() == b""


@pytest.mark.parametrize("size", [1, 7, 10_000])
@pytest.mark.parametrize(
    "oversize", [b"data: " + b"x" * 200 + b"\n\n", b"data: xxxxxxxxx\n" * 20, b": " + b"x" * 200, b"data:\r\n" * 20]
)
def test_an_event_has_its_limit(oversize: bytes, size: int) -> None:
    """Whole or not, in one line or many. Those before it are given out, and all bytes after them are there still."""
    before = b"data: a\n\n" + b"data: " + b"x" * 92 + b"\n\n"
    stream = before + oversize + b"data: b\n\n"
    reader = EventReader(100)
    passed = b""
    raised: EventTooLarge | None = None
    for piece in [*(stream[i : i + size] for i in range(0, len(stream), size)), b""]:
        try:
            passed += b"".join(event.raw for event in reader.feed(piece))
        except EventTooLarge as error:
            raised = error
    assert raised is not None
    assert (raised.limit, str(raised)) == (100, "an event of the stream is over the limit of 100 bytes")
    assert passed == before
    assert passed + reader.finish() == stream


@pytest.mark.parametrize("size", [1, 7, 100, 10_000])
def test_the_limit_is_each_events_own(size: int) -> None:
    """However many there are, and whatever they are cut into."""
    stream = (b"data: " + b"x" * 92 + b"\n\n") * 20
    found, left = read([stream[i : i + size] for i in range(0, len(stream), size)], limit=100)
    assert ([len(event.raw) for event in found], left) == ([100] * 20, b"")


@pytest.mark.timeout(30)
@pytest.mark.parametrize("size", [1, 16 * 1024])
@pytest.mark.parametrize("data", [b"x" * 1_000_000, b"x\n" * 200_000], ids=["one line", "many lines"])
def test_a_large_event_in_small_pieces(data: bytes, size: int) -> None:
    """Work that grew with what is held, at each byte, would not end before the test's time does."""
    stream = written(data)
    found, left = read([stream[i : i + size] for i in range(0, len(stream), size)], limit=len(stream))
    assert ([event.data for event in found], left) == ([data], b"")


def test_it_stands_alone() -> None:
    """The plugin, the services and the router import it: neither aiohttp nor vLLM comes with it."""
    tree = ast.parse(inspect.getsource(sse))
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    imported |= {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    assert imported == {"__future__", "dataclasses", "re"}
