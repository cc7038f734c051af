"""The bodies of the hop have the size that the tables say, and the check of what arrived can fail."""

from __future__ import annotations

import base64
import json

import pytest

from benchmarks.bodies import OVERRIDES, differs_in_sampling_params_alone, payload

SENT = b'{"token_ids":[1],"sampling_params":{"top_p":0.8,"top_k":20},"model":"m"}'
MERGED = json.dumps({"top_p": 0.8, "top_k": 20, **OVERRIDES}).encode()
ARRIVED = b'{"token_ids":[1],"sampling_params":' + MERGED + b',"model":"m"}'


@pytest.mark.parametrize("size", [1_000, 1_001, 1_007, 400_000, 400_001, 8_500_003])
def test_payload_has_exactly_its_size(size: int) -> None:
    assert len(payload(size)) == size


def test_large_payload_has_images_with_a_placeholder_token_for_each_of_their_positions() -> None:
    document = json.loads(payload(8_500_000))
    placeholders = document["features"]["mm_placeholders"]["image"]
    images = document["features"]["kwargs_data"]["image"]
    assert len(images) == len(placeholders) == 2
    assert all(base64.b64decode(image, validate=True) for image in images)
    assert len(document["token_ids"]) == placeholders[-1]["offset"] + placeholders[-1]["length"]


def test_payload_below_the_size_of_its_members_is_refused() -> None:
    with pytest.raises(ValueError, match="more than 100 bytes"):
        payload(100)


def test_merged_sampling_params_are_as_they_should() -> None:
    assert differs_in_sampling_params_alone(SENT, ARRIVED)


@pytest.mark.parametrize(
    "arrived",
    [
        pytest.param(SENT, id="params not merged"),
        pytest.param(ARRIVED.replace(b"[1]", b"[2]"), id="a byte before"),
        pytest.param(ARRIVED.replace(b'"m"', b'"n"'), id="a byte after"),
        pytest.param(ARRIVED[:-1], id="a byte short"),
        pytest.param(ARRIVED + b" ", id="a byte more"),
        pytest.param(ARRIVED.replace(b"20", b"21"), id="a param that nobody overrode"),
    ],
)
def test_anything_else_differs(arrived: bytes) -> None:
    assert not differs_in_sampling_params_alone(SENT, arrived)


def test_body_that_holds_the_name_twice_is_not_judged() -> None:
    with pytest.raises(ValueError, match="exactly once"):
        differs_in_sampling_params_alone(SENT, SENT + SENT)
