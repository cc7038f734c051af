"""The whole-document index, setting members and splitting lists, against `json`."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rendergen.payload import (
    DuplicateMember,
    LimitExceeded,
    Limits,
    MalformedJson,
    Span,
    TruncatedJson,
    index_members,
    set_members,
    split_list,
)
from tests.rendergen.payload.documents import documents, encode, names, randoms, repeatable, values

encoded_values = st.builds(encode, values, randoms)


def joined(pieces):
    """The document that the pieces make."""
    return b"".join(pieces)


@repeatable
@given(documents)
def test_index_agrees_with_json(data):
    """The index has the names of `json` in order, and each span holds its value."""
    found = index_members(data)
    expected = json.loads(data)
    assert list(found) == list(expected)
    for name, span in found.items():
        assert repr(json.loads(data[span.start : span.end])) == repr(expected[name])


def test_kinds_of_bytes():
    """Bytes, bytearrays and memoryviews are read alike; a view is read in pieces, whatever its items are."""
    data = b'{"a":"' + b"x\\n" * 200_000 + b'","b":[' + b"1," * 150_000 + b"1]}  "
    data += b" " * (-len(data) % 4)
    expected = {"a": Span(5, 600_007), "b": Span(600_012, 900_015)}
    for given_data in (
        data,
        bytearray(data),
        memoryview(data),
        memoryview(data).cast("I"),
        memoryview(bytearray(data)),
    ):
        assert index_members(given_data) == expected


def test_keeps_nothing():
    """No reference to the document is left behind."""
    data = bytearray(b'{"a":[1,"b"],"c":"d"}')
    index_members(data)
    index_members(memoryview(data))
    data.clear()  # a BufferError if a view of it were still alive


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"[]", MalformedJson),
        (b"{} 1", MalformedJson),
        (b'{"a":1', TruncatedJson),
        (b"", TruncatedJson),
        (b'{"a":1,"\\u0061":1}', DuplicateMember),
        (b'{"a":1,"b":2}', LimitExceeded),
    ],
)
def test_index_refuses(data, error):
    """What the scanner refuses is refused."""
    with pytest.raises(error):
        index_members(data, Limits(members=1) if error is LimitExceeded else Limits())


@pytest.mark.parametrize(
    ("data", "members", "expected"),
    [
        (b"{}", {}, b"{}"),
        (b"{}", {"a": b"1"}, b'{"a":1}'),
        (b" { } ", {"a": b"1"}, b' { "a":1} '),
        (b"{}", {"b": b"1", "a": b"[]"}, b'{"b":1,"a":[]}'),
        (b'{"b":2}', {"a": b"1"}, b'{"b":2,"a":1}'),
        (b'{"b":2 \n}\n', {"a": b"1"}, b'{"b":2 \n,"a":1}\n'),
        (b'{"a" : 2 , "b":3}', {"a": b"1"}, b'{"a" : 1 , "b":3}'),
        (b'{"b":3,"a":{"a":4}}', {"a": b"1"}, b'{"b":3,"a":1}'),
        (b'{"b":{"a":4}}', {"a": b"1"}, b'{"b":{"a":4},"a":1}'),
        (b'{"\\u0061":2}', {"a": b"1"}, b'{"\\u0061":1}'),
        (b'{"a":1,"b":2,"c":3}', {"c": b'"z"', "d": b"4", "a": b'"x"'}, b'{"a":"x","b":2,"c":"z","d":4}'),
        (b'{"a":1.0,"b":1e400}', {"c": b" 0 "}, b'{"a":1.0,"b":1e400,"c": 0 }'),
        (b"{}", {'q"\n': b"1"}, b'{"q\\"\\n":1}'),
    ],
)
def test_set_members(data, members, expected):
    """Present members are replaced in place, absent ones appended before the brace, without a stray comma."""
    assert joined(set_members(data, members)) == expected


@repeatable
@given(documents, st.dictionaries(names, encoded_values, max_size=4))
def test_set_members_agrees_with_json(data, members):
    """The result means what updating the decoded object means, and what was not set keeps its bytes."""
    result = joined(set_members(data, members))
    expected = json.loads(data) | {name: json.loads(value) for name, value in members.items()}
    assert repr(json.loads(result)) == repr(expected)
    before, after = index_members(data), index_members(result)
    for name in before.keys() - members.keys():
        assert data[slice(before[name].start, before[name].end)] == result[slice(after[name].start, after[name].end)]


@repeatable
@given(documents)
def test_setting_what_is_there(data):
    """Setting members to the values they have gives the same bytes."""
    members = {name: data[span.start : span.end] for name, span in index_members(data).items()}
    assert joined(set_members(data, members)) == data
    assert joined(set_members(data, {})) == data


def test_untouched_bytes_are_views():
    """What stays the same is not copied, and no piece is empty."""
    data = b'{"a":1,"b":2}'
    pieces = set_members(data, {"b": b"3", "c": b"4"})
    assert pieces == [b'{"a":1,"b":', b"3", b',"c":4', b"}"]
    assert [piece.obj is data for piece in pieces if isinstance(piece, memoryview)] == [True, True]


@pytest.mark.parametrize(
    "value", [b"", b" ", b"1,", b'1,"x":2', b"[1", b'"a', b"}", b"1 2", b"tru", b"[}", b'{"a":1}}']
)
def test_values_that_are_none(value):
    """A value that is not one JSON value is refused: it could make other members."""
    with pytest.raises(MalformedJson):
        set_members(b"{}", {"a": value})


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"[]", []),
        (b" [ ] ", []),
        (b"[1]", [Span(1, 2)]),
        (b'[ {"a":[1,2]} , "x]\\"" ,null]', [Span(2, 13), Span(16, 22), Span(24, 28)]),
        (b"[[],[[]],{}]", [Span(1, 3), Span(4, 8), Span(9, 11)]),
    ],
)
def test_split_list(data, expected):
    """Each element of the top level is one span, without the whitespace around it."""
    assert split_list(data) == expected


@repeatable
@given(st.lists(values, max_size=6), randoms)
def test_split_list_agrees_with_json(elements, rng):
    """The spans hold the elements of `json`, in order."""
    data = encode(elements, rng)
    found = [json.loads(data[span.start : span.end]) for span in split_list(data)]
    assert repr(found) == repr(json.loads(data))
    for end in range(len(data.rstrip())):
        with pytest.raises(TruncatedJson):
            split_list(data[:end])


@pytest.mark.parametrize(
    ("data", "offset"),
    [
        (b"{}", 0),
        (b"1", 0),
        (b"\xef\xbb\xbf[]", 0),
        (b"[,]", 1),
        (b"[1,]", 3),
        (b"[1 2]", 3),
        (b"[1}", 2),
        (b"[1:2]", 2),
        (b"[[1}]", 3),
        (b"[1],", 3),
        (b"[1] x", 4),
        (b"[01]", 1),
    ],
)
def test_split_list_refuses(data, offset):
    """What is no list, or no whole one, is refused."""
    with pytest.raises(MalformedJson) as raised:
        split_list(data)
    assert raised.value.offset == offset


def test_split_list_limit():
    """The number of elements is bounded."""
    assert len(split_list(b"[1,2,3]", Limits(members=3))) == 3
    with pytest.raises(LimitExceeded):
        split_list(b"[1,2,3]", Limits(members=2))
