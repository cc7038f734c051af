"""Keeping a few members while a document passes."""

import pytest
from hypothesis import given

from rendergen.payload import MemberCapture, MemberScanner, MemberTooLarge, index_members
from tests.rendergen.payload.documents import cut, documents, one_by_one, randoms, repeatable

DOCUMENT = b'{"a":[1, 2],"b":"xyz","c":{"a":0}, "d": 12 }'


def capture(chunks, names, limit):
    """The members of a document that were captured."""
    scanner = MemberScanner()
    keeper = MemberCapture(names, limit)
    for chunk in chunks:
        offset = scanner.position
        keeper.feed(chunk, offset, scanner.feed(chunk))
    return keeper.captured


@repeatable
@given(documents, randoms)
def test_captured_bytes(data, rng):
    """What is captured are the bytes of the members asked for, wherever the document is cut."""
    spans = index_members(data)
    wanted = [name for name in spans if rng.random() < 0.5]
    expected = {name: data[spans[name].start : spans[name].end] for name in wanted}
    assert capture(cut(data, rng), wanted, len(data)) == expected


def test_only_what_has_ended():
    """A member is there once it has been passed, not before; one that is absent never is."""
    assert capture([b'{"a":[1', b"]"], ["a"], 9) == {"a": b"[1]"}
    assert capture([b'{"a":[1', b","], ["a"], 9) == {}
    assert capture([b'{"a":12'], ["a"], 9) == {}
    assert capture([b'{"b":1}'], ["a"], 9) == {}


@pytest.mark.parametrize("cutter", [lambda data: [data], one_by_one], ids=["whole", "bytes"])
def test_limit(cutter):
    """The limit is over all members together, to the byte, and the error names the one that went beyond it."""
    assert capture(cutter(DOCUMENT), ["a", "b", "d"], 13) == {"a": b"[1, 2]", "b": b'"xyz"', "d": b"12"}
    with pytest.raises(MemberTooLarge) as raised:
        capture(cutter(DOCUMENT), ["a", "b", "d"], 10)
    assert (raised.value.name, raised.value.limit) == ("b", 10)
    assert capture(cutter(DOCUMENT), ["d"], 2) == {"d": b"12"}


def test_limit_before_the_end():
    """A member that is too large is refused as soon as it is, not when it ends."""
    with pytest.raises(MemberTooLarge):
        capture([b'{"a":"xx', b"xx"], ["a"], 4)
