import re
from pathlib import Path

import pytest

from router.openapi import document

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "api.md").read_text(encoding="utf-8")

ROUTE = re.compile(r"`(GET|POST) (/[^`]*)`")
NAME = re.compile(r"`([^`]+)`")

APIS = {
    "POST /v1/chat/completions": "ChatRequest",
    "POST /v1/completions": "CompletionRequest",
    "POST /v1/messages": "MessagesRequest",
    "POST /v1/responses": "ResponsesRequest",
}


DOCUMENT = document()
SCHEMAS = DOCUMENT["components"]["schemas"]


def table_after(line: str) -> list[list[str]]:
    """The rows of the first table after that line, as cells."""
    after = PAGE.split(f"\n{line}\n", 1)[1]
    rows = re.search(r"(?:^\|.*\n)+", after, re.MULTILINE).group(0).splitlines()
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in rows[2:]]


def names_in(rows: list[list[str]]) -> list[str]:
    """What the first cells name."""
    return [name for row in rows for name in NAME.findall(row[0])]


def test_it_has_every_route_and_no_other() -> None:
    """In the order of the document, which the router's routes are held to (tests/router/test_openapi.py)."""
    routes = [f"{method.upper()} {path}" for path, methods in DOCUMENT["paths"].items() for method in methods]
    assert sorted(names_in(table_after("## Routes"))) == sorted(routes)
    assert {" ".join(route) for route in ROUTE.findall(PAGE)} == set(routes)


@pytest.mark.parametrize("api", APIS)
def test_it_has_every_member_of_a_request_and_no_other(api: str) -> None:
    """Once, in the table of its API."""
    names = names_in(table_after(f"`{api}`:"))
    assert sorted(names) == sorted(SCHEMAS[APIS[api]]["properties"])


def test_it_has_every_member_that_two_apis_share() -> None:
    names = names_in(table_after("Those shared by chat and completions:"))
    assert sorted(names) == sorted(SCHEMAS["Sampling"]["properties"])


@pytest.mark.parametrize("api", APIS)
def test_what_the_router_looks_at_is_in_the_document(api: str) -> None:
    """Every member that decides something here is one that the document lists."""
    short = api.rpartition("/v1/")[2].partition("/")[0]
    looked_at = [
        name
        for row in table_after("### What the router looks at")
        if row[1] == "all" or short in row[1]
        for name in NAME.findall(row[0])
    ]
    assert {"model", "stream", "sampling_params"} < set(looked_at) <= set(SCHEMAS[APIS[api]]["properties"])


def test_it_has_every_header_of_a_request() -> None:
    names = names_in(table_after("Of requests:"))
    parameters = [
        *DOCUMENT["components"]["parameters"].values(),
        *(each for methods in DOCUMENT["paths"].values() for each in methods.get("post", {}).get("parameters", ())),
    ]
    named = {each["name"] for each in parameters if each.get("in") == "header"}
    assert named | {"x-api-key", "Authorization"} <= set(names)
    assert len(names) == len(set(names))


def test_it_has_every_header_of_an_answer_and_no_other() -> None:
    assert sorted(names_in(table_after("Of answers:"))) == sorted(DOCUMENT["components"]["headers"])


def test_it_has_every_status_of_an_error_and_no_other() -> None:
    """405 is that of no operation: its method is not one."""
    errors = {name[-3:] for name in DOCUMENT["components"]["responses"] if name[-3:].isdigit()}
    assert [row[0] for row in table_after("## Errors")] == sorted(errors | {"405"})


def test_its_links_lead_somewhere() -> None:
    """To files that are there, and to headings of this page."""
    headings = {
        re.sub(r"[^a-z0-9 -]", "", line.lstrip("# ").lower()).replace(" ", "-")
        for line in PAGE.splitlines()
        if line.startswith("#")
    }
    for target in re.findall(r"\]\(([^)]+)\)", PAGE):
        path, _, anchor = target.partition("#")
        assert (Path(__file__).resolve().parents[2] / "docs" / path).exists(), target
        assert path or anchor in headings, target
