import json

import pytest

from rendergen.service.errors import DeadlineExceeded, ServiceError
from rendergen.service.pods import MODELS, Pod, PodClient, open_session
from rendergen.service.served_models import MAX_MODELS, Models, ServedModel, ask_models, read_models
from tests.support.scripted_pod import Answer, Does, json_answer, raw, scripted_pod, streamed
from tests.support.service import QUICK, PlainSettings

BASE = b'{"id":"base" ,"object":"model","created":1.50E+2,"root":"/models/base","parent":null,"permission":[{"a":[]}]}'
ADAPTER = b'{"id":"\\u0061dapter","root":"/loras/a","parent":"base"}'


def test_what_a_pod_serves_is_read() -> None:
    """In its order, each object as it was, but for paths of the pod's, which are not for callers."""
    found = read_models(
        b'{"object":"list", "data": [' + BASE + b" ,\n" + ADAPTER + b' , {"id":"base","root":"other"} ]}'
    )
    assert list(found.values()) == [
        ServedModel("base", "/models/base", None, BASE.replace(b"/models/base", b"base")),
        ServedModel("adapter", "/loras/a", "base", ADAPTER.replace(b"/loras/a", b"adapter")),
    ]
    assert list(found) == ["base", "adapter"]


@pytest.mark.parametrize("root", ["Qwen/Qwen2.5-VL-3B-Instruct", "m"])
def test_where_a_model_of_a_hub_is_from_may_be_told(root: str) -> None:
    """It is no place of ours."""
    model = json.dumps({"id": "x", "root": root}).encode()
    assert read_models(b'{"data":[' + model + b"]}")["x"].raw == model


@pytest.mark.parametrize("root", ["/models/m", "./m", "../m", "~/m"])
def test_a_path_of_the_pods_is_not_told(root: str) -> None:
    """The model's name takes its place; whoever needs it here still has it."""
    model = read_models(json.dumps({"data": [{"id": "x", "root": root}]}).encode())["x"]
    assert (model.root, json.loads(model.raw)) == (root, {"id": "x", "root": "x"})


def test_members_that_are_odd_count_as_not_there() -> None:
    """All but the id are of other use than telling models apart."""
    assert read_models(b'{"data":[{"id":"m","root":1,"parent":[]}]}')["m"] == ServedModel(
        "m", None, None, b'{"id":"m","root":1,"parent":[]}'
    )


def of(number: int) -> bytes:
    return json.dumps({"data": [{"id": str(model)} for model in range(number)]}).encode()


NOT_MODELS = {
    "nothing": b"",
    "no json": b"{",
    "no utf-8": b'{"data":[{"id":"\xff"}]}',
    "a list": b"[]",
    "no data": b"{}",
    "null": b'{"data":null}',
    "data that is no list": b'{"data":{"id":"m"}}',
    "an empty list": b'{"data":[]}',
    "no object": b'{"data":["m"]}',
    "no id": b'{"data":[{"id":"m"},{}]}',
    "an id that is no string": b'{"data":[{"id":1}]}',
    "an empty id": b'{"data":[{"id":""}]}',
    "too many": of(MAX_MODELS + 1),
    "too deep": b'{"data":[{"id":"m","x":' + b"[" * 20_000 + b"]" * 20_000 + b"}]}",
    "a number that is none": b'{"data":[{"id":"m","x":' + b"9" * 9_000 + b"}]}",
}


@pytest.mark.parametrize("body", NOT_MODELS.values(), ids=NOT_MODELS)
def test_what_is_no_list_of_models_is_refused(body: bytes) -> None:
    """As one kind of error, and as a whole: a part of a list would deny the rest."""
    with pytest.raises(ValueError, match=r"."):
        read_models(body)


def test_as_many_as_allowed_are_read() -> None:
    """The bound is on both sides of this number."""
    assert len(read_models(of(MAX_MODELS))) == MAX_MODELS


async def asked(answer: Answer, timeout_s: float = 15) -> Models | None:
    """What a pod that answers so serves."""
    async with scripted_pod({MODELS: answer}) as pod, open_session(PlainSettings(**QUICK)) as session:
        found = await ask_models(PodClient(session, Pod("render pod", pod.url)), timeout_s)
        assert [(seen.method, seen.path) for seen in pod.seen] == [("GET", MODELS)]
        return found


@pytest.mark.parametrize("padding", [0, 200_000], ids=["small", "large"])
async def test_a_pod_is_asked(padding: int) -> None:
    """By OpenAI's path; a large answer is read as well, in a thread."""
    assert list(await asked(json_answer(b'{"data":[' + BASE + b"]}" + b" " * padding)) or ()) == ["base"]


UNKNOWN = {
    "404": json_answer(b'{"detail":"Not Found"}', 404),
    "401": json_answer(b'{"error":"Unauthorized"}', 401),
    "html": json_answer(b"<html>"),
    "no list": json_answer(b'{"data":1}'),
}


@pytest.mark.parametrize("answer", UNKNOWN.values(), ids=UNKNOWN)
async def test_whoever_does_not_answer_it_says_nothing(answer: Answer) -> None:
    """What it serves is not known."""
    assert await asked(answer) is None


FAILURES = {
    "500": json_answer(b"", 500),
    "503": json_answer(b"", 503),
    "429": json_answer(b"", 429),
    "cut": streamed(b'{"data', Does.CUT),
    "too much": streamed(*[b" " * 100_000] * 3),
    "no http": raw(b"\x00"),
}


@pytest.mark.parametrize("answer", FAILURES.values(), ids=FAILURES)
async def test_a_failure_is_not_an_answer(answer: Answer) -> None:
    """It says nothing of what the pod serves."""
    with pytest.raises(ServiceError):
        await asked(answer)


async def test_it_is_not_waited_for_longer_than_said() -> None:
    """A pod that hangs."""
    with pytest.raises(DeadlineExceeded):
        await asked(streamed(Does.HANG), 0.1)
