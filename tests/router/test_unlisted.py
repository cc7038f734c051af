"""A list of one payload is that payload, in whatever chunks it comes, and no byte is longer or shorter."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rendergen.payload import MalformedJson, PayloadError, SamplingParamsEdit, SamplingParamsSplicer
from router.payload import Unlisted

PAYLOAD = b'{"token_ids":[1,[2]],"a":[[]], "sampling_params":{"n":1} }'
LISTED = [
    b"[" + PAYLOAD + b"]",
    b" \n[ " + PAYLOAD + b" ]\n ",
    b"[" + PAYLOAD.replace(b'"a":[[]]', b'"a":"]]]"') + b"]",
]


def passed(data: bytes, cuts: list[int]) -> bytes:
    """What comes out of ``data`` in chunks that end at ``cuts``."""
    unlisted = Unlisted(SamplingParamsSplicer(SamplingParamsEdit()))
    ends = sorted({min(cut, len(data)) for cut in cuts} | {len(data)})
    out = b""
    start = 0
    for end in ends:
        out += b"".join(unlisted.feed(data[start:end]))
        start = end
    return out + b"".join(unlisted.finish())


@given(data=st.sampled_from([*LISTED, PAYLOAD]), cuts=st.lists(st.integers(1, 90), max_size=90))
def test_only_the_brackets_become_blanks(data: bytes, cuts: list[int]) -> None:
    out = passed(data, cuts)
    assert len(out) == len(data)
    [read] = json.loads(data) if data.strip().startswith(b"[") else [json.loads(data)]
    assert json.loads(out) == read
    assert sum(a != b for a, b in zip(data, out, strict=True)) == (2 if data.strip().startswith(b"[") else 0)


@pytest.mark.parametrize(
    "data",
    [
        b"[]",
        b"[" + PAYLOAD,
        b"[" + PAYLOAD + b"," + PAYLOAD + b"]",
        b"[" + PAYLOAD + b"]]",
        b"[[" + PAYLOAD + b"]]",
        b"",
        b"]",
    ],
)
def test_what_is_no_list_of_one_is_malformed(data: bytes) -> None:
    with pytest.raises(PayloadError):
        passed(data, [])


def test_the_sampling_params_are_at_hand_afterwards() -> None:
    unlisted = Unlisted(SamplingParamsSplicer(SamplingParamsEdit({"n": b"2"})))
    unlisted.feed(LISTED[0])
    unlisted.finish()
    assert unlisted.sampling_params == b'{"n":2}'
    with pytest.raises(MalformedJson):
        Unlisted(SamplingParamsSplicer(SamplingParamsEdit())).finish()
