"""The incremental index, against `json`."""

import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rendergen.payload import (
    DuplicateMember,
    LimitExceeded,
    Limits,
    MalformedJson,
    MemberScanner,
    ObjectEnded,
    PayloadError,
    Span,
    TruncatedJson,
    ValueEnded,
    ValueStarted,
)
from tests.rendergen.payload.documents import cut, documents, one_by_one, randoms, repeatable


def scan(chunks, limits=None):
    """Every event of a document, which must end."""
    scanner = MemberScanner(limits or Limits())
    events = [event for chunk in chunks for event in scanner.feed(chunk)]
    scanner.finish()
    return events


def spans(events):
    """The spans by name."""
    return {event.name: event.span for event in events if isinstance(event, ValueEnded)}


def members_by_json(data):
    """What `json` makes of an object: names and values, duplicates too; None if it refuses or it is no object."""
    pairs = None

    def keep(found):
        nonlocal pairs
        pairs = found  # the outermost object comes last
        return dict(found)

    try:
        document = json.loads(data, object_pairs_hook=keep)
    except (ValueError, RecursionError):
        return None
    return pairs if isinstance(document, dict) else None


def assert_agrees(data, found, expected):
    """Names in order, and each span the text of its value and no more."""
    assert list(found) == [name for name, _ in expected]
    for span, (_, value) in zip(found.values(), expected, strict=True):
        text = data[span.start : span.end]
        assert repr(json.loads(text)) == repr(value)
        assert text == text.strip()


@repeatable
@given(documents, randoms)
def test_agrees_with_json(data, rng):
    """Names and values are those of `json`, whatever the document and wherever it is cut."""
    assert_agrees(data, spans(scan(cut(data, rng))), members_by_json(data))


@repeatable
@given(documents, randoms)
def test_chunks_make_no_difference(data, rng):
    """The events are the same, whole or in chunks."""
    assert scan(cut(data, rng)) == scan([data])


@repeatable
@given(documents, st.data(), randoms)
def test_truncated(data, draw, rng):
    """A document that is cut short is refused, wherever it is cut."""
    end = draw.draw(st.integers(0, len(data.rstrip()) - 1))
    with pytest.raises(TruncatedJson) as raised:
        scan(cut(data[:end], rng))
    assert raised.value.offset == end


@repeatable
@given(documents, st.data(), randoms)
def test_mutated(data, draw, rng):
    """A damaged document is refused, or means what it means to `json`, if to `json` it means anything."""
    start = draw.draw(st.integers(0, len(data)))
    end = draw.draw(st.integers(start, min(len(data), start + 3)))
    data = data[:start] + draw.draw(st.text('"\\{}[],: 0atn\x00', max_size=3)).encode() + data[end:]
    expected = members_by_json(data)
    try:
        events = scan(cut(data, rng))
    except DuplicateMember:
        assert expected is None or len(dict(expected)) < len(expected)
    except PayloadError:
        assert expected is None
    else:
        if expected is not None:
            assert_agrees(data, spans(events), expected)


@repeatable
@given(st.lists(st.text('"\\{}[],:01a ', max_size=8), max_size=8), randoms)
def test_noise(parts, rng):
    """What `json` accepts is accepted, and what is not an object is refused, among texts that are mostly no JSON."""
    data = ("{" + "".join(parts) + "}").encode()
    expected = members_by_json(data)
    try:
        found = spans(scan(cut(data, rng)))
    except DuplicateMember:
        return
    except PayloadError:
        assert expected is None
    else:
        if expected is not None:
            assert_agrees(data, found, expected)


def test_events():
    """A member is a start and an end; the object ends with the brace. Positions are absolute."""
    assert scan([b' {"a" : 1', b'2, "b":[', b"] } "]) == [
        ValueStarted("a", 8),
        ValueEnded("a", Span(8, 10)),
        ValueStarted("b", 16),
        ValueEnded("b", Span(16, 18)),
        ObjectEnded(19, 2),
    ]
    assert scan([b"{}"]) == [ObjectEnded(1, 0)]


def test_events_come_at_once():
    """What a chunk shows is reported with it: the start of a value with its first byte, a string with its quote."""
    scanner = MemberScanner()
    assert scanner.feed(b'{"a":') == []
    assert scanner.feed(b'"') == [ValueStarted("a", 5)]
    assert scanner.feed(b'"') == [ValueEnded("a", Span(5, 7))]
    assert scanner.feed(b',"b":7') == [ValueStarted("b", 12)]
    assert scanner.feed(b"}") == [ValueEnded("b", Span(12, 13)), ObjectEnded(13, 2)]
    assert scanner.position == 14


MALFORMED = [
    (b"\xef\xbb\xbf{}", 0),  # byte order mark
    (b"[]", 0),
    (b"null", 0),
    (b'"a"', 0),
    (b"}", 0),
    ("{}".encode("utf-16-le"), 1),
    (b"{} x", 3),
    (b"{}{}", 2),
    (b"{}\x00", 2),
    (b"{,}", 1),
    (b'{"a":1,}', 7),
    (b'{"a":1,,"b":2}', 7),
    (b'{"a":1 "b":2}', 7),
    (b'{"a":1:"b"}', 6),
    (b'{"a" 1}', 5),
    (b'{"a"}', 4),
    (b'{"a",1}', 4),
    (b'{"a"::1}', 5),
    (b'{"a":}', 5),
    (b'{"a":,"b":1}', 5),
    (b"{a:1}", 1),
    (b"{'a':1}", 1),
    (b"{1:1}", 1),
    (b"{null:1}", 1),
    (b'{"a":[1}', 7),
    (b'{"a":{1]', 7),
    (b'{"a":[{"b":"]"}}]}', 15),
    (b'{"a":[1]]}', 8),
    (b'{"a":[1,\\"2"]}', 8),
    (b'{"a":[1]x\\}', 8),
    (b'{"a":["b\\"",\\]}', 12),
    (b'{"a":\\"b"}', 5),
    (b'{"a":"b"c}', 8),
    (b'{"a":"b""c"}', 8),
    (b'{"a":+1}', 5),
    (b'{"a":01}', 5),
    (b'{"a":1.}', 5),
    (b'{"a":.5}', 5),
    (b'{"a":1e}', 5),
    (b'{"a":-}', 5),
    (b'{"a":--1}', 5),
    (b'{"a":1_0}', 6),
    (b'{"a":0x10}', 5),
    (b'{"a":1 2}', 7),
    (b'{"a":tru}', 5),
    (b'{"a":True}', 5),
    (b'{"a":nullx}', 5),
    (b'{"a":-NaN}', 5),
    (b'{"a":infinity}', 5),
    (b'{"a":\xc2\xa01}', 5),  # a space to Python, not to JSON
    (b'{"a":\x0c1}', 5),
    (b'{/**/"a":1}', 1),
    (b'{"\\x":1}', 1),
    (b'{"\\u12":1}', 1),
    (b'{"\x01":1}', 1),
    (b'{"\n":1}', 1),
    (b'{"\xff":1}', 1),
    (b'{"\xc3":1}', 1),
]


@pytest.mark.parametrize(("data", "offset"), MALFORMED)
@pytest.mark.parametrize("cutter", [lambda data: [data], one_by_one], ids=["whole", "bytes"])
def test_malformed(data, offset, cutter):
    """What is wrong at the top level is refused, and the offset says where."""
    assert members_by_json(data) is None or data.startswith((b"\xef", b"{\x00"))
    with pytest.raises(MalformedJson) as raised:
        scan(cutter(data))
    assert raised.value.offset == offset
    assert not isinstance(raised.value, TruncatedJson)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"  ",
        b"{",
        b'{"',
        b'{"a',
        b'{"a"',
        b'{"a":',
        b'{"a":1',
        b'{"a":1,',
        b'{"a":"b',
        b'{"a":"b\\"}',
        b'{"a":[',
        b'{"a":["b]}',
    ],
)
def test_early_end(data):
    """A document that stops in any state has not ended."""
    for chunks in ([data], one_by_one(data)):
        with pytest.raises(TruncatedJson) as raised:
            scan(chunks)
        assert raised.value.offset == len(data)


@pytest.mark.parametrize(
    "value",
    [
        "0",
        "-0",
        "10",
        "-1.5",
        "1e5",
        "1E+5",
        "0.1e-7",
        "1" * 4_000,
        "true",
        "false",
        "null",
        "NaN",
        "Infinity",
        "-Infinity",
    ],
)
@pytest.mark.parametrize("after", ["}", " }", ',"b":0}'])
def test_scalars(value, after):
    """A number or literal ends where its characters end."""
    data = ('{"a":' + value + after).encode()
    for chunks in ([data], one_by_one(data)):
        assert spans(scan(chunks))["a"] == Span(5, 5 + len(value))


@pytest.mark.parametrize(
    "data",
    [
        b'{"a":1,"a":1}',
        b'{"a":1,"\\u0061":2}',
        b'{"\\u00e9":1,"\xc3\xa9":2}',
        b'{"\\/":1,"/":[]}',
        b'{"\\ud83d\\ude00":1,"b":2,"\xf0\x9f\x98\x80":3}',
        b'{"":1,"":1}',
    ],
)
def test_duplicates(data):
    """Two keys that decode to one name are refused, however they are written."""
    for chunks in ([data], one_by_one(data)):
        with pytest.raises(DuplicateMember):
            scan(chunks)


@pytest.mark.parametrize("key", [b"\\ud800", b"\xed\xa0\x80", b"\xf0\x9f\x98\x80", b"\\u0000", b'\\"\\\\', b""])
def test_keys(key):
    """Keys decode as with `json`, lone surrogates too, escaped or not."""
    data = b'{"' + key + b'":1}'
    for chunks in ([data], one_by_one(data)):
        assert list(spans(scan(chunks))) == list(json.loads(data))


def test_duplicates_inside_values():
    """Members of inner objects are not this scanner's."""
    assert spans(scan([b'{"a":{"b":1,"b":2,"a":3},"b":0}'])) == {"a": Span(5, 24), "b": Span(29, 30)}


LIMITS = Limits(depth=3, members=2, key_bytes=4, scalar_bytes=5)


@pytest.mark.parametrize(
    "data",
    [
        b'{"a":[[[1]],{"b":[]}]}',
        b'{"a":1,"b":2}',
        b'{"aaaa":1}',
        b'{"\\"\\"":1}',
        b'{"a":12345}',
        b'{"a":[123456]}',
        b'{"a":"123456"}',
    ],
)
def test_within_limits(data):
    """The limit itself is allowed, and inner keys and numbers do not count."""
    for chunks in ([data], one_by_one(data)):
        scan(chunks, LIMITS)


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b'{"a":[[[[', "lists and objects inside one another"),
        (b'{"a":[{"b":[{}]}]}', "lists and objects inside one another"),
        (b'{"a":1,"b":2,"c":3}', "members of the object"),
        (b'{"aaaaa":1}', "bytes of a key"),
        (b'{"aaaaa', "bytes of a key"),
        (b'{"\\"\\"a":1}', "bytes of a key"),
        (b'{"a":123456', "bytes of a number"),
        (b'{"a":123456}', "bytes of a number"),
    ],
)
def test_beyond_limits(data, what):
    """One beyond a limit is refused, without waiting for the end of what is too long."""
    for chunks in ([data], one_by_one(data)):
        with pytest.raises(LimitExceeded, match=what):
            scan(chunks, LIMITS)


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'[{"b":'])
def test_default_depth(opening):
    """By default 512 levels are read and 513 refused, as many as `json` can take and no more than it can."""
    levels = opening.count(b"[") + opening.count(b"{")
    closing = b"}]" if levels == 2 else b"]" if opening == b"[" else b"}"
    times = 512 // levels
    inner = b"0"
    deep = b'{"k":' + opening * times + inner + closing * times + b"}"
    assert spans(scan([deep]))["k"] == Span(5, len(deep) - 1)
    with pytest.raises(LimitExceeded):
        scan([deep.replace(inner, b"[]")])


@pytest.mark.parametrize("padding", range(0, 200))
def test_windows(padding):
    """A value may end at any place of the windows that nested values are read in."""
    value = b"[" + b"0" * padding + b'["\\"]"],{"a":"\\\\"},"' + b"b" * padding + b'"]'
    data = b'{"k":' + value + b',"l":' + value + b"}"
    assert list(spans(scan([data])).values()) == [Span(5, 5 + len(value)), Span(10 + len(value), 10 + 2 * len(value))]


@pytest.mark.parametrize("bad", [b"\x00", b"{}", b'{"a":'])
def test_no_more_after_an_error(bad):
    """A scanner that has refused a document refuses all that follows, and the end."""
    scanner = MemberScanner()
    with pytest.raises(MalformedJson):
        scanner.feed(b"{}" + bad)
    with pytest.raises(MalformedJson):
        scanner.feed(b"{}")
    with pytest.raises(MalformedJson):
        scanner.finish()


def test_memory_is_constant():
    """Passing megabytes of strings, lists and escapes keeps none of them."""
    chunks = [b"x" * 65_536, b'\\"' * 32_768, b'",' + b'"",[],' * 10_000 + b'"', b"x\\" * 1_000 + b"x"]
    scanner = MemberScanner()
    scanner.feed(b'{"a":["')
    tracemalloc.start()
    try:
        for _ in range(20):
            for chunk in chunks:
                scanner.feed(chunk)
        left, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        for chunk in chunks:
            scanner.feed(chunk)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert scanner.position > 4_000_000
    assert left < 100_000
    assert peak < 1_000_000


INSIDE = [
    (b"", False),
    (b'{"na', False),
    (b'{"name"', False),
    (b'{"name":', False),
    (b'{"name":"', True),
    (rb'{"name":"te\"', True),
    (rb'{"name":"te\"xt', True),
    (rb'{"name":"te\"xt"', False),
    (b'{"name":1', False),
    (b'{"name":[', False),
    (b'{"name":["', True),
    (b'{"name":["a', True),
    (b'{"name":["a"', False),
    (b'{"name":["a",{"key', True),
    (b'{"name":["a",{"key":"b"},[]', False),
    (b'{"name":["a"],"b', False),
    (b'{"name":["a"]}', False),
]


@pytest.mark.parametrize(("read", "inside"), INSIDE)
def test_inside_string(read, inside):
    """Between the quotes of a string within a value, and not within a member's own name."""
    for chunks in ([read], one_by_one(read)):
        scanner = MemberScanner()
        for chunk in chunks:
            scanner.feed(chunk)
        assert scanner.inside_string is inside
