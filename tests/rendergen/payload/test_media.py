"""The scan for media, against a plain recursion on what `json` makes of the same document."""

import json
from collections import Counter

import pytest
import yarl
from hypothesis import given
from hypothesis import strategies as st

from rendergen.payload import (
    LimitExceeded,
    Limits,
    MalformedJson,
    MediaScanner,
    MemberScanner,
    Span,
    TooManyMedia,
    ValueEnded,
)
from rendergen.payload.media import surely_has_no_media
from tests.rendergen.payload.documents import cut, one_by_one, randoms, repeatable, space, texts, values, write_text

# Where each member of an object stands, by where the object does. What is not listed is nowhere.
MEMBERS = {
    "part": {
        "content": "part",
        "output": "part",
        "image_url": "url",
        "audio_url": "url",
        "video_url": "url",
        "image_pil": "handle",
        "input_audio": "audio",
        "source": "source",
        "image_embeds": "embeds",
        "audio_embeds": "embeds",
        "video_embeds": "embeds",
    },
    "url": {"url": "url"},
    "audio": {"data": "base64"},
    "source": {"url": "url", "data": "base64"},
}
ALL_OF = {"embeds": "base64", "handle": "handles"}
STRINGS = {"url": "url", "handle": "handle", "handles": "handle", "base64": "base64", "embeds": "base64"}
NAMES = sorted({name for members in MEMBERS.values() for name in members} | {"text", "type", "imageurl", "uuid"})
ADDRESSES = ["http://a.b/x", "HTTPS://A.b:80", " http://a.b", "data:image/png;base64,AA", "DaTa:", "dat", "file:///x"]


class Pairs(list):
    """An object's members, of which two may have one name."""


def media_of(value, where="part"):
    """What a conversation, as `json` decodes it, has for media: pairs of kind and string, in order."""
    if isinstance(value, str) and value and where in STRINGS:
        return [(STRINGS[where], value)]
    if isinstance(value, list):
        return [medium for item in value for medium in media_of(item, where)]
    if isinstance(value, dict):
        places = [ALL_OF.get(where) or MEMBERS.get(where, {}).get(name) for name in value]
        return [medium for at, item in zip(places, value.values(), strict=True) for medium in media_of(item, at)]
    return []


def write(value, rng):
    """`value` as JSON, with random whitespace and escapes."""
    if isinstance(value, Pairs):
        members = [
            space(rng) + write_text(name, rng) + space(rng) + ":" + space(rng) + write(item, rng) + space(rng)
            for name, item in value
        ]
        return "{" + (",".join(members) or space(rng)) + "}"
    if isinstance(value, list):
        return "[" + (",".join(space(rng) + write(item, rng) + space(rng) for item in value) or space(rng)) + "]"
    return write_text(value, rng) if isinstance(value, str) else json.dumps(value)


def as_pairs(value):
    """`value` with its objects as pairs."""
    if isinstance(value, dict):
        return Pairs((name, as_pairs(item)) for name, item in value.items())
    return [as_pairs(item) for item in value] if isinstance(value, list) else value


names = st.one_of(st.sampled_from(NAMES), st.sampled_from(NAMES), texts)
leaves = st.one_of(
    st.sampled_from(ADDRESSES),
    texts,
    st.sampled_from(ADDRESSES).flatmap(lambda url: st.integers(60, 5_000).map(lambda size: url + "A" * size)),
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats()),
    values.map(as_pairs),
)


def members_of(inner):
    """Objects that have media, as callers write them."""
    return st.one_of(
        st.builds(lambda name, url: Pairs([("type", name), (name, Pairs([("url", url)]))]), names, inner),
        st.builds(lambda url: Pairs([("role", "user"), ("content", [Pairs([("image_url", url)])])]), inner),
        st.builds(lambda data: Pairs([("source", Pairs([("type", "base64"), ("data", data)]))]), inner),
        st.builds(lambda data: Pairs([("input_audio", Pairs([("data", data), ("format", "wav")]))]), inner),
    )


nodes = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.lists(st.tuples(names, inner), max_size=5).map(Pairs), members_of(inner)
    ),
    max_leaves=20,
)
conversations = st.one_of(
    st.lists(nodes, max_size=4), st.lists(st.tuples(names, nodes), max_size=4).map(Pairs), st.lists(members_of(nodes))
)


def found_in(chunks, start=0):
    """The media of a conversation that comes in chunks, from `start` of the first on."""
    scanner, base = MediaScanner(), 0
    for chunk in chunks:
        scanner.feed(chunk, start, base)
        base, start = base + len(chunk), 0
    assert scanner.ended
    return scanner.found


def described(document, found):
    """The media found as kind and string."""
    described = []
    for medium in found:
        text = json.loads(b'"' + document[medium.span.start : medium.span.end] + b'"')
        described.append((medium.inline, text))
    return described


def expected_of(media):
    """The same of the reference's."""
    return [(kind == "base64" or (kind == "url" and text[:5].lower() == "data:"), text) for kind, text in media]


def has_twice(value):
    """Some object has two members of one name."""
    if isinstance(value, Pairs):
        return len(dict(value)) < len(value) or any(has_twice(item) for _, item in value)
    return isinstance(value, list) and any(map(has_twice, value))


@repeatable
@given(conversations, randoms)
def test_agrees_with_a_recursion_on_what_json_makes_of_it(conversation, rng):
    """The same strings in the same order; where a name is given twice, at least those of what `json` keeps."""
    document = write(conversation, rng).encode("utf-8", "surrogatepass")
    found = described(document, found_in(cut(document + b" ", rng)))
    expected = expected_of(media_of(json.loads(document)))
    if has_twice(conversation):
        assert not Counter(expected) - Counter(found)
    else:
        assert found == expected


@repeatable
@given(conversations, randoms)
def test_chunks_make_no_difference(conversation, rng):
    """Whole, cut anywhere, byte by byte, and with something before and after."""
    document = write(conversation, rng).encode("utf-8", "surrogatepass")
    whole = found_in([document])
    assert found_in(cut(document, rng)) == found_in(one_by_one(document)) == whole
    offset = len(b'{"a":')
    within = found_in([b'{"a":' + document + b',"b":[{"image_url":"http://x"}]}'], offset)
    assert [Span(m.span.start - offset, m.span.end - offset) for m in within] == [m.span for m in whole]


@repeatable
@given(conversations, randoms)
def test_quick_look_is_never_wrong(conversation, rng):
    """It may be unsure, but not mistaken."""
    document = write(conversation, rng).encode("utf-8", "surrogatepass")
    assert not (surely_has_no_media(document) and found_in([document]))


tokens = st.sampled_from([b"[", b"{", b"]", b"}", b'"', b"\\", b",", b":", b"1", b'"image_url"', b'"content":', b" "])


@repeatable
@given(st.lists(tokens, max_size=30), randoms)
def test_what_is_no_json_ends_where_its_brackets_do(tokens, rng):
    """As the index of members has it; and nothing is raised that is not raised by that."""
    document = b'{"a":[' + b"".join(tokens)
    index, scanner, start = MemberScanner(), MediaScanner(), len(b'{"a":')
    for chunk in [document[:start], *cut(document[start:], rng)]:
        offset = index.position
        try:
            events = index.feed(chunk)
        except MalformedJson:
            return
        if offset >= start and not scanner.ended:
            scanner.feed(chunk, 0, offset)
            assert scanner.ended == any(isinstance(event, ValueEnded) for event in events)


MEDIA = {
    "string": ('[{"content":[{"image_url":"http://x"}]}]', [(False, "http://x")]),
    "object": ('[{"content":[{"type":"image_url","image_url":{"url":"data:x"}}]}]', [(True, "data:x")]),
    "text and uuid": ('[{"content":[{"type":"text","uuid":"u","image_url":"ftp:x"}]}]', [(False, "ftp:x")]),
    "escaped key": (r'[{"content":[{"\u0069mage_url":{"ur\u006C":"http://x"}}]}]', [(False, "http://x")]),
    "longest key, escaped": (
        '[{"content":[{"' + "".join(rf"\u{ord(c):04x}" for c in "image_embeds") + '":"AA"}]}]',
        [(True, "AA")],
    ),
    "escaped content": (r'[{"c\u006fntent":[{"image_url":{"url":"http://x"}}]}]', [(False, "http://x")]),
    "escaped scheme": (r'[{"content":[{"image_url":"\u0064ata:x"}]}]', [(True, "data:x")]),
    "twice": (
        '[{"content":[{"image_url":"data:","image_url":"http://x"}]}]',
        [(True, "data:"), (False, "http://x")],
    ),
    "number before": ('[{"content":[{"a":1,"image_url":"http://x"}]}]', [(False, "http://x")]),
    "nested before": ('[{"content":[{"a":{"b":[]},"image_url":"http://x"}]}]', [(False, "http://x")]),
    "anthropic": ('[{"content":[{"type":"image","source":{"type":"base64","data":"AA"}}]}]', [(True, "AA")]),
    "anthropic url": ('[{"content":[{"source":{"type":"base64","url":"http://x"}}]}]', [(False, "http://x")]),
    "tool result": ('[{"content":[{"content":[{"source":{"url":"http://x"}}]}]}]', [(False, "http://x")]),
    "function output": ('[{"output":[{"type":"input_image","image_url":"http://x"}]}]', [(False, "http://x")]),
    "audio": ('[{"content":[{"input_audio":{"data":"http://x","format":"wav"}}]}]', [(True, "http://x")]),
    "embeddings": (
        '[{"content":[{"image_embeds":{"a":"AA","b":[1]}},{"image_embeds":"B"}]}]',
        [(True, "AA"), (True, "B")],
    ),
    **{
        name: (f'[{{"content":[{{"{name}":{{"url":"http://x"}}}}]}}]', [(False, "http://x")])
        for name in ("image_url", "audio_url", "video_url")
    },
    **{
        name: (f'[{{"content":[{{"{name}":"AA"}}]}}]', [(True, "AA")])
        for name in ("image_embeds", "audio_embeds", "video_embeds")
    },
    "handle": ('[{"content":[{"image_pil":"data:x"}]}]', [(False, "data:x")]),
    "blank": ('[{"content":[{"image_url":" data:x"}]}]', [(False, " data:x")]),
}
NO_MEDIA = {
    "text": '[{"content":"see http://x"}]',
    "text part": '[{"content":[{"type":"text","text":"data:x http://x"}]}]',
    "plain": '"http://x"',
    "number": "1",
    "empty": '[{"content":[{"image_url":{"url":""}},{"image_url":null},{"source":{"data":""}}]}]',
    "arguments": '[{"tool_calls":[{"function":{"arguments":{"image_url":{"url":"http://x"}}}}]}]',
    "tool use": '[{"content":[{"type":"tool_use","input":{"image_url":"http://x","content":[{"image_url":"http://x"}]}}]}]',
    "tool result as text": '[{"role":"tool","content":"{\\"image_url\\": \\"http://x\\"}"}]',
    "schema": '[{"tools":[{"parameters":{"properties":{"image_url":{"url":"http://x"}}}}]}]',
    "source as text": '[{"content":[{"source":"http://x"}]}]',
    "key as value": '[{"content":[{"text":"image_url","b":"http://x"}]}]',
    "detail": '[{"content":[{"image_url":{"detail":"http://x"}}]}]',
    "longer key": '[{"content":[{"image_url' + " " * 80 + '":"http://x"}]}]',
    "longer key, escaped": r'[{"content":[{"'
    + "".join(rf"\u{ord(c):04x}" for c in "image_embedsX")
    + '":"http://x"}]}]',
}


@pytest.mark.parametrize("case", MEDIA.values(), ids=MEDIA)
def test_media(case):
    """In all the forms that vLLM reads."""
    document, expected = case[0].encode(), case[1]
    for chunks in ([document], one_by_one(document)):
        assert described(document, found_in(chunks)) == expected
    assert not surely_has_no_media(document)


@pytest.mark.parametrize("document", NO_MEDIA.values(), ids=NO_MEDIA)
def test_no_media(document):
    """A URL in a text, in what a tool is given or gives, or under any other name."""
    for chunks in ([document.encode()], one_by_one(document.encode())):
        assert found_in([*chunks, b" "]) == []


def test_number_of_media_is_bounded():
    scanner = MediaScanner(max_media=2)
    scanner.feed(b'[{"image_url":"a"},{"image_url":"b"},{"image_url":""}', 0, 0)
    with pytest.raises(TooManyMedia) as raised:
        scanner.feed(b',{"image_url":"c"}]', 0, 0)
    assert raised.value.limit == 2


def test_depth_is_bounded():
    scanner = MediaScanner(Limits(depth=3))
    scanner.feed(b"[[[", 0, 0)
    with pytest.raises(LimitExceeded):
        scanner.feed(b"[", 0, 3)


HOSTS = {
    "http://a.b": "a.b",
    "https://a.b/": "a.b",
    "HTTP://A.b:8080?x": "a.b",
    "http://a.b#@c": "a.b",
    r"https:\/\/a.b\/c": "a.b",
    r"\u0068ttp://\u0061.b/": "a.b",
    "http://a.b/" + "c" * 5_000: "a.b",
    "http://a.b@c.d/": None,
    "http://a.b:x@c.d/": None,
    r"http://a.b\\@c.d/": None,
    r"http://a.b\\.c.d/": None,
    r"http://a.b\t.c.d/": None,
    r"http:\\\\a.b/": None,
    "http:/a.b/": None,
    "http:a.b": None,
    "//a.b/": None,
    "a.b": None,
    " http://a.b/": None,
    "http:// a.b/": None,
    "http://a.b ": None,
    "http://%61.b/": None,
    "http://\uff41.b/": None,
    "http://a\u3002b/": None,
    "http\u017f://a.b/": None,
    "http://\u212a.b/": None,
    "httpx://a.b/": None,
    "ftp://a.b/": None,
    "file://a.b/": None,
    "http://[::1]/": None,
    "http://a.b:/": None,
    "http://" + "a" * 5_000: None,
    "http://a.b:" + "0" * 5_000: None,
    r"http://a.b/\ud83d\ude00": "a.b",
    r"http://a.b\ud83d/": None,
    r"http://a.b\x": None,
    r"http://a.b" + r"\u002f" * 400: "a.b",
    "http://" + r"\u0061" * 170 + "/": None,
}


@pytest.mark.parametrize(("text", "host"), HOSTS.items(), ids=[text[:40] for text in HOSTS])
def test_host_of_a_url(text, host):
    """Told only where every parser of URLs reads the same: never where it might be another's."""
    document = f'[{{"image_url":"{text}"}}]'.encode()
    for chunks in ([document], one_by_one(document)):
        [medium] = found_in(chunks)
        assert (medium.inline, medium.host) == (False, host)


@repeatable
@given(
    st.lists(st.sampled_from([*"ab.:/@\\?#%[] \t\n", "http", "https", "://", "\u3002", "é"]), max_size=12).map("".join)
)
def test_host_is_the_one_that_would_be_connected_to(text):
    """As the client that fetches reads the URL."""
    found = found_in([json.dumps([{"image_url": text}]).encode()])
    if found and found[0].host is not None:
        assert yarl.URL(text).host == found[0].host
