import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import pytest

from tests.support.child_process import ChildProcess, child_process
from tests.support.polling import eventually, soon
from tests.support.raw_caller import raw_caller
from tests.support.scripted_pod import Does, ScriptedPod, json_answer, scripted_pod, streamed

GENERATE = "/inference/v1/generate"


class Stack(AsyncExitStack):
    """A router process before one scripted pod that plays both parts."""

    pod: ScriptedPod
    router: ChildProcess
    url: str

    async def start(self, **settings: object) -> None:
        self.pod = await self.enter_async_context(scripted_pod())
        flags = [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]
        pods = [f"--render-pods={self.pod.url}", f"--generate-pods={self.pod.url}", "--probe-interval-s=0.05"]
        self.router = await self.enter_async_context(child_process("router", *pods, *flags))
        self.url = await self.router.address()

    async def until_ready(self, caller: aiohttp.ClientSession) -> None:
        async def is_ready() -> bool:
            return await status_of(caller, self.url + "/readyz") == 200

        await eventually(is_ready)


async def status_of(caller: aiohttp.ClientSession, url: str) -> int:
    async with caller.get(url) as answer:
        return answer.status


async def is_refused(url: str) -> bool:
    address = urlsplit(url)
    try:
        _, writer = await asyncio.open_connection(address.hostname, address.port)
    except ConnectionRefusedError:
        return True
    writer.close()
    return False


async def test_a_file_of_keys_that_is_bad_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    """The line says which flag and what is wrong, and neither where the file is nor what it holds."""
    (tmp_path / "keys").write_text("alice\n")
    pods = ("--render-pods", "http://127.0.0.1:1", "--generate-pods", "http://127.0.0.1:1")
    async with child_process("router", *pods, "--api-keys-file", str(tmp_path / "keys")) as router:
        assert await router.exit_code() == 2
        await eventually(lambda: router.lines)
        [line] = router.lines
    assert line.startswith("router: --api-keys-file: line 1 is not `NAME sha256:HEX`")
    assert "alice" not in line
    assert str(tmp_path) not in line


@pytest.mark.parametrize("service", ["router", "render_service"])
async def test_a_port_that_is_taken_is_one_line_and_exit_code_1(service: str) -> None:
    """The line says which address, and what is wrong with it."""
    async with scripted_pod(healthy=None) as pod:
        taken = str(urlsplit(pod.url).port)
        pods = (
            ("--render-pods", pod.url, "--generate-pods", pod.url) if service == "router" else ("--vllm-url", pod.url)
        )
        async with child_process(service, *pods, "--port", taken) as child:
            assert await child.exit_code() == 1
        [line] = child.lines
        assert line.startswith(f"{service}: cannot listen on 127.0.0.1:{taken}: ")
        assert "in use" in line.lower()


async def test_a_mistake_in_the_settings_is_exit_code_2() -> None:
    """One line for each, and nothing of the service has started."""
    async with child_process("generate_service", "--port", "x", RENDERGEN_GENERATE_SERVICE__PROT="1") as child:
        assert await child.exit_code() == 2
    assert [line.split(":")[1].strip() for line in child.lines] == [
        "RENDERGEN_GENERATE_SERVICE__PROT is no setting of this service",
        *("--port", "--vllm-url"),
    ]


async def test_open_streams_finish_after_sigterm(caller: aiohttp.ClientSession) -> None:
    """Ten of them go on to their end; new connections are refused; the exit code is 0, and every log line is JSON."""
    go_on = asyncio.Event()
    async with Stack() as stack:
        await stack.start()
        await stack.until_ready(caller)
        stack.pod.answers[GENERATE] = streamed(b"data: 1\n\n", go_on, b"data: 2\n\n", content_type="text/event-stream")
        answers = [
            await stack.enter_async_context(
                caller.post(stack.url + GENERATE, data=b"{}", headers={"X-Request-Id": f"s{n}"})
            )
            for n in range(10)
        ]
        stack.router.terminate()
        await stack.router.says("draining")
        await eventually(lambda: is_refused(stack.url))
        go_on.set()
        assert [await soon(answer.read()) for answer in answers] == [b"data: 1\n\ndata: 2\n\n"] * 10
        assert await stack.router.exit_code() == 0
    lines = {entry["request_id"]: entry for entry in stack.router.said("request")}
    assert {f"s{n}" for n in range(10)} <= lines.keys()
    assert lines["s0"] | {"status": 200, "route": GENERATE, "method": "POST", "service": "router"} == lines["s0"]
    assert [entry["message"] for entry in stack.router.log][-1] == "stopped"
    assert all(entry["level"] in ("INFO", "WARNING") for entry in stack.router.log)


@pytest.mark.parametrize("drain_timeout", ["0", "0.2"])
async def test_a_request_longer_than_the_drain_timeout_is_cut(
    drain_timeout: str, caller: aiohttp.ClientSession
) -> None:
    """The exit code is 0 all the same, and the pod is told by the closing of its connection. 0 waits for nobody."""
    async with Stack() as stack:
        await stack.start(drain_timeout_s=drain_timeout)
        await stack.until_ready(caller)
        stack.pod.answers[GENERATE] = streamed(b"{", Does.HANG)
        answer = await stack.enter_async_context(caller.post(stack.url + GENERATE, data=b"{}"))
        stack.router.terminate()
        with pytest.raises(aiohttp.ClientError):
            await soon(answer.read())
        assert await stack.router.exit_code() == 0
        await eventually(lambda: stack.pod.left == [GENERATE])
    assert stack.router.said("stopped")


async def test_requests_are_taken_during_the_drain_delay(caller: aiohttp.ClientSession) -> None:
    """Readiness is off, liveness on, and whoever has not noticed yet is still served."""
    async with Stack() as stack:
        await stack.start(drain_delay_s=60)
        await stack.until_ready(caller)
        stack.pod.answers["/v1/models"] = json_answer(b'{"data":[]}')
        stack.router.terminate()
        await stack.router.says("draining")
        async with raw_caller(stack.url) as prober:
            await prober.send(b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n")
            status, _, body = await soon(prober.answer())
            assert (status, json.loads(body)) == (503, {"status": "draining"})
        assert await status_of(caller, stack.url + "/livez") == 200
        assert await status_of(caller, stack.url + "/v1/models") == 200


async def test_idle_connections_do_not_hold_up_the_end(caller: aiohttp.ClientSession) -> None:
    """Kept alive by callers, or opened and never used."""
    async with Stack() as stack:
        await stack.start()
        await stack.until_ready(caller)
        async with raw_caller(stack.url) as silent, raw_caller(stack.url) as idle:
            await idle.send(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await soon(idle.answer()))[0] == 200
            stack.router.terminate()
            assert await stack.router.exit_code() == 0
            assert await soon(silent.rest()) == await soon(idle.rest()) == b""
