import pytest
from hypothesis import given
from hypothesis import strategies as st

from rendergen.service import events
from rendergen.service.events import WholeEvents

ENDS = ["\n", "\r\n", "\r"]
LINES = st.lists(st.sampled_from([b"data: 1", b": comment", b"id: 2", b"x", b""]), max_size=8)


@pytest.mark.parametrize("end", ENDS)
def test_an_event_is_passed_on_with_its_blank_line(end: str) -> None:
    """One byte at a time, whatever ends its lines: not a byte before, and all of it then."""
    event = f"data: 1{end}id: 2{end}{end}".encode()
    stream = WholeEvents()
    passed = [stream.feed(event[at : at + 1]) for at in range(len(event))]
    if end == "\r":  # might be half a CRLF
        passed = [*passed[1:], stream.feed(b"d")]
    assert passed == [b""] * (len(event) - 1) + [event]


def test_whole_events_of_one_read_are_passed_on_together() -> None:
    """And the beginning of the next is held back."""
    stream = WholeEvents()
    assert stream.feed(b": hello\n\ndata: 1\n\ndata:") == b": hello\n\ndata: 1\n\n"
    assert stream.feed(b" 2\r\n") == b""
    assert stream.feed(b"\r\n") == b"data: 2\r\n\r\n"


@given(LINES, st.sampled_from(ENDS), st.lists(st.integers(1, 9), max_size=40))
def test_the_bytes_stay_the_same(lines: list[bytes], end: str, sizes: list[int]) -> None:
    """However the stream is cut, also one whose end is no event."""
    data = end.encode().join(lines)
    stream, passed, at = WholeEvents(), b"", 0
    for size in [*sizes, len(data) + 1]:
        passed += stream.feed(data[at : at + size])
        at += size
    assert passed + stream.finish() == data


@given(LINES, st.sampled_from(ENDS), st.integers(0, 60))
def test_what_follows_a_break_is_an_event_of_its_own(lines: list[bytes], end: str, cut: int) -> None:
    """Wherever the stream broke, nothing half is before it."""
    data = end.encode().join(lines)[:cut]
    stream = WholeEvents()
    passed = stream.feed(data)
    assert passed == b"" or passed.endswith((b"\n\n", b"\r\n\r\n", b"\r\r"))
    assert stream.followed_by(b"data: error\n\n") == b"data: error\n\n"


def test_an_event_over_the_limit_is_passed_on_as_it_comes() -> None:
    """Memory is bounded; an error then ends the event that was begun before it is one itself."""
    stream = WholeEvents()
    half = b"data: " + b"x" * events.MAX_HELD_BYTES
    assert stream.feed(half) == half
    assert stream.followed_by(b"data: error\n\n") == b"\n\ndata: error\n\n"
    assert stream.feed(b"x\n\n") == b"x\n\n"
    assert stream.followed_by(b"data: error\n\n") == b"data: error\n\n"
