import json
import logging
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from multidict import CIMultiDict, CIMultiDictProxy

from rendergen.service.api_keys import ApiKeys, key_line
from rendergen.service.errors import Unauthorized
from rendergen.service.watched_file import BadFile
from router.app import make_router
from router.auth import OPEN_ROUTES, caller_of, read_pod_key
from router.settings import RouterSettings
from tests.support.api_keys import FILE, NOBODY, A, B, rewrite
from tests.support.polling import eventually, soon
from tests.support.raw_caller import raw_caller
from tests.support.router import CHAT, DERENDER, GENERATE, PAYLOAD, RENDER, REQUEST, routed
from tests.support.scripted_pod import CAPABILITIES, ScriptedPod, json_answer
from tests.support.service import QUICK, app_served

KEYS = ApiKeys.read(FILE.encode())
BEARER = {"Authorization": f"Bearer {A}"}


Headers = list[tuple[str, str]]


def caller_by(headers: Headers) -> str:
    return caller_of(CIMultiDictProxy(CIMultiDict(headers)), KEYS)


ADMITTED: dict[str, tuple[Headers, str]] = {
    "bearer": ([("Authorization", f"Bearer {A}")], "alice"),
    "lower case": ([("authorization", f"bearer {A}")], "alice"),
    "upper case": ([("AUTHORIZATION", f"BEARER {A}")], "alice"),
    "spaces": ([("Authorization", f"  Bearer   {A}  ")], "alice"),
    "another key": ([("Authorization", f"Bearer {B}")], "bob"),
    "x-api-key": ([("x-api-key", A)], "alice"),
    "x-api-key, upper case, spaces": ([("X-API-KEY", f" {B} ")], "bob"),
    "both": ([("Authorization", f"Bearer {A}"), ("x-api-key", A)], "alice"),
    "twice the same": ([("Authorization", f"Bearer {A}"), ("Authorization", f"bearer {A}")], "alice"),
    "another scheme beside it": ([("Authorization", "Basic dTpw"), ("x-api-key", A)], "alice"),
    "an empty one beside it": ([("Authorization", "Bearer "), ("x-api-key", A)], "alice"),
}


@pytest.mark.parametrize(("headers", "name"), ADMITTED.values(), ids=ADMITTED)
def test_forms_in_which_a_key_may_come(headers: Headers, name: str) -> None:
    """As OpenAI's clients send it, or Anthropic's, or both."""
    assert caller_by(headers) == name


MISSING: dict[str, Headers] = {
    "nothing": [],
    "empty": [("Authorization", "")],
    "no key": [("Authorization", "Bearer")],
    "spaces": [("Authorization", "Bearer   ")],
    "another scheme": [("Authorization", f"Basic {A}")],
    "no scheme": [("Authorization", A)],
    "no space": [("Authorization", f"Bearer:{A}")],
    "empty x-api-key": [("x-api-key", " ")],
    "another header": [("api-key", A), ("Cookie", f"key={A}"), ("Proxy-Authorization", f"Bearer {A}")],
}


@pytest.mark.parametrize("headers", MISSING.values(), ids=MISSING)
def test_without_a_key(headers: Headers) -> None:
    """The message says how one is sent."""
    with pytest.raises(Unauthorized, match="An API key is needed: send it as"):
        caller_by(headers)


WRONG: dict[str, Headers] = {
    "nobody's": [("Authorization", f"Bearer {NOBODY}")],
    "nobody's x-api-key": [("x-api-key", NOBODY)],
    "cut short": [("Authorization", f"Bearer {A[:-1]}")],
    "too long": [("Authorization", f"Bearer {A}{A}")],
    "a megabyte": [("Authorization", "Bearer " + "k" * 1024 * 1024)],
    "its hash": [("Authorization", f"Bearer {next(iter(KEYS.names)).hex()}")],
    "other letters": [("Authorization", "Bearer \u00e9\u4e2d\U0001f600")],
    "no UTF-8": [("Authorization", "Bearer \udcff\udcfe")],
    "two": [("Authorization", f"Bearer {A}, Bearer {A}")],
    "two in two headers": [("Authorization", f"Bearer {A}"), ("Authorization", f"Bearer {B}")],
    "two kinds": [("Authorization", f"Bearer {A}"), ("x-api-key", B)],
    "a good one and a bad one": [("x-api-key", NOBODY), ("x-api-key", A)],
    "with its scheme": [("x-api-key", f"Bearer {A}")],
}


@pytest.mark.parametrize("headers", WRONG.values(), ids=WRONG)
def test_with_a_wrong_key(headers: Headers) -> None:
    """Always the same message, whatever is wrong with it; and it does not repeat the key."""
    with pytest.raises(Unauthorized) as caught:
        caller_by(headers)
    assert caught.value.message.startswith("This API key is not valid.")
    assert "rendergen-" not in caught.value.message


ANSWERED = OPEN_ROUTES - {"/openapi.json"}


async def status_of(caller: aiohttp.ClientSession, method: str, url: str, **kwargs: Any) -> int:
    async with caller.request(method, url, **kwargs) as answer:
        return answer.status


async def test_who_has_no_key_is_served_nothing(
    render: ScriptedPod, generate: ScriptedPod, caller: aiohttp.ClientSession, keys_file: Path
) -> None:
    """Every route of the router but those for probes; unknown paths and methods too. No pod hears of it."""
    pods = {"render_pods": (render.url,), "generate_pods": (generate.url,)}
    settings = RouterSettings(**pods, api_keys_file=keys_file, **QUICK)
    app = await make_router(settings)
    routes = {(route.method, route.resource.canonical) for route in app.router.routes() if route.resource is not None}
    guarded = [(method, path) for method, path in routes if path not in OPEN_ROUTES]
    assert len(guarded) >= 8
    others = [
        ("GET", "/none"),
        ("DELETE", CHAT),
        ("POST", "/livez"),
        ("GET", "//livez"),
        ("GET", "/livez/"),
        ("GET", "/"),
    ]
    async with app_served(app, settings) as url:
        for method, path in [*guarded, *others]:
            assert await status_of(caller, method, url + path, data=REQUEST) == 401, (method, path)
            wrong = {"Authorization": f"Bearer {NOBODY}"}
            assert await status_of(caller, method, url + path, data=REQUEST, headers=wrong) == 401, (method, path)
        for path in ANSWERED:
            assert await status_of(caller, "GET", url + path) in (200, 503), path
        assert await status_of(caller, "GET", url + "/none", headers=BEARER) == 404
        assert await status_of(caller, "DELETE", url + CHAT, headers=BEARER) == 405
    assert render.seen == generate.seen == []


async def test_the_refusal(
    render: ScriptedPod, generate: ScriptedPod, caller: aiohttp.ClientSession, keys_file: Path
) -> None:
    """In OpenAI's form, with the scheme that is wanted and the request's id."""
    async with (
        routed([render], [generate], api_keys_file=keys_file) as url,
        caller.post(url + CHAT, data=REQUEST, headers={"X-Request-Id": "mine"}) as answer,
    ):
        assert answer.status == 401
        assert answer.headers["WWW-Authenticate"] == "Bearer"
        assert answer.headers["X-Request-Id"] == "mine"
        error = json.loads(await answer.read())["error"]
    assert (error["type"], error["code"], error["param"]) == ("UnauthorizedError", 401, None)


async def test_the_body_is_not_waited_for(render: ScriptedPod, generate: ScriptedPod, keys_file: Path) -> None:
    """Whoever has no key is told so before it sends a byte of its body."""
    async with routed([render], [generate], api_keys_file=keys_file) as url, raw_caller(url) as caller:
        await caller.send(b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n" % CHAT.encode())
        status, head, _ = await soon(caller.answer())
    assert status == 401
    assert b"100 Continue" not in head


@pytest.mark.parametrize("headers", [BEARER, {"x-api-key": A}, {**BEARER, "x-api-key": A}])
async def test_the_callers_key_stays_here(
    headers: dict[str, str],
    render: ScriptedPod,
    generate: ScriptedPod,
    caller: aiohttp.ClientSession,
    keys_file: Path,
) -> None:
    """Neither in the steps of a chat nor on the raw paths does anything of it reach a pod."""
    async with routed([render], [generate], api_keys_file=keys_file) as url:
        async with caller.post(url + CHAT, data=REQUEST, headers=headers) as answer:
            assert answer.status == 200, await answer.text()
        assert await status_of(caller, "POST", url + RENDER, data=REQUEST, headers=headers) == 200
        assert await status_of(caller, "POST", url + GENERATE, data=PAYLOAD, headers=headers) == 200
    seen = [*render.seen, *generate.seen]
    assert {RENDER, GENERATE, DERENDER} <= {each.path for each in seen}
    for each in seen:
        assert "Authorization" not in each.headers
        assert A not in str(each.headers)


@pytest.mark.parametrize("with_keys", [False, True])
async def test_pods_are_sent_their_own_key(
    with_keys: bool,
    render: ScriptedPod,
    generate: ScriptedPod,
    caller: aiohttp.ClientSession,
    keys_file: Path,
    pod_key_file: Path,
) -> None:
    """By every request, those that are nobody's included, and a new one soon after the file has it."""
    asked: list[str | None] = []
    for pod in (render, generate):
        pod.answers[CAPABILITIES] = remembering(asked)
    files = {"pod_api_key_file": pod_key_file} | ({"api_keys_file": keys_file} if with_keys else {})
    async with routed([render], [generate], **files) as url:
        async with caller.post(url + CHAT, data=REQUEST, headers=BEARER) as answer:
            assert answer.status == 200, await answer.text()
        seen = [*render.seen, *generate.seen]
        assert {tuple(each.headers.getall("Authorization")) for each in seen} == {("Bearer of-the-pods",)}
        assert set(asked) == {"Bearer of-the-pods"}
        rewrite(pod_key_file, "new")

        async def has_the_new_one() -> bool:
            await status_of(caller, "POST", url + RENDER, data=REQUEST, headers=BEARER)
            return render.seen[-1].headers["Authorization"] == "Bearer new"

        await eventually(has_the_new_one)


def remembering(asked: list[str | None]) -> Any:
    async def answer(request: aiohttp.web.Request) -> aiohttp.web.Response:
        asked.append(request.headers.get("Authorization"))
        return aiohttp.web.json_response({"detail": "Not Found"}, status=404)

    return answer


REFUSED = b'{"error":"Unauthorized"}'


@pytest.mark.parametrize(("files", "status"), [((), 401), (("keys",), 502), (("pod",), 502), (("keys", "pod"), 502)])
async def test_a_pod_that_refuses_the_key(
    files: tuple[str, ...],
    status: int,
    render: ScriptedPod,
    generate: ScriptedPod,
    caller: aiohttp.ClientSession,
    keys_file: Path,
    pod_key_file: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The fault is the caller's where the key is. Else it is ours: a 502, and the log says which setting to look at."""
    chosen = {"keys": ("api_keys_file", keys_file), "pod": ("pod_api_key_file", pod_key_file)}
    render.answers[RENDER] = json_answer(REFUSED, status=401)
    async with routed([render], [generate], **dict(chosen[name] for name in files)) as url:
        for _ in range(2):
            async with caller.post(url + RENDER, data=REQUEST, headers=BEARER) as answer:
                assert answer.status == status
                assert ("own key" in await answer.text()) == (status == 502)
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert [record.getMessage() for record in errors] == (
        ["a pod does not accept the router's key; see --pod-api-key-file"] * (status == 502)
    )


async def test_without_a_file_everyone_is_let_in(
    render: ScriptedPod, generate: ScriptedPod, caller: aiohttp.ClientSession
) -> None:
    """And the caller's key goes on, in the header that vLLM knows."""
    async with routed([render], [generate]) as url:
        assert await status_of(caller, "POST", url + RENDER, data=REQUEST) == 200
        assert await status_of(caller, "POST", url + RENDER, data=REQUEST, headers={"x-api-key": "k"}) == 200
        assert await status_of(caller, "POST", url + RENDER, data=REQUEST, headers={"Authorization": "Bearer k"}) == 200
    assert [each.headers.get("Authorization") for each in render.seen] == [None, "Bearer k", "Bearer k"]


async def test_keys_come_and_go(
    render: ScriptedPod, generate: ScriptedPod, caller: aiohttp.ClientSession, keys_file: Path
) -> None:
    """While the router serves: who is taken out of the file is refused, who is put in is served."""

    def uses(url: str, key: str) -> Any:
        return status_of(caller, "POST", url + RENDER, data=REQUEST, headers={"x-api-key": key})

    async with routed([render], [generate], api_keys_file=keys_file) as url:
        assert [await uses(url, key) for key in (A, NOBODY)] == [200, 401]
        rewrite(keys_file, key_line("carol", NOBODY))

        async def is_taken_over() -> bool:
            return [await uses(url, key) for key in (A, NOBODY)] == [401, 200]

        await eventually(is_taken_over)


def lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [record.__dict__ for record in caplog.records if record.getMessage() == "request"]


async def test_the_access_log_has_the_name_of_the_key(
    render: ScriptedPod,
    generate: ScriptedPod,
    caller: aiohttp.ClientSession,
    keys_file: Path,
    everything_logged: pytest.LogCaptureFixture,
) -> None:
    """Of a request that was let in by it, and of no other."""
    async with routed([render], [generate], api_keys_file=keys_file) as url:
        await status_of(caller, "POST", url + RENDER, data=REQUEST, headers={"x-api-key": B})
        await status_of(caller, "POST", url + RENDER, data=REQUEST)
    found = [(line["status"], line.get("key")) for line in lines(everything_logged) if line["route"] == RENDER]
    assert found == [(200, "bob"), (401, None)]
    assert all("key" not in line for line in lines(everything_logged) if line["route"] in OPEN_ROUTES)


@pytest.mark.parametrize(
    ("content", "key"), [(b"k", "k"), (b"  k-1.2_3/=+\r\n\n", "k-1.2_3/=+"), (b"x" * 4096, "x" * 4096)]
)
def test_the_pods_key(content: bytes, key: str) -> None:
    """All that the file holds, but for white space around it."""
    assert read_pod_key(content) == key


@pytest.mark.parametrize("content", [b"", b"\n", b"a b", b"a\nb", b"k\x00", "é".encode(), b"\xff", b"x" * 4097])
def test_what_cannot_be_the_pods_key(content: bytes) -> None:
    """It would break the header, or is more than one."""
    with pytest.raises(BadFile, match="must hold one key"):
        read_pod_key(content)


@pytest.mark.parametrize("setting", ["api_keys_file", "pod_api_key_file"])
async def test_a_file_that_is_bad_at_start(setting: str, tmp_path: Path) -> None:
    """There is no router with it."""
    (tmp_path / "f").write_text("no key at all\n")
    settings = RouterSettings(render_pods=("http://r:1",), generate_pods=("http://g:1",), **{setting: tmp_path / "f"})
    with pytest.raises(BadFile, match=rf"^--{setting.replace('_', '-')}: "):
        await make_router(settings)
