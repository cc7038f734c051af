"""A document in pieces, against the same document whole."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rendergen.payload import Document, MalformedJson, Span, index_members, set_members
from tests.rendergen.payload.documents import cut, documents, randoms, repeatable, values

LARGE = b'{"a":"' + b"A" * 100_000 + b'","b":1 , "c" : "' + b"C" * 50_000 + b'"}'


def in_pieces(data, rng):
    """`data` as a document in pieces of random sizes."""
    return Document(tuple(cut(data, rng)), index_members(data), Document.of(data).brace)


@repeatable
@given(documents, randoms)
def test_values_are_those_of_the_whole(data, rng):
    document = in_pieces(data, rng)
    assert document.size == len(data)
    for name, span in index_members(data).items():
        assert document.value(name) == data[span.start : span.end]


@repeatable
@given(documents, st.dictionaries(st.sampled_from(["a", "sampling_params", "new", 'é"']), values, max_size=3), randoms)
def test_members_are_set_as_in_the_whole(data, given_values, rng):
    raw = {name: json.dumps(value).encode() for name, value in given_values.items()}
    assert b"".join(in_pieces(data, rng).with_members(raw)) == b"".join(set_members(data, raw))


@repeatable
@given(documents, st.lists(st.tuples(st.integers(0, 10_000), st.binary(max_size=3)), max_size=8), randoms)
def test_edits_change_nothing_else(data, edits, rng):
    """Any spans in order, empty ones and neighbours too."""
    document = in_pieces(data, rng)
    bounds = sorted(min(at, len(data)) for at, _ in edits)
    spans = map(Span, bounds[::2], bounds[1::2])
    done = list(zip(spans, (instead for _, instead in edits), strict=False))
    expected, rest = b"", 0
    for span, instead in done:
        expected, rest = expected + data[rest : span.start] + instead, span.end
    assert b"".join(document.edited(done)) == expected + data[rest:]


def test_large_pieces_are_not_copied():
    """A piece that stays whole is the same object, and a part of one is a view of it, unless it is small."""
    pieces = (LARGE[:30_000], LARGE[30_000:90_000], LARGE[90_000:])
    document = Document(pieces, index_members(LARGE), len(LARGE) - 1)
    edited = document.with_members({"b": b"2"})
    assert edited[0] is pieces[0]
    assert edited[1] is pieces[1]
    views = [piece.obj for piece in edited if isinstance(piece, memoryview)]
    assert all(view is pieces[2] for view in views)
    copied = [piece for piece in edited[2:] if not isinstance(piece, memoryview)]
    assert sum(map(len, copied)) < 16 * 1024
    assert b"".join(edited) == LARGE.replace(b'"b":1', b'"b":2')


def test_small_parts_are_put_together():
    """Ten thousand edits are few writes."""
    data = b"{" + b",".join(b'"%d":"x"' % number for number in range(1000)) + b"}"
    document = Document.of(data)
    written = list(document.edited((span, b"1") for span in document.spans.values()))
    assert len(written) == 1
    assert json.loads(written[0]) == {str(number): 1 for number in range(1000)}


def test_document_of_no_object():
    with pytest.raises(MalformedJson):
        Document.of(b"[]")
