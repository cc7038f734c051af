"""An event stream is passed on in whole events, so that an error event can follow wherever it breaks."""

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rendergen.service import forward
from rendergen.service.forward import WholeEvents
from tests.support.carrier import carried_to
from tests.support.polling import soon
from tests.support.scripted_pod import Does, scripted_pod, streamed

ENDS = ["\n", "\r\n", "\r"]
LINES = st.lists(st.sampled_from([b"data: 1", b": comment", b"id: 2", b"x", b""]), max_size=8)
ERROR = b"data: error\n\n"


@pytest.mark.parametrize("end", ENDS)
def test_an_event_is_passed_on_with_its_empty_line(end: str) -> None:
    """One byte at a time, whatever ends its lines: not a byte before, and all of it then."""
    event = f"data: 1{end}id: 2{end}{end}".encode()
    stream = WholeEvents()
    passed = [stream.feed(event[at : at + 1]) for at in range(len(event))]
    assert passed == [b""] * (len(event) - 1) + [event]


def test_whole_events_of_one_read_are_passed_on_together() -> None:
    """And the beginning of the next is held back. Comments are passed on as well."""
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
    assert passed in (b"", end.encode()) or passed.endswith((b"\n\n", b"\r\n\r\n", b"\r\r"))
    assert stream.followed_by(ERROR) == ERROR


def test_an_event_over_the_limit_is_passed_on_as_it_comes() -> None:
    """Memory is bounded; an error then ends the event that was begun before it is one itself."""
    stream = WholeEvents()
    half = b"data: " + b"x" * forward.MAX_HELD_BYTES
    assert stream.feed(half) == half
    assert stream.followed_by(ERROR) == b"\n\n" + ERROR
    assert stream.feed(b"x\n\ndata: 2\n\nda") == b"x\n\ndata: 2\n\n"
    assert stream.finish() == b"da"


def test_events_before_one_over_the_limit_come_first() -> None:
    """And no byte is lost or doubled between the two."""
    stream = WholeEvents()
    half = b"data: " + b"x" * forward.MAX_HELD_BYTES
    passed = stream.feed(b"data: 1\n\n" + half) + stream.feed(b"y\n") + stream.feed(b"\ndata: 2\n\n")
    assert passed == b"data: 1\n\n" + half + b"y\n\ndata: 2\n\n"


@pytest.mark.parametrize("breaks", [False, True])
async def test_a_large_event_through_a_service(breaks: bool, caller: aiohttp.ClientSession) -> None:
    """The same bytes; where the pod breaks off, all that came of it, and the error as an event of its own."""
    large = b"data: " + b"x" * (3 * forward.MAX_HELD_BYTES)
    steps = (b"data: 1\n\n", large, *((Does.CUT,) if breaks else (b"\r\n\r\n",)))
    async with (
        scripted_pod({"/there": streamed(*steps, content_type="text/event-stream")}) as pod,
        carried_to(pod.url) as url,
        caller.post(url, data=b"{}") as answer,
    ):
        body = await soon(answer.read())
    if breaks:
        body, _, error = body.rpartition(b"data: ")
        assert (body.endswith(b"x\n\n"), error.startswith(b'{"error"')) == (True, True)
    else:
        assert body == b"data: 1\n\n" + large + b"\r\n\r\n"
