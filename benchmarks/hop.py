"""What a hop costs: a payload carried to the generate pod by us, a plain proxy, nginx and HAProxy, and directly.

The client and the stub pods share one core; what is between them has the other to itself. `benchmarks/README.md` has
the method, and says where a peer does different work.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvloop

from benchmarks.bodies import SIZES, chat_request, differs_in_sampling_params_alone, payload
from benchmarks.client import connected, load, request, send_once
from benchmarks.peers import DIRECT, OURS, OURS_RAW, OURS_WITH_SERVICES, PLAIN, Missing, Peer, Peers, Pods
from benchmarks.processes import cpu_seconds, peak_rss_bytes, reset_peak_rss, running
from benchmarks.report import Cell, Row, Turn, cell_table, ratios, verdict
from benchmarks.stub import GENERATE

CHAT = "/v1/chat/completions"
CONNECTIONS = (1, 16)
JUDGED = ("8 MB", "25 MB")


@dataclass(frozen=True, slots=True)
class Plan:
    """How long to measure.

    Attributes:
        rounds: turns of each peer, for each body and number of connections.
        turn_seconds: length of a turn, the warm-up before it not counted.
    """

    rounds: int
    turn_seconds: float


FULL = Plan(rounds=10, turn_seconds=0.3)
QUICK = Plan(rounds=2, turn_seconds=0.1)


def run(plan: Plan = FULL) -> None:
    """Measure, and print the tables and verdicts. Ends all its processes, also on SIGINT and SIGTERM.

    Raises:
        ProcessFailed: a process of ours, or an installed peer, did not start.
        RequestFailed: a request was not answered with 200.
    """
    with _pinned() as (near, far):
        uvloop.run(_measure(plan, near, far))


@contextmanager
def _pinned() -> Iterator[tuple[int | None, int | None]]:
    """This process on one core. Yields that core and the one for the peers; None twice if there are not two."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        print("warning: one core only. Nothing is pinned, and peers share it with client and pods: compare nothing.")
        yield None, None
        return
    os.sched_setaffinity(0, {cores[0]})
    try:
        yield cores[0], cores[1]
    finally:
        os.sched_setaffinity(0, cores)


async def _measure(plan: Plan, near: int | None, far: int | None) -> None:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    with tempfile.TemporaryDirectory() as temporary, ExitStack() as processes:
        directory = Path(temporary)
        command = [sys.executable, "-m", "benchmarks.stub"]
        stubs = [processes.enter_context(running(name, command, directory, near)) for name in ("render", "generate")]
        pods = Pods(*[await stub.port() for stub in stubs])
        peers = await Peers(processes, directory, far, pods).start()
        cells: dict[tuple[str, int], Cell] = {}
        for connections in CONNECTIONS:
            for body, size in SIZES.items():
                cell = await _Bench(pods, payload(size), connections).cell(peers, plan)
                print(f"\n{body}, {_plural(connections, 'connection')}\n\n{cell_table(cell, DIRECT)}", flush=True)
                cells[body, connections] = cell
    print("\n" + "\n".join(_verdicts(cells)))


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _verdicts(cells: Mapping[tuple[str, int], Cell]) -> Iterator[str]:
    for connections in CONNECTIONS:
        for body in JUDGED:
            cell = cells[body, connections]
            for name, judged in ((OURS, True), (OURS_RAW, False), (OURS_WITH_SERVICES, False)):
                ours, plain = cell[name], cell[PLAIN]
                assert isinstance(ours, Row)
                assert isinstance(plain, Row)
                what = f"{name} vs {PLAIN} at {body}, {_plural(connections, 'connection')}"
                yield verdict(what, ratios(ours, plain), target=1.0 if judged else None)


class _Bench:
    """Measures peers with one body and number of connections.

    Args:
        pods: the stubs.
        body: the payload.
        connections: how many the client has.
    """

    def __init__(self, pods: Pods, body: bytes, connections: int) -> None:
        self._pods = pods
        self._body = body
        self._connections = connections

    async def cell(self, peers: Sequence[Peer | Missing], plan: Plan) -> Cell:
        """A row for each peer. In each round each has one turn, in an order that another begins each time."""
        await send_once(self._pods.render, request("PUT", f"/payload/{len(self._body)}"))
        cell: dict[str, Row | str] = {
            peer.name: peer.why if isinstance(peer, Missing) else Row(await self._bytes_that_arrive(peer))
            for peer in peers
        }
        present = [peer for peer in peers if isinstance(peer, Peer)]
        for number in range(plan.rounds):
            first = number % len(present)
            for peer in present[first:] + present[:first]:
                row = cell[peer.name]
                assert isinstance(row, Row)
                row.turns.append(await self._turn(peer, plan.turn_seconds))
        return cell

    def _request(self, peer: Peer) -> tuple[bytes, bytes]:
        return request("POST", CHAT, chat_request()) if peer.whole_way else request("POST", GENERATE, self._body)

    async def _turn(self, peer: Peer, seconds: float) -> Turn:
        pieces = self._request(peer)
        async with AsyncExitStack() as stack:
            connections = [await stack.enter_async_context(connected(peer.port)) for _ in range(self._connections)]
            # One request each, so that the peer's connections to the backend are open too.
            await load(connections, pieces, seconds=0)
            reset_peak_rss(peer.pids)
            cpu_before = cpu_seconds(peer.pids)
            done = await load(connections, pieces, seconds)
            cpu = cpu_seconds(peer.pids) - cpu_before
        return Turn(done.ms, done.seconds, cpu, peak_rss_bytes(peer.pids))

    async def _bytes_that_arrive(self, peer: Peer) -> str:
        """Send one request, untimed, and compare what reached the generate pod with what was sent or rendered."""
        await send_once(self._pods.generate, request("PUT", "/record"))
        await send_once(peer.port, self._request(peer))
        arrived = await send_once(self._pods.generate, request("GET", "/recorded"))
        if peer.whole_way:
            as_it_should = differs_in_sampling_params_alone(self._body, arrived)
            return "equal but for sampling_params" if as_it_should else "DIFFERENT"
        return "equal" if arrived == self._body else "DIFFERENT"
