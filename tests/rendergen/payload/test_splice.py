"""Setting the sampling params of a payload in passing."""

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rendergen.payload import (
    DuplicateMember,
    LimitExceeded,
    Limits,
    MalformedJson,
    MemberTooLarge,
    NotAnObject,
    PayloadError,
    SamplingParamsEdit,
    SamplingParamsSplicer,
    Span,
    TruncatedJson,
    index_members,
    merge_sampling_params,
    splice_sampling_params,
)
from tests.rendergen.payload.documents import cut, encode, names, objects, one_by_one, randoms, repeatable, values

EDIT = SamplingParamsEdit({"seed": b"7"}, default_max_tokens=16)
NOTHING = SamplingParamsEdit()


def splice(chunks, edit=EDIT, **options):
    """The document given out, and the splicer that did it."""
    splicer = SamplingParamsSplicer(edit, **options)
    pieces = [piece for chunk in chunks for piece in splicer.feed(chunk)]
    pieces += splicer.finish()
    return b"".join(pieces), splicer


def without(data, span):
    """The SHA-256 of what is outside the span."""
    return hashlib.sha256(data[: span.start] + data[span.end :]).hexdigest()


TABLE = [
    # Present: first, last, among others, with whitespace, with an escaped key.
    (b'{"sampling_params":{},"a":1}', b'{"sampling_params":{"seed":7,"max_tokens":16},"a":1}'),
    (b'{"a":1,"sampling_params":{"n":1}}', b'{"a":1,"sampling_params":{"n":1,"seed":7,"max_tokens":16}}'),
    (
        b' {"features":{} , "sampling_params" :\n{ "seed" : 1 , "max_tokens":5 }\t, "b":2} ',
        b' {"features":{} , "sampling_params" :\n{ "seed" : 7 , "max_tokens":5 }\t, "b":2} ',
    ),
    (b'{"sampling_param\\u0073":{"max_tokens":1}}', b'{"sampling_param\\u0073":{"max_tokens":1,"seed":7}}'),
    (b'{"sampling_params":null}', b'{"sampling_params":{"seed":7,"max_tokens":16}}'),
    # Absent.
    (b"{}", b'{"sampling_params":{"seed":7,"max_tokens":16}}'),
    (b" { } ", b' { "sampling_params":{"seed":7,"max_tokens":16}} '),
    (b'{"a":1}', b'{"a":1,"sampling_params":{"seed":7,"max_tokens":16}}'),
    (b'{"a":"}" }\n', b'{"a":"}" ,"sampling_params":{"seed":7,"max_tokens":16}}\n'),
    # Other things of that name.
    (
        b'{"a":{"sampling_params":{"seed":1}},"b":"sampling_params","sampling_params ":{}}',
        b'{"a":{"sampling_params":{"seed":1}},"b":"sampling_params","sampling_params ":{},'
        b'"sampling_params":{"seed":7,"max_tokens":16}}',
    ),
]


@pytest.mark.parametrize(("data", "expected"), TABLE)
@pytest.mark.parametrize("cutter", [lambda data: [data], one_by_one], ids=["whole", "bytes"])
def test_splice(data, expected, cutter):
    """The value is replaced where it stands, or the member put before the brace; all else stays."""
    result, _ = splice(cutter(data))
    assert result == expected
    assert b"".join(splice_sampling_params(data, EDIT)) == expected


@pytest.mark.parametrize("data", [data for data, _ in TABLE])
def test_empty_edit(data):
    """An edit that changes nothing gives the payload byte for byte, its `null` or its lack of the member too."""
    result, splicer = splice(one_by_one(data), NOTHING)
    assert result == data
    before, after = splicer.sampling_params_span
    assert before == index_members(data).get("sampling_params")
    assert after == (before or Span(data.rindex(b"}"), data.rindex(b"}")))


def payload(members, rendered, rng):
    """A payload of `members` in any order, and of sampling params if `rendered` has them."""
    members = [*members.items(), *(("sampling_params", params) for params in rendered)]
    return encode(dict(rng.sample(members, k=len(members))), rng)


payloads = st.builds(
    payload,
    st.dictionaries(names.filter(lambda name: name != "sampling_params"), values, max_size=5),
    st.lists(st.none() | objects, max_size=1),
    randoms,
)
edits = st.builds(
    SamplingParamsEdit,
    st.dictionaries(names, values.map(json.dumps).map(str.encode), max_size=3),
    st.sampled_from(["merge", "replace"]),
    st.none() | st.integers(0, 100),
)


@repeatable
@given(payloads, edits, randoms)
def test_differs_in_the_span_alone(data, edit, rng):
    """Whatever the payload, the edit and the chunks: outside the spans the digest of input and output is the same,
    and inside the span are the params merged."""
    result, splicer = splice(cut(data, rng), edit)
    before, after = splicer.sampling_params_span
    rendered = None if before is None else data[before.start : before.end]
    if before is not None:
        assert without(result, after) == without(data, before)
    elif after.start == after.end:
        assert result == data
    else:
        # What was inserted is the member: a comma if others precede it, the key, the value.
        comma = b"," if index_members(data) else b""
        start = after.start - len(comma + b'"sampling_params":')
        assert result[start : after.start] == comma + b'"sampling_params":'
        assert without(result, Span(start, after.end)) == hashlib.sha256(data).hexdigest()
    if before is not None or not edit.is_empty():
        assert result[after.start : after.end] == merge_sampling_params(rendered, edit)
    assert result == b"".join(splice_sampling_params(data, edit))


@repeatable
@given(payloads, edits, randoms)
def test_grows_by_what_was_said(data, edit, rng):
    """The length is known from the start, and what is added to reach it is space that means nothing."""
    growth = edit.most_growth()
    splicer = SamplingParamsSplicer(edit, grow_by=growth)
    grown = b"".join(piece for chunk in cut(data, rng) for piece in splicer.feed(chunk)) + b"".join(splicer.finish())
    assert len(grown) == len(data) + growth
    assert same(json.loads(grown), json.loads(b"".join(splice_sampling_params(data, edit))))


def same(one, other):
    """Equal, with NaN equal to itself."""
    return json.dumps(one) == json.dumps(other)


@repeatable
@given(payloads, edits, randoms)
def test_agrees_with_json(data, edit, rng):
    """Decoded, the result is the decoded payload with its params updated or replaced."""
    result, _ = splice(cut(data, rng), edit)
    expected = json.loads(data)
    if not edit.is_empty():
        base = expected.get("sampling_params") if edit.mode == "merge" else None
        merged = (base or {}) | {name: json.loads(value) for name, value in edit.overrides.items()}
        if edit.default_max_tokens is not None:
            merged.setdefault("max_tokens", edit.default_max_tokens)
        expected["sampling_params"] = merged
    assert repr(json.loads(result)) == repr(expected)


@repeatable
@given(payloads, st.data(), randoms)
def test_truncated(data, draw, rng):
    """A payload that is cut short is never completed."""
    end = draw.draw(st.integers(0, len(data.rstrip()) - 1))
    with pytest.raises(TruncatedJson):
        splice(cut(data[:end], rng))


def test_given_out_at_once():
    """Only the value itself is held back: what precedes and what follows it goes out with its chunk."""
    splicer = SamplingParamsSplicer(EDIT)
    assert splicer.feed(b'{"features":"') == [b'{"features":"']
    assert splicer.feed(b"AAAA") == [b"AAAA"]
    assert splicer.feed(b'","sampling_params":{"see') == [b'","sampling_params":']
    with pytest.raises(RuntimeError):
        _ = splicer.sampling_params_span
    assert splicer.feed(b'd":1') == []
    assert splicer.feed(b'},"x":') == [b'{"seed":7,"max_tokens":16}', b',"x":']
    assert splicer.sampling_params_span == (Span(37, 47), Span(37, 63))
    assert splicer.feed(b"[1]") == [b"[1]"]
    assert splicer.feed(b"") == []
    assert splicer.feed(b"}\n") == [b"}\n"]
    assert splicer.finish() == []


def test_untouched_bytes_are_views():
    """What passes is a view of the chunk it came in."""
    chunk = b'{"a":1,"sampling_params":{},"b":"'
    pieces = SamplingParamsSplicer(EDIT).feed(chunk)
    assert [isinstance(piece, memoryview) and piece.obj is chunk for piece in pieces] == [True, False, True]


@pytest.mark.parametrize("cutter", [lambda data: [data], one_by_one], ids=["whole", "bytes"])
def test_capture(cutter):
    """Members asked for are kept as they were received, the sampling params too."""
    data = b'{"request_id":"r" ,"token_ids": [1, 2],"sampling_params":{ },"x":{"token_ids":[]}}'
    _, splicer = splice(cutter(data), capture=("token_ids", "request_id", "sampling_params", "absent"))
    assert splicer.captured == {"request_id": b'"r"', "token_ids": b"[1, 2]", "sampling_params": b"{ }"}


def test_capture_limits():
    """Held members are bounded, each kind by its own limit, and the error names member and limit."""
    data = b'{"token_ids":[1,2,3],"sampling_params":{"n":1}}'
    splice([data], capture=["token_ids"], max_captured_bytes=7, max_sampling_params_bytes=7)
    with pytest.raises(MemberTooLarge, match=r"'token_ids'.*6") as raised:
        splice([data], capture=["token_ids"], max_captured_bytes=6)
    assert (raised.value.name, raised.value.limit) == ("token_ids", 6)
    with pytest.raises(MemberTooLarge, match=r"'sampling_params'.*6") as raised:
        splice(one_by_one(data), max_sampling_params_bytes=6)
    assert (raised.value.name, raised.value.limit) == ("sampling_params", 6)


def test_whole_document_has_no_bound():
    """The whole-document form takes sampling params as large as the document it was given."""
    data = b'{"sampling_params":{"x":"' + b"y" * (5 << 20) + b'"}}'
    assert b"".join(splice_sampling_params(data, NOTHING)) == data


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b'{"sampling_params":{},"sampling_params":{}}', DuplicateMember),
        (b'{"sampling_params":null,"sampling_param\\u0073":{}}', DuplicateMember),
        (b'{"sampling_params":{"seed":1,"seed":2}}', DuplicateMember),
        (b'{"sampling_params":[]}', NotAnObject),
        (b'{"sampling_params":"{}"}', NotAnObject),
        (b'{"sampling_params":0}', NotAnObject),
        (b"[{}]", MalformedJson),
        (b"{}{}", MalformedJson),
        (b'{"a":1,}', MalformedJson),
        (b'{"a":1,"b":2,"c":3}', LimitExceeded),
    ],
)
@pytest.mark.parametrize("edit", [EDIT, NOTHING, SamplingParamsEdit({}, "replace")])
def test_refused(data, error, edit):
    """What is malformed, double or no object is refused, whatever the edit."""
    for chunks in ([data], one_by_one(data)):
        with pytest.raises(error):
            splice(chunks, edit, limits=Limits(members=2))
    with pytest.raises(PayloadError):
        splice_sampling_params(data, edit, Limits(members=2))


def test_offsets_are_those_of_the_document():
    """What is malformed inside the sampling params is reported where it is in the payload."""
    with pytest.raises(MalformedJson) as raised:
        splice([b'{"a":1,"sampl', b'ing_params":{"n":1,}}'])
    assert raised.value.offset == 32
