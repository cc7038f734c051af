"""The plugin's derender, as the router sees it: an event for each of generate's, while they come."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from aiohttp import web

from tests.support.scripted_pod import ScriptedPod

STREAMS = ["/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses"]


@dataclass(slots=True)
class Derenderer:
    """What a pod's plugin was told and did.

    Attributes:
        contexts: the first lines of the streams, in order.
        generated: what came after them.
    """

    contexts: list[dict[str, object]] = field(default_factory=list)
    generated: list[bytes] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Each of generate's tokens is an event; a request that is not streamed gets how many bytes there were."""
        context = json.loads(await request.content.readline())
        self.contexts.append(context)
        self.generated.append(b"")
        mine = len(self.generated) - 1
        if not context["request"].get("stream"):
            self.generated[mine] = await request.content.read()
            answer = {"id": context["request_id"], "choices": [{"index": 0, "text": "whole"}], "usage": USAGE}
            return web.json_response(answer)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        while line := await request.content.readline():
            self.generated[mine] += line
            if line == b"data: [DONE]\n":
                break
            if line.startswith(b"data: {"):
                [choice] = json.loads(line.removeprefix(b"data: "))["choices"]
                if not response.prepared:
                    await response.prepare(request)
                event = {
                    "id": context["request_id"],
                    "choices": [{"index": choice["index"], "text": str(choice["token_ids"])}],
                }
                await response.write(b"data: %b\n\n" % json.dumps(event).encode())
        await response.write(b'data: {"id":"x","choices":[],"usage":%b}\n\n' % json.dumps(USAGE).encode())
        await response.write(b"data: [DONE]\n\n")
        return response


USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}


def with_plugin(pod: ScriptedPod) -> Derenderer:
    """Let ``pod`` derender in streams, for every API, and render for all of them."""
    derenderer = Derenderer()
    paths = [f"{path}/derender/stream" for path in STREAMS]
    pod.speaks = json.dumps({"supports": {"derender_stream": paths}}).encode()
    for path in paths:
        pod.answers[path] = derenderer.answer
        pod.unread.add(path)
    return derenderer


def token(number: int, index: int = 0) -> bytes:
    """One of generate's events."""
    return b'data: {"choices":[{"index":%d,"token_ids":[%d]}]}\n\n' % (index, number)
