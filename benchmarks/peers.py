"""What is measured against what: each peer's process, configuration, and how a client speaks to it."""

from __future__ import annotations

import shutil
import socket
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.client import RequestFailed, request, send_once
from benchmarks.processes import Process, running

DIRECT = "direct"
PLAIN = "plain aiohttp proxy"
OURS_RAW = "ours, as a proxy"
OURS = "ours, the whole way"
OURS_WITH_SERVICES = "ours, the whole way, services in the pods"

_NGINX = """
daemon off; worker_processes 1; error_log stderr; pid {directory}/nginx.pid;
events {{ worker_connections 1024; }}
http {{
  access_log off; client_max_body_size 512m; keepalive_requests 1000000;
  upstream backend {{ server 127.0.0.1:{backend}; keepalive 32; keepalive_requests 1000000; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://backend; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_request_buffering off; proxy_buffering off;
    }}
  }}
}}
"""

_HAPROXY = """
global
  nbthread 1
  maxconn 1024
defaults
  mode http
  http-reuse always
  timeout connect 5s
  timeout client 600s
  timeout server 600s
frontend door
  bind 127.0.0.1:{port}
  default_backend pods
backend pods
  server pod 127.0.0.1:{backend}
"""


@dataclass(frozen=True, slots=True)
class Peer:
    """A way from the client to the backend.

    Attributes:
        name: in the tables.
        port: where the client connects.
        pids: the processes between client and backend, whose CPU time and memory are counted.
        whole_way: the client sends a chat request, and the payload comes from the render pod. Otherwise the client
            sends the payload.
    """

    name: str
    port: int
    pids: tuple[int, ...] = ()
    whole_way: bool = False


@dataclass(frozen=True, slots=True)
class Pods:
    """The stub pods' ports.

    Attributes:
        render: of the one that renders and derenders.
        generate: of the one that generates, to which every peer carries the payload.
    """

    render: int
    generate: int


@dataclass(frozen=True, slots=True)
class Missing:
    """A peer that cannot be measured here.

    Attributes:
        name: in the tables.
        why: and what to do.
    """

    name: str
    why: str


class Peers:
    """Starts the peers. They run until `stack` is closed.

    Args:
        stack: ends them.
        directory: for their configuration and output.
        core: the one core that they run on; None for any.
        pods: the stubs.
    """

    def __init__(self, stack: ExitStack, directory: Path, core: int | None, pods: Pods) -> None:
        self._stack = stack
        self._directory = directory
        self._core = core
        self._backend = pods.generate
        self._generate_pod = _url(pods.generate)
        self._render_pod = _url(pods.render)

    async def start(self) -> list[Peer | Missing]:
        """All of them, once each can serve."""
        return [
            Peer(DIRECT, self._backend),
            await self._plain(),
            await self._nginx(),
            await self._haproxy(),
            await self._ours_raw(),
            await self._ours(),
            await self._ours_with_services(),
        ]

    async def _plain(self) -> Peer:
        process = self._run("plain-proxy", [sys.executable, "-m", "benchmarks.plain_proxy", self._generate_pod])
        return Peer(PLAIN, await process.port(), (process.popen.pid,))

    async def _nginx(self) -> Peer | Missing:
        program = _program("nginx")
        if program is None:
            return Missing("nginx", "not installed (apt install nginx-light)")
        port = _free_port()
        process = self._run(
            "nginx", [program, "-p", str(self._directory), "-c", self._configuration("nginx", _NGINX, port)]
        )
        await _serves(process, port, "/health")
        return Peer("nginx, unbuffered", port, (await process.worker(),))

    async def _haproxy(self) -> Peer | Missing:
        program = _program("haproxy")
        if program is None:
            return Missing("HAProxy", "not installed (apt install haproxy)")
        port = _free_port()
        process = self._run("haproxy", [program, "-db", "-f", self._configuration("haproxy", _HAPROXY, port)])
        await _serves(process, port, "/health")
        return Peer("HAProxy", port, (process.popen.pid,))

    async def _ours_raw(self) -> Peer:
        port, pid = await self._router("router-raw", self._render_pod, self._generate_pod)
        return Peer(OURS_RAW, port, (pid,))

    async def _ours(self) -> Peer:
        port, pid = await self._router("router", self._render_pod, self._generate_pod)
        return Peer(OURS, port, (pid,), whole_way=True)

    async def _ours_with_services(self) -> Peer:
        render, render_pid = await self._service("render-service", "render_service", "--vllm-url", self._render_pod)
        generate, generate_pid = await self._service(
            "generate-service", "generate_service", "--vllm-url", self._generate_pod
        )
        port, pid = await self._router("router-services", _url(render), _url(generate))
        return Peer(OURS_WITH_SERVICES, port, (pid, render_pid, generate_pid), whole_way=True)

    async def _router(self, name: str, render_pod: str, generate_pod: str) -> tuple[int, int]:
        return await self._service(name, "router", "--render-pods", render_pod, "--generate-pods", generate_pod)

    async def _service(self, name: str, module: str, *flags: str) -> tuple[int, int]:
        """Port and process id of one of our services, ready."""
        # A probe waits its turn behind megabytes: that a pod is slow to answer is no reason here to leave it out.
        flags = (*flags, "--probe-timeout-s", "30")
        process = self._run(name, [sys.executable, "-m", module, "--port", "0", *flags])
        port = await process.port()
        await _serves(process, port, "/readyz")
        return port, process.popen.pid

    def _run(self, name: str, command: list[str]) -> Process:
        return self._stack.enter_context(running(name, command, self._directory, self._core))

    def _configuration(self, name: str, template: str, port: int) -> str:
        file = self._directory / f"{name}.conf"
        file.write_text(template.format(port=port, backend=self._backend, directory=self._directory))
        return str(file)


def _program(name: str) -> str | None:
    # Debian puts servers where only root's PATH looks.
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")


def _url(port: int) -> str:
    return f"http://127.0.0.1:{port}"


def _free_port() -> int:
    """A port that was free a moment ago, for programs that cannot be asked to take one and name it."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


async def _serves(process: Process, port: int, path: str) -> None:
    """Wait until `GET path` is answered with 200."""

    async def look() -> bool | None:
        try:
            await send_once(port, request("GET", path))
        except (OSError, RequestFailed):
            return None
        return True

    await process.until(look)
