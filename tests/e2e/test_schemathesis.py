"""Whatever requests are made of the OpenAPI document, the answers are such as it describes.

schemathesis makes them: some that fit their schemas and some that do not, the same in every run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from rendergen.launcher import Stack
from rendergen.tiny_model import TINY_MODEL_NAME
from router.openapi import document

# How many that fit, and that do not. In all about 400 requests.
OF_ANSWERS = {GenerationMode.POSITIVE: 20, GenerationMode.NEGATIVE: 10}
OF_OTHERS = {GenerationMode.POSITIVE: 10, GenerationMode.NEGATIVE: 6}
REQUEST_TIMEOUT_S = 60

# Generations are to be short, and few at a time.
MAX_TOKENS = 4
MAX_CHOICES = 2

CHECKS = [
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]

SCHEMA = schemathesis.openapi.from_dict(document())
OPERATIONS = {result.ok().label: result.ok() for result in SCHEMA.get_all_operations()}

# How a stream ends on the paths that answer by generations, which the router's `sampling_params` keep short.
ENDS = {
    "/v1/chat/completions": "data: [DONE]",
    "/v1/completions": "data: [DONE]",
    "/v1/messages": "event: message_stop\n",
    "/v1/responses": "event: response.completed\n",
}
# Needs the plugin: what bare vLLM answers instead.
NOT_BARE = {"/v1/messages": 501, "/v1/responses": 501}

# What takes nothing cannot be asked wrongly.
MODES = [
    (label, mode)
    for label, operation in OPERATIONS.items()
    for mode in GenerationMode
    if "process" not in operation.tags or mode is GenerationMode.POSITIVE
]

EXAMPLES_WRITTEN = {
    f"{label} {name}": (label, example["value"])
    for label, operation in OPERATIONS.items()
    for media in operation.definition.raw.get("requestBody", {}).get("content", {}).values()
    for name, example in media.get("examples", {}).items()
}


def tame(case: Case, *, named: bool) -> None:
    """Bound what the request can cost; and name the served model in it, if ``named``."""
    headers = case.headers or {}
    # It would end what is to be looked at.
    headers.pop("X-Rendergen-Deadline-Ms", None)
    body = case.body
    if not isinstance(body, dict):
        return
    if isinstance(body.get("n"), int) and body["n"] > MAX_CHOICES:
        body["n"] = MAX_CHOICES
    params = body.get("sampling_params")
    if case.path in ENDS and params is None:
        params = body["sampling_params"] = {}
    if isinstance(params, dict):
        params["max_tokens"] = MAX_TOKENS
        params.pop("min_tokens", None)
        if isinstance(params.get("n"), int):
            params["n"] = MAX_CHOICES
    if named:
        body["model"] = TINY_MODEL_NAME


def ends_as_streams_do(case: Case, response: schemathesis.Response) -> None:
    """A stream that has begun comes to its proper end. On the other paths, the pods decide what a stream is."""
    if case.path not in ENDS or not response.headers["content-type"][0].startswith("text/event-stream"):
        return
    last = response.text.rstrip("\n").rsplit("\n\n", 1)[-1]
    assert last.startswith(ENDS[case.path]), response.text
    assert "event: error" not in response.text
    assert 'data: {"error"' not in response.text


def check(case: Case, url: str, *, may_answer: set[int]) -> int:
    """Send the request and hold the answer to the document. Returns its status."""
    response = case.call(base_url=url, timeout=REQUEST_TIMEOUT_S)
    case.validate_response(response, checks=CHECKS)
    if response.status_code >= 500:
        assert response.status_code in may_answer, response.text
    ends_as_streams_do(case, response)
    return response.status_code


@pytest.fixture
def may_answer(request: pytest.FixtureRequest) -> Callable[[str], set[int]]:
    """The statuses above 499 that are right for a path."""
    bare = request.config.getoption("--no-plugin")
    return lambda path: {NOT_BARE[path]} if bare and path in NOT_BARE else set()


@pytest.mark.parametrize("name", EXAMPLES_WRITTEN)
async def test_the_examples_are_served(name: str, stack: Stack, may_answer: Callable[[str], set[int]]) -> None:
    """As they stand in the document."""
    label, body = EXAMPLES_WRITTEN[name]
    operation = OPERATIONS[label]
    case = operation.Case(body=body, media_type="application/json")
    expected = may_answer(operation.path)
    status = await asyncio.to_thread(check, case, stack.router_url, may_answer=expected)
    assert {status} == (expected or {200})


@pytest.mark.parametrize(("label", "mode"), MODES)
async def test_answers_are_as_the_document_says(
    label: str, mode: GenerationMode, stack: Stack, may_answer: Callable[[str], set[int]]
) -> None:
    """Statuses, media types, headers, bodies, whatever was sent; and nothing makes the router or a pod fail."""
    operation = OPERATIONS[label]
    examples = OF_ANSWERS if operation.path in ENDS else OF_OTHERS
    statuses = set()

    @settings(
        max_examples=examples[mode],
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(mode), named=st.booleans())
    def every(case: Case, named: bool) -> None:
        tame(case, named=named)
        statuses.add(check(case, stack.router_url, may_answer=may_answer(operation.path)))

    await asyncio.to_thread(every)
    if mode is GenerationMode.POSITIVE and not may_answer(operation.path) and operation.path in ENDS:
        assert 200 in statuses  # else only refusals were looked at
