"""Events come out the same however the bytes are cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rendergen.vllm_plugin.derender.events import EventReader
from rendergen.vllm_plugin.errors import TooLarge

STREAMS = {
    "two events": (b"data: a\n\ndata: b\n\n", [b"a", b"b"]),
    "no blank after the colon": (b"data:a\n\n", [b"a"]),
    "one blank is not the data's": (b"data:  a\n\n", [b" a"]),
    "CRLF": (b"data: a\r\n\r\ndata: b\r\n\r\n", [b"a", b"b"]),
    "CR": (b"data: a\r\rdata: b\r\r", [b"a", b"b"]),
    "ends of all kinds": (b"data: a\r\n\ndata: b\n\r\ndata: c\r\r\n", [b"a", b"b", b"c"]),
    "several lines of data": (b"data: a\ndata: b\n\n", [b"a\nb"]),
    "several lines of data with CRLF": (b"data: a\r\ndata: b\r\n\r\n", [b"a\nb"]),
    "comments": (b": keep-alive\n\ndata: a\n: in between\n\n:\n\n", [b"a"]),
    "other fields": (b"event: x\nid: 7\nretry: 1\ndata: a\ndatum: b\n\n", [b"a"]),
    "a line separator within": ("data: a\u2028b\u0085c\u000bd\n\n".encode(), ["a\u2028b\u0085c\u000bd".encode()]),
    "a byte order mark": (b"\xef\xbb\xbfdata: a\n\n", [b"a"]),
    "empty lines": (b"\n\n\ndata: a\n\n\n\n", [b"a"]),
    "no data in it": (b"data:\n\nevent: a\n\n", []),
    "an event that has not ended": (b"data: a\n\ndata: b\n", [b"a"]),
    "a line that has not ended": (b"data: a\n\ndata: [DONE]", [b"a"]),
    "characters of many bytes": ("data: 빨간색 🔴\n\n".encode(), ["빨간색 🔴".encode()]),
    "a line with carriage returns told in JSON": (b'data: {"a":"\\r\\n"}\n\n', [b'{"a":"\\r\\n"}']),
}


def read(pieces: list[bytes], limit: int = 1000) -> list[bytes]:
    """All events of a stream that comes in these pieces."""
    reader = EventReader(limit)
    return [event for piece in pieces for event in reader.feed(piece)]


@pytest.mark.parametrize("name", STREAMS)
def test_whole_and_byte_by_byte(name: str) -> None:
    stream, events = STREAMS[name]
    assert read([stream]) == events
    assert read([stream[i : i + 1] for i in range(len(stream))]) == events


@given(st.data())
def test_cut_anywhere(data: st.DataObject) -> None:
    """Several of the streams after each other, in pieces of any lengths, empty ones too."""
    names = data.draw(st.lists(st.sampled_from([name for name in STREAMS if "not ended" not in name]), max_size=4))
    stream = b"".join(STREAMS[name][0].removeprefix(b"\xef\xbb\xbf") for name in names)
    events = [event for name in names for event in STREAMS[name][1]]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=20)))
    pieces = [stream[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert read(pieces) == events


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_an_event_has_its_limit(size: int) -> None:
    """In one line or in many, whole or not."""
    for stream in (b"data: " + b"x" * 200 + b"\n\n", b"data: xxxxxxxxx\n" * 20, b": " + b"x" * 200):
        with pytest.raises(TooLarge, match="limit of 100 bytes"):
            read([stream[i : i + size] for i in range(0, len(stream), size)], limit=100)


def test_lines_without_data_are_counted_too() -> None:
    """They are held as well."""
    with pytest.raises(TooLarge, match="limit of 100 bytes"):
        read([b"data:\n" * 200], limit=100)


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_the_limit_is_each_events_own(size: int) -> None:
    """However many there are, and whatever they are cut into."""
    stream = (b"data: " + b"x" * 80 + b"\n\n") * 20
    assert len(read([stream[i : i + size] for i in range(0, len(stream), size)], limit=100)) == 20
