import json

import pytest

from rendergen.service.capabilities import JSON_ONLY, Capabilities, ask_capabilities
from rendergen.service.errors import DeadlineExceeded, ServiceError
from rendergen.service.pods import CAPABILITIES, Pod, PodClient, open_session
from tests.support.scripted_pod import Answer, Does, json_answer, raw, scripted_pod, streamed
from tests.support.service import QUICK, PlainSettings

ANSWER = {
    "rendergen": "0.1.0",
    "vllm": "0.32.0",
    "models": ["tiny-vlm"],
    "payload_versions": [1],
    "media_types": ["application/vnd.rendergen.payload.v1"],
    "fingerprint": "f",
    "role": "render",
    "supports": {"frames": True, "derender_stream": ["/v1/chat/completions/derender/stream"]},
    "limits": {},
    "signing": False,
}


def test_what_a_pod_says_is_read() -> None:
    """The members that decide something here."""
    read = Capabilities.read(json.dumps(ANSWER).encode())
    assert read == Capabilities(
        frozenset({1}), "f", "0.1.0", "0.32.0", frozenset({"/v1/chat/completions/derender/stream"})
    )
    assert read.speaks_frames


ODD = {
    "nothing": {},
    "other versions": {"payload_versions": [0, 2]},
    "versions of another type": {"payload_versions": ["1", True, 1.0, None, [1]]},
    "no list": {"payload_versions": 1},
    "all of another type": dict.fromkeys(ANSWER, 1),
    "odd paths": {"supports": {"derender_stream": [1, None, {}, ["x"]]}},
    "no list of paths": {"supports": {"derender_stream": "/v1"}},
    "all null": dict.fromkeys(ANSWER),
    "all lists": {name: [[]] for name in ANSWER},
}


@pytest.mark.parametrize("said", ODD.values(), ids=ODD)
def test_what_is_missing_or_odd_counts_as_not_there(said: dict[str, object]) -> None:
    """A pod of another version must not break the router, nor be sent what it does not take."""
    read = Capabilities.read(json.dumps(said).encode())
    assert not read.speaks_frames
    assert read.fingerprint is None
    assert read.derender_stream == frozenset()


def test_more_versions_may_be_spoken() -> None:
    """Newer pods speak to older routers."""
    assert Capabilities.read(b'{"payload_versions":[2,1]}').speaks_frames


@pytest.mark.parametrize("body", [b"", b"[]", b"null", b"{", b"\xff", b"[" * 60_000])
def test_what_is_no_object_is_refused(body: bytes) -> None:
    """As one kind of error."""
    with pytest.raises(ValueError, match=r"."):
        Capabilities.read(body)


async def asked(answer: Answer, timeout_s: float = 15) -> Capabilities:
    """What a pod that answers so can do."""
    async with scripted_pod({CAPABILITIES: answer}) as pod, open_session(PlainSettings(**QUICK)) as session:
        found = await ask_capabilities(PodClient(session, Pod("render pod", pod.url)), timeout_s)
        assert [(seen.method, seen.path) for seen in pod.seen] == [("GET", CAPABILITIES)]
        return found


async def test_a_pod_is_asked() -> None:
    """By vLLM's guarded prefix."""
    assert (await asked(json_answer(json.dumps(ANSWER).encode()))).speaks_frames


JSON_ONLY_ANSWERS = {
    "404": json_answer(b'{"detail":"Not Found"}', 404),
    "405": json_answer(b"", 405),
    "401": json_answer(b'{"error":"Unauthorized"}', 401),
    "html": json_answer(b"<html>"),
    "nothing": json_answer(b""),
    "a list": json_answer(b"[1]"),
}


@pytest.mark.parametrize("answer", JSON_ONLY_ANSWERS.values(), ids=JSON_ONLY_ANSWERS)
async def test_whoever_does_not_know_the_question_speaks_json(answer: Answer) -> None:
    """Bare vLLM, and whatever else stands there."""
    assert await asked(answer) == JSON_ONLY


FAILURES = {
    "500": json_answer(b"", 500),
    "503": json_answer(b"", 503),
    "429": json_answer(b"", 429),
    "closes": streamed(Does.CUT),
    "cut": streamed(b'{"payload', Does.CUT),
    "too much": streamed(*[b" " * 50_000] * 3),
    "no http": raw(b"\x00"),
}


@pytest.mark.parametrize("answer", FAILURES.values(), ids=FAILURES)
async def test_a_failure_is_not_an_answer(answer: Answer) -> None:
    """It says nothing of what the pod can do."""
    with pytest.raises(ServiceError):
        await asked(answer)


async def test_it_is_not_waited_for_longer_than_said() -> None:
    """A pod that hangs."""
    with pytest.raises(DeadlineExceeded):
        await asked(streamed(Does.HANG), 0.1)
