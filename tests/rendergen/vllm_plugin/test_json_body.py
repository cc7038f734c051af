"""A JSON body is read as FastAPI reads it, and refused in FastAPI's words."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fastapi import FastAPI, HTTPException
from fastapi.exceptions import RequestValidationError
from fastapi.testclient import TestClient
from pydantic import BaseModel

from rendergen.vllm_plugin.json_body import SMALL_BYTES, parsed


class Asked(BaseModel):
    number: int
    names: list[str] = []


BAD = {
    "a wrong type": b'{"number": "x"}',
    "a member missing": b'{"names": []}',
    "deep within": b'{"number": 1, "names": ["a", 2]}',
    "a list": b"[1]",
    "text": b'"x"',
    "nothing": b"null",
    "half": b'{"number": ',
    "garbage": b"\x01\x02",
    "a byte too many": b'{"number": 1}x',
}


def by_fastapi(body: bytes) -> list[Any]:
    """The errors that FastAPI itself finds."""
    app = FastAPI()

    @app.post("/")
    async def take(asked: Asked) -> None: ...

    # FastAPI reads annotations by the module's names, where this closure's are strings.
    answer = TestClient(app).post("/", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 422
    return list(answer.json()["detail"])


@pytest.mark.parametrize("body", BAD.values(), ids=BAD)
async def test_a_body_that_is_none(body: bytes) -> None:
    """Error by error the same: vLLM's handler makes its answer of them."""
    with pytest.raises(RequestValidationError) as caught:
        await parsed(body, Asked)
    ours = json.loads(json.dumps(caught.value.errors()))
    theirs = by_fastapi(body)
    assert [(each["type"], each["loc"], each["msg"]) for each in ours] == [
        (each["type"], each["loc"], each["msg"]) for each in theirs
    ]


@pytest.mark.parametrize("size", [1, SMALL_BYTES], ids=["small", "large"])
async def test_a_good_body(size: int) -> None:
    """The request, and the members as they came: small ones at once, large ones in a thread."""
    body = json.dumps({"number": 3, "names": ["x" * size], "more": None}).encode()
    asked, members = await parsed(body, Asked)
    assert asked == Asked(number=3, names=["x" * size])
    assert members["more"] is None


UNREADABLE = {
    "no UTF-8": b'{"number": 1, "names": ["\xff"]}',
    "brackets without end": b"[" * 100_000,
    "a number of 5,000 digits": b'{"number": ' + b"7" * 5000 + b"}",
}


@pytest.mark.parametrize("body", UNREADABLE.values(), ids=UNREADABLE)
async def test_what_python_cannot_read(body: bytes) -> None:
    """Is a mistake in the request, in FastAPI's words, not a failure of the server."""
    with pytest.raises(HTTPException) as caught:
        await parsed(body, Asked)
    assert (caught.value.status_code, caught.value.detail) == (400, "There was an error parsing the body")
