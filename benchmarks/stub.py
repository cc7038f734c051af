"""A pod of the hop, without vLLM: it can be the render pod, or the generate pod and so the backend of every peer.

`python -m benchmarks.stub` listens on a free port of the loopback and logs where. It renders every chat request to
the payload that was last chosen (`PUT /payload/<bytes>`), and reads a generate request to its end before it answers,
at once: no model runs. The next generate body after `PUT /record` is kept, and `GET /recorded` gives it back.
"""

from __future__ import annotations

import asyncio
import json
import socket
from typing import cast

import uvloop

from benchmarks.bodies import payload
from benchmarks.request_reader import Request, RequestReader

GENERATE = "/inference/v1/generate"
_READ_BYTES = 256 * 1024
_GENERATED = json.dumps(
    {
        "request_id": "generate-tokens-0",
        "choices": [{"index": 0, "token_ids": list(range(100, 116)), "finish_reason": "stop", "logprobs": None}],
        "prompt_logprobs": None,
        "kv_transfer_params": None,
    }
).encode()
_DERENDERED = json.dumps(
    {
        "id": "chatcmpl-0",
        "object": "chat.completion",
        "created": 0,
        "model": "benchmark",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Red"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 16, "completion_tokens": 16, "total_tokens": 32},
    }
).encode()


class StubPod:
    """What the pod knows, and how it answers."""

    def __init__(self) -> None:
        self._rendered = b""
        self._record_next = False
        self._recorded = b""

    def keeps(self, method: str, path: str) -> bool:
        """Whether the body of this request, whose head has come, is to be kept."""
        keep = self._record_next and path == GENERATE
        if keep:
            self._record_next = False
        return keep

    def answer(self, request: Request) -> bytes:
        """The body of the answer."""
        match request.method, request.path:
            case "GET", "/health":
                return b"{}"
            case "POST", "/v1/chat/completions/render":
                return self._rendered
            case "POST", "/inference/v1/generate":
                self._recorded = request.body or self._recorded
                return _GENERATED
            case "POST", "/v1/chat/completions/derender":
                return _DERENDERED
            case "PUT", "/record":
                self._record_next, self._recorded = True, b""
                return b"{}"
            case "GET", "/recorded":
                return self._recorded
            case "PUT", path if path.startswith("/payload/"):
                self._rendered = payload(int(path.removeprefix("/payload/")))
                return b"{}"
        raise ValueError(f"{request.method} {request.path} is not known to the stub")


class _Connection(asyncio.BufferedProtocol):
    """One connection. All share one buffer: the loop fills it and has it read in one go."""

    def __init__(self, pod: StubPod, buffer: bytearray) -> None:
        self._pod = pod
        self._buffer = buffer
        self._view = memoryview(buffer)
        self._reader = RequestReader(self._answer, pod.keeps)
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by inheritance

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._reader.feed(self._view[:nbytes])

    def _answer(self, request: Request) -> None:
        assert self._transport is not None
        body = self._pod.answer(request)
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
        self._transport.writelines((head, body))


async def serve() -> None:
    """Serve until the process is ended."""
    pod, buffer = StubPod(), bytearray(_READ_BYTES)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(pod, buffer), "127.0.0.1", 0, family=socket.AF_INET)
    port = server.sockets[0].getsockname()[1]
    print(json.dumps({"message": "listening", "url": f"http://127.0.0.1:{port}"}), flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve())
