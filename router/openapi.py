"""The OpenAPI document of what the router serves, answered at ``/openapi.json``.

``openapi.json`` beside this module has what is particular to each operation. What they have in common is said there
once, under ``x-errors`` and ``components``, and is put into each of them here: the headers of requests and answers, and
the error answers. An operation's ``x-errors`` names a set of statuses, its ``x-error-form`` the schema of their bodies.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from importlib import resources
from typing import Any

from aiohttp import web

import rendergen

PATH = "/openapi.json"

_REQUEST_ID = "X-Request-Id"
_REQUEST_HEADERS = (_REQUEST_ID, "X-Rendergen-Deadline-Ms")
# Of the paths whose bodies are not looked at.
_STEP_HEADERS = (*_REQUEST_HEADERS, "X-Rendergen-Model")

# By the schema of an error, which headers come with it.
_ERROR_HEADERS = {"Error": (_REQUEST_ID,), "MessagesError": (_REQUEST_ID, "request-id")}

# A piece of the document: JSON, of which no narrower type would say more.
Json = dict[str, Any]

_BODY: web.AppKey[bytes] = web.AppKey("openapi", bytes)


def add_openapi(app: web.Application) -> None:
    """Serve the document of ``app``'s routes. To be called when all others have been added."""
    app.router.add_get(PATH, _answer)
    app[_BODY] = json.dumps(document(routes_of(app)), ensure_ascii=False).encode()


def routes_of(app: web.Application) -> frozenset[tuple[str, str]]:
    """Method and path of each route of ``app``, but for HEAD, which comes with GET."""
    return frozenset(
        (route.method, route.resource.canonical)
        for route in app.router.routes()
        if route.resource is not None and route.method != "HEAD"
    )


def document(served: Collection[tuple[str, str]] | None = None) -> Json:
    """The document.

    Args:
        served: method and path of each route; operations that are not among them are left out. None leaves out none.
    """
    written = _written()
    errors: Json = written.pop("x-errors")
    written["info"]["version"] = rendergen.__version__
    written["paths"] = {
        path: {method: _completed(operation, errors["sets"])}
        for path, methods in written["paths"].items()
        for method, operation in methods.items()
        if served is None or (method.upper(), path) in served
    }
    responses: Json = written["components"]["responses"]
    for response in responses.values():
        _add_headers(response, (_REQUEST_ID,))
    for schema in _ERROR_HEADERS:
        responses |= {schema + status: _error(answer, schema) for status, answer in errors["answers"].items()}
    return written


def _written() -> Json:
    written: Json = json.loads(resources.files("router").joinpath("openapi.json").read_bytes())
    return written


async def _answer(request: web.Request) -> web.Response:
    return web.Response(body=request.app[_BODY], content_type="application/json")


def _completed(operation: Json, error_sets: dict[str, list[str]]) -> Json:
    """The operation with what it has in common with others; those of the process itself have only their answers' id."""
    common = {name: value for name, value in operation.items() if name not in ("x-errors", "x-error-form")}
    responses: Json = common["responses"]
    for response in responses.values():
        if "$ref" not in response:
            _add_headers(response, (_REQUEST_ID,))
    if "x-errors" not in operation:
        return common
    schema = operation.get("x-error-form", "Error")
    errors = {
        status: {"$ref": f"#/components/responses/{schema}{status}"} for status in error_sets[operation["x-errors"]]
    }
    names = _STEP_HEADERS if operation["x-errors"] == "step" else _REQUEST_HEADERS
    parameters = [{"$ref": f"#/components/parameters/{name}"} for name in names]
    return common | {
        "parameters": parameters + operation.get("parameters", []),
        "responses": responses | errors,
    }


def _error(answer: Json, schema: str) -> Json:
    """An error answer whose body is of that schema."""
    error: Json = json.loads(json.dumps(answer))
    error["content"] = {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}}
    _add_headers(error, _ERROR_HEADERS[schema])
    return error


def _add_headers(response: Json, names: Collection[str]) -> None:
    headers = response.setdefault("headers", {})
    headers.update({name: {"$ref": f"#/components/headers/{name}"} for name in names})
