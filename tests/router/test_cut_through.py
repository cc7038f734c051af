"""That the payload passes through while it is made, and that a caller that leaves ends all work for it."""

import asyncio

import aiohttp
import pytest
from aiohttp import web

from tests.support.polling import eventually
from tests.support.raw_caller import raw_caller
from tests.support.router import CHAT, DERENDER, GENERATE, GENERATED, PAYLOAD, RENDER, REQUEST, routed
from tests.support.scripted_pod import Answer, Does, ScriptedPod, streamed

HALF = len(PAYLOAD) // 2


async def test_generate_has_the_first_bytes_before_render_has_sent_the_last(
    render: ScriptedPod, generate: ScriptedPod, caller: aiohttp.ClientSession
) -> None:
    """Render waits for generate to have them: without cut-through neither would go on."""
    arrived = asyncio.Event()

    async def receives(request: web.Request) -> web.Response:
        first = await request.content.readexactly(10)
        arrived.set()
        assert (first + await request.content.read()).startswith(PAYLOAD[:HALF])
        return web.Response(body=GENERATED, content_type="application/json")

    render.answers[RENDER] = streamed(PAYLOAD[:HALF], arrived, PAYLOAD[HALF:])
    generate.answers[GENERATE] = receives
    generate.unread.add(GENERATE)
    async with routed([render], [generate]) as url, caller.post(url + CHAT, data=REQUEST) as answer:
        assert answer.status == 200


async def test_each_read_passes_on_its_own(
    render: ScriptedPod, generate: ScriptedPod, caller: aiohttp.ClientSession
) -> None:
    """Piece by piece, each asked for only when the one before has arrived; what is held back is the sampling params."""
    payload = b'{"token_ids":[1],"features":"0123456789"}'
    pieces = [payload[at : at + 8] for at in range(0, len(payload), 8)]
    gates = [asyncio.Event() for _ in pieces]

    async def receives(request: web.Request) -> web.Response:
        for gate, piece in zip(gates[:-1], pieces[:-1], strict=True):
            assert await request.content.readexactly(len(piece)) == piece
            gate.set()
        assert await request.content.read() == b',"sampling_params":{"max_tokens":16 }}'
        return web.Response(body=GENERATED, content_type="application/json")

    steps = [step for piece, gate in zip(pieces, gates, strict=True) for step in (piece, gate)]
    render.answers[RENDER] = streamed(*steps[:-1])
    generate.answers[GENERATE] = receives
    generate.unread.add(GENERATE)
    async with routed([render], [generate]) as url, caller.post(url + CHAT, data=REQUEST) as answer:
        assert answer.status == 200


LEAVINGS: dict[str, tuple[str, Answer]] = {
    "render has not answered": (RENDER, streamed(Does.HANG)),
    "render is within its payload": (RENDER, streamed(PAYLOAD[:HALF], Does.HANG)),
    "generate has not answered": (GENERATE, streamed(Does.HANG)),
    "generate is within its answer": (GENERATE, streamed(b"{", Does.HANG)),
    "derender has not answered": (DERENDER, streamed(Does.HANG)),
}


@pytest.mark.parametrize("case", LEAVINGS.values(), ids=LEAVINGS)
async def test_a_caller_that_leaves_ends_the_work(
    case: tuple[str, Answer], render: ScriptedPod, generate: ScriptedPod, caller: aiohttp.ClientSession
) -> None:
    """At each stage: the connection of every pod that works for it is closed, and no further pod is asked."""
    path, stall = case
    pod = generate if path == GENERATE else render
    pod.answers[path] = stall
    async with routed([render], [generate]) as url:
        async with raw_caller(url) as leaver:
            head = b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (CHAT.encode(), len(REQUEST))
            await leaver.send(head + REQUEST)
            await eventually(lambda: path in pod.begun)
            if case is LEAVINGS["render is within its payload"]:
                await eventually(lambda: generate.begun)
            leaver.leave()
            await eventually(lambda: pod.left == [path])
            if path == RENDER:
                await eventually(lambda: len(generate.left) == len(generate.begun))
                assert generate.seen == []
        assert path == DERENDER or DERENDER not in render.begun
        await eventually(lambda: shows(url, caller, f'route="{CHAT}",status="499"}} 1.0'))
        assert await shows(url, caller, "rendergen_requests_in_flight 1.0")


async def shows(url: str, caller: aiohttp.ClientSession, sample: str) -> bool:
    """Whether the router's metrics have that sample."""
    async with caller.get(url + "/metrics") as answer:
        return sample in await answer.text()
