import json
from collections.abc import Iterator

import aiohttp
import jsonschema_rs
import pytest
import schemathesis
from aiohttp import web

import rendergen
from rendergen.service import errors
from rendergen.service.errors import CallerLeft, MethodNotAllowed, PodRefusal, ServiceError
from router.apis import APIS, Api
from router.openapi import add_openapi, document, routes_of
from tests.support.router import routed
from tests.support.scripted_pod import ScriptedPod

# Answered outside of any operation: the method is not that of one, and nobody reads the other.
NOT_OF_AN_OPERATION = {MethodNotAllowed.status, CallerLeft.status}


DOCUMENT = document()
OPERATIONS = {
    (method.upper(), path): operation
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
}


def values_within(value: object) -> Iterator[object]:
    """The value, and everything in it."""
    yield value
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for each in inner:
        yield from values_within(each)


def references_in(value: object) -> set[str]:
    return {each["$ref"] for each in values_within(value) if isinstance(each, dict) and "$ref" in each}


def pointed_to(reference: str) -> dict:
    found = DOCUMENT
    for name in reference.removeprefix("#/").split("/"):
        found = found[name]
    return found


def answer_of(operation: dict, status: str) -> dict:
    answer = operation["responses"][status]
    return pointed_to(answer["$ref"]) if "$ref" in answer else answer


def test_it_is_openapi() -> None:
    """By the rules of OpenAPI 3.1."""
    schemathesis.openapi.from_dict(DOCUMENT).validate()
    assert DOCUMENT["openapi"].startswith("3.1.")


def test_its_schemas_are_schemas() -> None:
    """By the rules of JSON Schema, in the dialect of OpenAPI 3.1."""
    for schema in DOCUMENT["components"]["schemas"].values():
        jsonschema_rs.Draft202012Validator(schema | {"components": DOCUMENT["components"]})


def test_what_is_referred_to_is_there_and_the_rest_is_not() -> None:
    """No reference leads nowhere, and no component is left over."""
    components = {f"#/components/{kind}/{name}" for kind, named in DOCUMENT["components"].items() for name in named}
    schemes = {reference for reference in components if reference.startswith("#/components/securitySchemes/")}
    # The one operation that has errors in Anthropic's form does not have this one.
    unused = {"#/components/responses/MessagesError412"}
    assert references_in(DOCUMENT) == components - schemes - unused
    assert {name for each in DOCUMENT["security"] for name in each} == set(DOCUMENT["components"]["securitySchemes"])


async def test_it_has_what_the_router_serves(
    render: ScriptedPod, generate: ScriptedPod, caller: aiohttp.ClientSession
) -> None:
    """Every route of the router, and no other."""
    async with routed([render], [generate]) as url, caller.get(url + "/openapi.json") as answer:
        assert answer.status == 200
        assert answer.content_type == "application/json"
        served = await answer.json()
    assert served == DOCUMENT


@pytest.mark.parametrize(
    ("switch", "gone"),
    [
        ("raw_render", lambda path: path.endswith("/render") or "/derender" in path),
        ("raw_generate", lambda path: path.startswith("/inference/")),
    ],
)
async def test_what_is_switched_off_is_not_in_it(
    render: ScriptedPod, generate: ScriptedPod, caller: aiohttp.ClientSession, switch: str, gone: object
) -> None:
    """As callers cannot reach it."""
    settings = {switch: False}
    async with routed([render], [generate], **settings) as url, caller.get(url + "/openapi.json") as answer:
        paths = set((await answer.json())["paths"])
    assert paths == {path for path in DOCUMENT["paths"] if not gone(path)}


async def test_routes_of_an_app() -> None:
    """With their methods; HEAD comes with GET, and the document is of what was there before it."""

    async def nothing(_: web.Request) -> web.Response:
        return web.Response()

    app = web.Application()
    app.router.add_get("/livez", nothing)
    app.router.add_post("/v1/messages", nothing)
    add_openapi(app)
    assert routes_of(app) == {("GET", "/livez"), ("POST", "/v1/messages"), ("GET", "/openapi.json")}
    assert set(document(routes_of(app))["paths"]) == {"/livez", "/v1/messages", "/openapi.json"}
    assert document([("GET", "/v1/messages")])["paths"] == {}


def test_its_version_is_the_products() -> None:
    assert DOCUMENT["info"]["version"] == rendergen.__version__


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_every_error_has_its_status_in_it(api: Api) -> None:
    """Whatever the four APIs can answer is described; a new error has to be added."""
    kinds = {kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, ServiceError)}
    statuses = {kind.status for kind in kinds - {PodRefusal, ServiceError}} - NOT_OF_AN_OPERATION
    assert statuses <= {int(status) for status in OPERATIONS["POST", api.path]["responses"]}


@pytest.mark.parametrize("route", OPERATIONS, ids=" ".join)
def test_the_form_of_errors(route: tuple[str, str]) -> None:
    """Anthropic's on its own path, OpenAI's on all others, and always with the request's id."""
    operation = OPERATIONS[route]
    schema = "MessagesError" if route[1] == "/v1/messages" else "Error"
    for status in operation["responses"]:
        answer = answer_of(operation, status)
        assert "X-Request-Id" in answer["headers"]
        if int(status) >= 400 and "process" not in operation["tags"]:
            assert references_in(answer["content"]) == {f"#/components/schemas/{schema}"}
            assert ("request-id" in answer["headers"]) == (schema == "MessagesError")


@pytest.mark.parametrize(("method", "path"), OPERATIONS, ids=" ".join)
def test_what_is_posted_has_a_body(method: str, path: str) -> None:
    assert ("requestBody" in OPERATIONS[method, path]) == (method == "POST")


def test_operations_have_names_of_their_own() -> None:
    names = [operation["operationId"] for operation in OPERATIONS.values()]
    assert len(names) == len(set(names))


EXAMPLES = {
    f"{path} {name}": (media["schema"], example["value"])
    for (_, path), operation in OPERATIONS.items()
    for media in operation.get("requestBody", {}).get("content", {}).values()
    for name, example in media.get("examples", {}).items()
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_examples_are_what_they_are_examples_of(name: str) -> None:
    schema, example = EXAMPLES[name]
    jsonschema_rs.Draft202012Validator(schema | {"components": DOCUMENT["components"]}).validate(example)


def test_callers_can_send_what_is_not_listed() -> None:
    """What vLLM knows and we do not reaches it."""
    for api in APIS:
        content = OPERATIONS["POST", api.path]["requestBody"]["content"]
        schema = pointed_to(content["application/json"]["schema"]["$ref"])
        assert schema["additionalProperties"] is True


def test_it_is_small() -> None:
    """Whoever reads it in a browser does not wait."""
    assert len(json.dumps(DOCUMENT)) < 100_000
