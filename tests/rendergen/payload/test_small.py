"""The quick index of small documents finds what the scanner finds, or leaves the document to it."""

from random import Random

from hypothesis import given

from rendergen.payload.errors import PayloadError
from rendergen.payload.limits import DEFAULT_LIMITS
from rendergen.payload.scanner import MemberScanner, ObjectEnded, ValueEnded
from rendergen.payload.small import SMALL_BYTES, small_elements, small_members
from tests.rendergen.payload.documents import encode, objects, randoms, repeatable

_ALTERED = b'{}[]",:\\ \n\t0123eE.-+truefalsn\x00\xff'


def scanned(data: bytes) -> tuple[dict[str, tuple[int, int]], int] | None:
    """The scanner's index; None if it refuses."""
    scanner = MemberScanner()
    try:
        events = scanner.feed(data)
        scanner.finish()
    except PayloadError:
        return None
    values = {event.name: (event.span.start, event.span.end) for event in events if isinstance(event, ValueEnded)}
    return values, next(event.brace for event in events if isinstance(event, ObjectEnded))


@repeatable
@given(objects, randoms)
def test_agrees_with_the_scanner(value, rng: Random):
    """Whole documents, and the same with a few bytes altered: what the quick index accepts, the scanner accepts too."""
    data = bytearray(encode(value, rng))
    for alterations in range(4):
        quick = small_members(bytes(data))
        assert quick is None or quick == scanned(bytes(data)), (alterations, bytes(data))
        data[rng.randrange(len(data))] = rng.choice(_ALTERED)


def test_plain_documents_are_taken():
    """Or it would be of no use."""
    assert small_members(b' {"a": 1, "b" :[2 ]} ') == ({"a": (7, 8), "b": (15, 19)}, 19)
    assert small_elements(b"[1, {} ]") == [(1, 2), (4, 6)]


def test_what_is_not_plain_is_left_to_the_scanner():
    """Large, deep, with a member twice, with trailing bytes, or no object."""
    deep = DEFAULT_LIMITS.depth + 1
    for data in (
        b'{"a":"%b"}' % bytes(b"x" * SMALL_BYTES),
        b'{"a":' + b"[" * deep + b"]" * deep + b"}",
        b'{"a":1,"a":2}',
        b'{"a":1}x',
        b'{"a":1',
        b"[1]",
        b"",
    ):
        assert small_members(data) is None
    assert small_elements(b"[1") is small_elements(b"{}") is small_elements(b"[1]x") is None
