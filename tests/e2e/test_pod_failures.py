"""A pod that is down, dies or answers nonsense: the caller gets an error that says so, soon, and nothing else."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

import aiohttp
import pytest
import pytest_asyncio

from rendergen.launcher import Stack
from rendergen.launcher.child import ChildProcess
from rendergen.launcher.machine import free_ports
from tests.e2e.calls import CHAT, DERENDER, GENERATE, RED, RENDER, WHAT_COLOR, Reply, chat, ok, post
from tests.e2e.engine_load import engine_is_busy, engine_is_idle
from tests.e2e.polling import LONGEST_S, eventually
from tests.e2e.refusal import assert_refused
from tests.e2e.service_process import service_process
from tests.e2e.stalls import again_if_the_machine_stalls
from tests.support.scripted_pod import Answer, Does, ScriptedPod, json_answer, raw, scripted_pod, streamed


def router(render: str, generate: str, *, ready: bool = True) -> AbstractAsyncContextManager[ChildProcess]:
    """A router of its own for pods of its own."""
    return service_process("router", "--render-pods", render, "--generate-pods", generate, ready=ready)


@again_if_the_machine_stalls
async def test_a_generate_pod_that_is_killed(stack: Stack, client: aiohttp.ClientSession) -> None:
    """The request that was on it fails at once with a 502, the engine behind it stops, and the next one gets a 503."""
    [engine] = stack.vllm_engine_urls
    async with (
        service_process("generate_service", "--vllm-url", engine) as pod,
        router(stack.render_service_urls[0], pod.spec.url) as front,
    ):
        await engine_is_idle(client, engine)
        request = chat(RED, WHAT_COLOR, ignore_eos=True, max_tokens=3900)
        asking = asyncio.create_task(post(client, front.spec.url + CHAT, request))
        await engine_is_busy(client, engine, asking)
        pod.kill()
        reply = await asyncio.wait_for(asking, LONGEST_S)
        assert_refused(reply, 502, "generate pod", stack=stack)
        await engine_is_idle(client, engine, within_s=2)
        reply = await post(client, front.spec.url + CHAT, chat(RED, WHAT_COLOR))
        assert_refused(reply, 503, "generate pod", stack=stack)
        assert int(reply.headers["Retry-After"]) >= 1


@pytest.mark.parametrize("down", ["render pod", "generate pod"])
async def test_a_pod_that_is_down(stack: Stack, client: aiohttp.ClientSession, down: str) -> None:
    """503 with Retry-After, and the router says by its readiness that it cannot serve."""
    [nobody] = free_ports(1)
    render, generate = stack.render_service_urls[0], stack.generate_service_urls[0]
    if down == "render pod":
        render = f"http://127.0.0.1:{nobody}"
    else:
        generate = f"http://127.0.0.1:{nobody}"
    async with router(render, generate, ready=False) as front:
        other = GENERATE if down == "render pod" else RENDER
        await eventually(lambda: _passes(client, front.spec.url + other), "the other pod is ready")
        reply = await post(client, front.spec.url + CHAT, chat(RED, WHAT_COLOR))
        assert_refused(reply, 503, down, stack=stack)
        assert int(reply.headers["Retry-After"]) >= 1
        async with client.get(front.spec.url + "/readyz") as answer:
            assert answer.status == 503
        async with client.get(front.spec.url + "/livez") as answer:
            assert answer.status == 200


async def _passes(client: aiohttp.ClientSession, url: str) -> bool:
    return (await post(client, url, b"{}")).status == 400


TRACEBACK = b'Traceback (most recent call last):\n  File "/opt/vllm/engine.py", line 1\nRuntimeError: 10.1.2.3:8000'

NONSENSE: dict[str, Answer] = {
    "HTML": streamed(b"<html>It works!</html>", content_type="text/html"),
    "nothing": json_answer(b""),
    "half an object": json_answer(b'{"choices": [{"index": 0, "tok'),
    "a list": json_answer(b"[]"),
    "an empty object": json_answer(b"{}"),
    "an object of something else": json_answer(b'{"status": "ok"}'),
    "choices that are text": json_answer(b'{"request_id": "x", "choices": "none"}'),
    "no choices": json_answer(b'{"request_id": "x", "choices": []}'),
    "token ids that are text": json_answer(b'{"request_id": "x", "choices": [{"index": 0, "token_ids": ["a"]}]}'),
    "not UTF-8": json_answer(b'{"request_id": "\xff\xfe", "choices": []}'),
    "no HTTP": raw(b"220 mail.example.com ESMTP\r\n"),
    "a closed connection": streamed(Does.CUT),
    "a closed connection after a few bytes": streamed(b'{"request_id": "x", ', Does.CUT, content_length=1000),
    "a redirect": json_answer(b"", 302, {"Location": "http://10.1.2.3:8000/"}),
    "a traceback": json_answer(TRACEBACK, 500),
    "an error page": streamed(b"<html>Bad Gateway 10.1.2.3</html>", status=502, content_type="text/html"),
    "an error of vLLM's": json_answer(
        b'{"error": {"message": "EngineCore 10.1.2.3:8000 died", "type": "InternalServerError", "code": 500}}', 500
    ),
}


@dataclass(frozen=True, slots=True)
class Scripted:
    """Routers whose pods do as they are told.

    Attributes:
        pod: the pod that both routers have, in both roles.
        router_url: a router with no other pod.
        before_real_render: a router whose render pod is the stack's, so that what generate answers is really read.
        good: what real pods answered to one request.
    """

    pod: ScriptedPod
    router_url: str
    before_real_render: str
    good: dict[str, Answer]

    def answers(self, answers: dict[str, Answer]) -> None:
        """From now on the pod does as real ones do, but for these paths."""
        self.pod.answers = {**self.good, **answers}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def scripted(stack: Stack, client: aiohttp.ClientSession) -> AsyncIterator[Scripted]:
    """A pod in this process that plays back what real ones answered."""
    render, generate = stack.render_service_urls[0], stack.generate_service_urls[0]
    request = chat(RED, WHAT_COLOR)
    payload = await ok(client, render + RENDER, request)
    generated = await ok(client, generate + GENERATE, payload)
    derender = {"model": "tiny-vlm", "generate_response": generated, "chat_request": request, "stream": False}
    completion = await ok(client, render + DERENDER, derender)
    good = {
        path: json_answer(json.dumps(answer).encode())
        for path, answer in ((RENDER, payload), (GENERATE, generated), (DERENDER, completion))
    }
    async with scripted_pod() as pod, router(pod.url, pod.url) as first, router(render, pod.url) as second:
        yield Scripted(pod, first.spec.url, second.spec.url, good)


# These are found by whoever reads the choices, and what derender answers is read by the caller.
INSIDE_CHOICES = ("choices that are text", "no choices", "token ids that are text", "not UTF-8")
PATHS = {"render": RENDER, "generate": GENERATE, "derender": DERENDER}
FAILURES = [(step, case) for case in NONSENSE for step in PATHS if step != "derender" or case not in INSIDE_CHOICES]


@pytest.mark.parametrize(("step", "case"), FAILURES)
async def test_a_pod_that_answers_nonsense(
    stack: Stack, client: aiohttp.ClientSession, scripted: Scripted, step: str, case: str
) -> None:
    """502 whichever step it is: the fault is not the caller's, and what the pod said is not for the caller."""
    scripted.answers({PATHS[step]: NONSENSE[case]})
    url = scripted.before_real_render if step == "generate" else scripted.router_url
    reply = await asyncio.wait_for(post(client, url + CHAT, chat(RED, WHAT_COLOR)), LONGEST_S)
    assert_refused(reply, 502, "pod|generate's answer", stack=stack)
    assert_says_nothing_of(reply, "10.1.2.3", "/opt/vllm", "EngineCore", "html", "ESMTP", "mail.example.com")


async def test_the_playback_itself_is_good(client: aiohttp.ClientSession, scripted: Scripted) -> None:
    """The measure itself: with no nonsense in it, the same pods give an answer."""
    scripted.answers({})
    for url in (scripted.router_url, scripted.before_real_render):
        completion = await ok(client, url + CHAT, chat(RED, WHAT_COLOR))
        assert completion["choices"][0]["message"]["content"].startswith("Red")


def assert_says_nothing_of(reply: Reply, *words: str) -> None:
    for word in words:
        assert word not in reply.text(), reply.text()


REFUSALS = {
    "401 with a plain string": (json_answer(b'{"error": "Unauthorized"}', 401), 401, "unauthorized"),
    "403 of a pod without scale-out": (
        json_answer(
            b'{"error": {"message": "Scale-out is off", "type": "Forbidden", "param": null, "code": 403}}', 403
        ),
        403,
        "scale-out",
    ),
    "422": (
        json_answer(
            b'{"error": {"message": "Bad media", "type": "UnprocessableEntityError", "param": "x", "code": 422}}',
            422,
        ),
        400,
        "bad media",
    ),
    "429": (
        json_answer(
            b'{"error": {"message": "Too many requests", "type": "TooManyRequests", "param": null, "code": 429}}',
            429,
            {"Retry-After": "7"},
        ),
        429,
        "too many",
    ),
    "FastAPI's own form": (json_answer(b'{"detail": "There was an error parsing the body"}', 400), 400, "parsing"),
}


@pytest.mark.parametrize("case", REFUSALS)
async def test_what_a_pod_says_of_the_request_is_passed_on(
    stack: Stack, client: aiohttp.ClientSession, scripted: Scripted, case: str
) -> None:
    """In OpenAI's form, whatever form vLLM or what is in front of it has."""
    answer, status, says = REFUSALS[case]
    scripted.answers({RENDER: answer})
    reply = await post(client, scripted.router_url + CHAT, chat(RED, WHAT_COLOR))
    assert_refused(reply, status, says, stack=stack)
    if status == 429:
        assert reply.headers["Retry-After"] == "7"
