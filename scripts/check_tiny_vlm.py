"""Measure the tiny model's abilities in vLLM itself, over its chat API, and print a table.

    python scripts/check_tiny_vlm.py
    python scripts/check_tiny_vlm.py --base-url http://127.0.0.1:8000 --samples 200 --write docs/tiny-model.md

Without `--base-url` it starts a vLLM server of its own on a free loopback port and stops it at the end. Every image
is of a held-out shade and of held-out sides, 32 to 1024 pixels, PNG or JPEG. It exits with 1 if a target is missed.
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from rendergen.launcher.torch_companions import broken_torch_companions, environment_for
from rendergen.tiny_model import TINY_MODEL_NAME, TINY_MODEL_PATH
from rendergen.tiny_model.abilities import ABILITIES, VARIATIONS, Ability
from rendergen.tiny_model.chat import Example

START_SECONDS = 300
STOP_SECONDS = 20
REQUEST_SECONDS = 120
TABLE_BEGINS = "<!-- measured by scripts/check_tiny_vlm.py -->"
TABLE_ENDS = "<!-- end of measured -->"

VLLM_FLAGS = (
    *("--served-model-name", TINY_MODEL_NAME),
    "--enforce-eager",
    *("--dtype", "bfloat16"),
    *("--max-model-len", "4096"),
    *("--max-num-seqs", "16"),
    "--enable-scale-out",
    *("--limit-mm-per-prompt", '{"image": 4, "video": 0}'),
    *("--default-chat-template-kwargs", '{"enable_thinking": false}'),
    *("--reasoning-parser", "qwen3"),
    "--enable-auto-tool-choice",
    *("--tool-call-parser", "hermes"),
)
VLLM_ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """How often an ability's answers were right."""

    ability: Ability
    samples: int
    right: int

    @property
    def share(self) -> float:
        """The share of right answers, 0 to 1."""
        return self.right / self.samples

    @property
    def met(self) -> bool:
        """Whether the target is met."""
        return self.share >= self.ability.target


def main() -> int:
    """Measure every ability and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base-url", help="a running server that serves the model as tiny-vlm (default: start one)")
    parser.add_argument("--model", type=Path, default=TINY_MODEL_PATH, help="model directory to start vLLM with")
    parser.add_argument("--samples", type=int, default=100, help="requests per ability (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the examples (default %(default)s)")
    parser.add_argument("--concurrency", type=int, default=8, help="requests at a time (default %(default)s)")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the table between the markers of this file")
    arguments = parser.parse_args()

    server = contextlib.nullcontext(arguments.base_url) if arguments.base_url else running_vllm(arguments.model)
    with server as base_url:
        outcomes = asyncio.run(measure(base_url, arguments.samples, arguments.seed, arguments.concurrency))
    table = as_table(outcomes)
    print(table)
    if arguments.write:
        write_table(arguments.write, table)
    return 0 if all(outcome.met for outcome in outcomes) else 1


async def measure(base_url: str, samples: int, seed: int, concurrency: int) -> list[Outcome]:
    """Send `samples` requests for each ability, `concurrency` at a time, and count the right answers."""
    timeout = aiohttp.ClientTimeout(total=None, sock_read=REQUEST_SECONDS)
    connector = aiohttp.TCPConnector(limit=concurrency)
    outcomes = []
    async with aiohttp.ClientSession(base_url, timeout=timeout, connector=connector) as session:
        for ability in (*ABILITIES, *VARIATIONS):
            rng = random.Random(f"{seed} {ability.name}")
            examples = [ability.example(rng) for _ in range(samples)]
            began = time.monotonic()
            right = sum(await asyncio.gather(*(is_right(session, example) for example in examples)))
            outcomes.append(Outcome(ability, samples, right))
            took = time.monotonic() - began
            print(f"{ability.name}: {right} of {samples}, {took:.0f} s", file=sys.stderr, flush=True)
    return outcomes


async def is_right(session: aiohttp.ClientSession, example: Example) -> bool:
    """Post an example and say whether its answer and finish reason are right; print a wrong one."""
    body = {"model": TINY_MODEL_NAME, "max_tokens": 256, **example.request()}
    async with session.post("/v1/chat/completions", json=body) as response:
        answer = await response.json()
        if response.status != 200:
            raise RuntimeError(f"vLLM answered {response.status}: {answer}")
    choice = answer["choices"][0]
    if example.matches(choice["message"]) and choice["finish_reason"] == example.expected.finish_reason:
        return True
    said = {key: choice["message"].get(key) for key in ("content", "reasoning", "tool_calls")}
    shown = [(p.rgb, f"{p.width}x{p.height}", p.image_format) for p in example.pictures()]
    print(f"  wrong: {json.dumps(said, ensure_ascii=False)}\n    not {example.expected}, {shown}", file=sys.stderr)
    return False


def as_table(outcomes: Sequence[Outcome]) -> str:
    """Return the outcomes as a Markdown table."""
    rows = ["| ability | request | samples | right | share | target |", "|---|---|---:|---:|---:|---:|"]
    for outcome in outcomes:
        ability = outcome.ability
        share = f"{outcome.share:.1%}" if outcome.met else f"**{outcome.share:.1%}**"
        counts = f"{outcome.samples} | {outcome.right} | {share} | {ability.target:.0%}"
        rows.append(f"| {ability.name} | {ability.question} | {counts} |")
    return "\n".join(rows)


def write_table(file: Path, table: str) -> None:
    """Put the table between the file's markers."""
    before, rest = file.read_text().split(TABLE_BEGINS)
    _, after = rest.split(TABLE_ENDS)
    file.write_text(f"{before}{TABLE_BEGINS}\n\n{table}\n\n{TABLE_ENDS}{after}")


@contextlib.contextmanager
def running_vllm(model: Path) -> Iterator[str]:
    """Start vLLM with the model, wait until it is ready, and yield its base URL; then stop it and its children."""
    port = free_port()
    base_url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "vllm.entrypoints.launchers.api_server.entry", "--model", str(model)]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            [*command, "--host", "127.0.0.1", "--port", str(port), *VLLM_FLAGS],
            env=vllm_environment(),
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            if not asyncio.run(is_ready(base_url, process)):
                log.seek(0)
                raise RuntimeError(f"vLLM did not start:\n{log.read().decode(errors='replace')[-4000:]}")
            yield base_url
        finally:
            stop(process)


def vllm_environment() -> dict[str, str]:
    """Return the environment of vLLM's processes: this process's, with a fix where torchvision is of another build."""
    broken = asyncio.run(broken_torch_companions())
    return {**os.environ, **VLLM_ENVIRONMENT, **environment_for(broken)}


def free_port() -> int:
    """Return a loopback port that was free just now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


async def is_ready(base_url: str, process: subprocess.Popen[bytes]) -> bool:
    """Wait until the server is healthy; say no if it ends first or takes too long."""
    deadline = time.monotonic() + START_SECONDS
    async with aiohttp.ClientSession(base_url) as session:
        while process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(aiohttp.ClientError):
                async with session.get("/health") as response:
                    if response.status == 200:
                        return True
            await asyncio.sleep(0.5)
    return False


def stop(process: subprocess.Popen[bytes]) -> None:
    """End the server's process group: politely, then by force."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(STOP_SECONDS)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


if __name__ == "__main__":
    sys.exit(main())
