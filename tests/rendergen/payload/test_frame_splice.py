"""Setting the sampling params of a payload in frames in passing."""

import json
import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rendergen.payload import (
    DuplicateMember,
    FrameSplicer,
    LimitExceeded,
    MalformedFrames,
    MalformedJson,
    MemberTooLarge,
    NotAnObject,
    SamplingParamsEdit,
    SeveralPayloads,
    merge_sampling_params,
)
from rendergen.payload import frames as format_of_frames
from tests.rendergen.payload.documents import cut, encode, names, objects, one_by_one, randoms, repeatable, values
from tests.rendergen.payload.frames import (
    MEDIA_TYPE,
    frames,
    head_of,
    outside_and_params,
    padded,
    preamble,
    tail_of,
)

EDIT = SamplingParamsEdit({"seed": b"7"}, default_max_tokens=16)
NOTHING = SamplingParamsEdit()
PIXELS = bytes(range(256))


def splice(chunks, edit=EDIT, **options):
    """The payload given out, and the splicer that did it."""
    splicer = FrameSplicer(edit, **options)
    pieces = [piece for chunk in chunks for piece in splicer.feed(chunk)]
    pieces += splicer.finish()
    return b"".join(pieces), splicer


edits = st.builds(
    SamplingParamsEdit,
    st.dictionaries(names, values.map(json.dumps).map(str.encode), max_size=3),
    st.sampled_from(["merge", "replace"]),
    st.none() | st.integers(0, 100),
)
payloads = st.builds(
    frames,
    st.lists(st.integers(0, 2**32 - 1), max_size=40),
    st.lists(st.binary(max_size=70), max_size=4),
    st.builds(encode, objects, randoms),
)


def test_the_media_type_is_the_documented_one():
    """It is part of the contract with the plugin."""
    assert format_of_frames.MEDIA_TYPE == MEDIA_TYPE


@repeatable
@given(payloads, edits, randoms)
def test_differs_in_the_tail_alone(payload, edit, rng):
    """Whatever the payload, the edit and the chunks: what is before the tail stays, and the params are those merged."""
    spliced, splicer = splice(cut(payload, rng), edit)
    before, params, _ = outside_and_params(payload)
    after, merged, _ = outside_and_params(spliced)
    assert after == before
    assert merged == merge_sampling_params(params, edit)
    assert padded(splicer.head) == padded(payload[32 : 32 + len(splicer.head)])
    assert len(splicer.head) == struct.unpack_from("<I", payload, 16)[0]


@repeatable
@given(payloads, edits, randoms)
def test_grows_by_what_was_said(payload, edit, rng):
    """The length is known from the start, and what is added to reach it is space that means nothing."""
    growth = edit.most_growth()
    grown, _ = splice(cut(payload, rng), edit, grow_by=growth)
    exact, _ = splice([payload], edit)
    assert len(grown) == len(payload) + growth
    assert json.dumps(outside_and_params(grown)[2]) == json.dumps(outside_and_params(exact)[2])
    assert outside_and_params(grown)[0] == outside_and_params(exact)[0]


@repeatable
@given(payloads, st.data(), randoms)
def test_truncated(payload, draw, rng):
    """A payload that is cut short is never completed, and the error says how much of it came."""
    end = draw.draw(st.integers(0, len(payload) - 1))
    with pytest.raises(MalformedFrames, match=f"too early, after {end} bytes"):
        splice(cut(payload[:end], rng))


@repeatable
@given(payloads, st.binary(min_size=1, max_size=40), randoms)
def test_what_follows_is_refused(payload, more, rng):
    """A second payload or a single byte; the error says where the payload ended."""
    for chunks in (cut(payload + more, rng), [payload, more]):
        with pytest.raises(MalformedFrames, match=f"something follows the payload, after its {len(payload)} bytes"):
            splice(chunks)


@repeatable
@given(payloads, randoms)
def test_an_edit_that_changes_nothing(payload, rng):
    """It gives the payload byte for byte."""
    assert splice(cut(payload, rng), NOTHING)[0] == payload


def test_given_out_at_once():
    """Only the preamble and the tail are held back until they are whole: all else goes out with its chunk."""
    payload = frames(tensors=[PIXELS], params=b'{"n":1}')
    tail = len(payload) - 11
    splicer = FrameSplicer(EDIT)
    assert splicer.feed(payload[:31]) == []
    assert b"".join(splicer.feed(payload[31:40])) == payload[:40]
    assert splicer.head is None
    assert b"".join(splicer.feed(payload[40 : tail - 1])) == payload[40 : tail - 1]
    assert splicer.head == head_of([1, 2, 3], [PIXELS])
    assert splicer.feed(payload[tail - 1 : tail]) == [payload[tail - 1 : tail]]
    assert splicer.feed(payload[tail:-1]) == []
    assert splicer.feed(payload[-1:]) == [tail_of(b'{"n":1,"seed":7,"max_tokens":16}')]
    assert splicer.feed(b"") == []


def test_tensors_are_views():
    """What passes is the chunk, or a view of it, whatever its size."""
    payload = frames(tensors=[PIXELS * 4])
    splicer = FrameSplicer(EDIT)
    first, second, third = payload[:400], payload[400:800], payload[800:]
    preamble_alone, *others = splicer.feed(first)
    assert preamble_alone == payload[:32]
    assert all(isinstance(piece, memoryview) and piece.obj is first for piece in others)
    [piece] = splicer.feed(second)
    assert piece is second
    pieces = splicer.feed(third)
    assert isinstance(pieces[0], memoryview)
    assert pieces[0].obj is third


def test_memory_does_not_grow_with_the_tensors():
    """64 MiB pass, and what is held stays far below one of their chunks."""
    chunk = bytes(1 << 20)
    head = head_of([1])
    splicer = FrameSplicer(EDIT)
    splicer.feed(preamble(len(head), 64 << 20) + padded(head))
    tracemalloc.start()
    try:
        for _ in range(64):
            splicer.feed(chunk)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()
    assert b"".join(splicer.feed(tail_of(b"{}"))) == tail_of(b'{"seed":7,"max_tokens":16}')


HEAD = head_of([1])
REST = padded(HEAD) + tail_of(b"{}")
SIZE = len(HEAD)

REFUSED = {
    "json": (b'{"token_ids":[1],"sampling_params":{},"x":"' + b"y" * 50 + b'"}', MalformedFrames, "magic"),
    "one byte of the magic": (preamble(SIZE, 0, magic=b"\x89RGPAY\n\n") + REST, MalformedFrames, "magic"),
    "version 0": (preamble(SIZE, 0, version=0) + REST, MalformedFrames, "version 0"),
    "version 2": (preamble(SIZE, 0, version=2) + REST, MalformedFrames, "version 2"),
    "two payloads": (preamble(SIZE, 0, count=2) + REST, SeveralPayloads, "2 payloads"),
    "the second of two": (preamble(SIZE, 0, count=2, index=1) + REST, SeveralPayloads, "2 payloads"),
    "the second of one": (preamble(SIZE, 0, index=1) + REST, MalformedFrames, "contradicts itself"),
    "none": (preamble(SIZE, 0, count=0) + REST, MalformedFrames, "contradicts itself"),
    "first zero": (preamble(SIZE, 0, zero=1) + REST, MalformedFrames, "contradicts itself"),
    "second zero": (preamble(SIZE, 0, zero_too=1) + REST, MalformedFrames, "contradicts itself"),
    "tensors not aligned": (preamble(SIZE, 8) + REST, MalformedFrames, "contradicts itself"),
    "padding": (preamble(3, 0) + b"abc" + b"\0" * 12 + b"\1" + tail_of(b"{}"), MalformedFrames, "padding"),
    "no params": (preamble(SIZE, 0) + padded(HEAD) + tail_of(b""), NotAnObject, "sampling_params"),
    "params are a list": (preamble(SIZE, 0) + padded(HEAD) + tail_of(b"[]"), NotAnObject, "sampling_params"),
    "a param twice": (frames(params=b'{"n":1,"n":2}'), DuplicateMember, "'n'"),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("cutter", [lambda data: [data], one_by_one], ids=["whole", "bytes"])
@pytest.mark.parametrize("edit", [EDIT, NOTHING, SamplingParamsEdit({}, "replace")])
def test_refused(case, cutter, edit):
    """However it is cut, whatever the edit: the error says what is wrong and where."""
    payload, error, message = case
    with pytest.raises(error, match=message) as raised:
        splice(cutter(payload), edit)
    assert type(raised.value) is error


@pytest.mark.parametrize("payload", [REFUSED["json"][0], REFUSED["version 2"][0], REFUSED["two payloads"][0]])
def test_another_thing_is_refused_before_anything_is_given_out(payload):
    """So that nothing needs to be taken back."""
    splicer = FrameSplicer(EDIT)
    assert splicer.feed(payload[:31]) == []
    with pytest.raises((MalformedFrames, SeveralPayloads)):
        splicer.feed(payload[31:32])


def test_offsets_are_those_of_the_payload():
    """What is malformed inside the sampling params is reported where it is in the payload."""
    payload = frames(params=b'{"n":1,}')
    with pytest.raises(MalformedJson) as raised:
        splice([payload])
    assert raised.value.offset == len(payload) - 1


def test_limits():
    """Head and tail are bounded, each by its own limit, and refused before they are held."""
    payload = frames(params=b'{"n":1}')
    [size] = struct.unpack_from("<I", payload, 16)
    splice([payload], max_head_bytes=size, max_sampling_params_bytes=7)
    with pytest.raises(LimitExceeded, match=f"head.*{size - 1}"):
        splice([payload[:32]], max_head_bytes=size - 1)
    with pytest.raises(MemberTooLarge, match=r"'sampling_params'.*6"):
        splice([payload[:-7]], max_sampling_params_bytes=6)
