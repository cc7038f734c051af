"""What `make demo` runs: start the stack, send a red image through it in both ways, stop it."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

import aiohttp

from rendergen.launcher import LaunchError, LaunchSettings, Stack, display_for
from rendergen.launcher.red_image import red_png_data_url

ROUND_TRIP = Path(__file__).resolve().with_name("roundtrip.py")
QUESTION = "What color is this image? Answer in one word."
EXPECTED = "Red"


class DemoError(Exception):
    """A stage that did not give what it should."""


class Stages:
    """Announces each stage, and how long it took."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._number = 0

    def begin(self, what: str) -> None:
        self._number += 1
        self._begun = time.monotonic()
        print(f"\n{self._number}. {what}", flush=True)

    def done(self) -> None:
        print(f"   done in {time.monotonic() - self._begun:.1f} s", flush=True)


async def demo() -> str:
    """Run every stage; the model's answer."""
    stages = Stages()
    stages.begin("Start vLLM's render server and engine, the services and the router")
    stack = Stack(LaunchSettings(port=0), display_for(sys.stdout))
    print(f"   logs: {stack.log_dir}", flush=True)
    async with stack:
        stages.done()
        try:
            stages.begin("Step by step: render, generate, decode (scripts/roundtrip.py)")
            await round_trip(stack.router_url)
            stages.done()
            stages.begin("In one request: POST /v1/chat/completions")
            answer = await chat(stack)
            print(f"   answer: {answer}")
            stages.done()
        finally:
            stages.begin("Stop everything")
    stages.done()
    return answer


async def round_trip(router_url: str) -> None:
    script = await asyncio.create_subprocess_exec(sys.executable, str(ROUND_TRIP), "--base-url", router_url)
    try:
        code = await script.wait()
    finally:
        if script.returncode is None:
            script.kill()
    if code != 0:
        raise DemoError(f"the round trip failed with exit code {code}")


async def chat(stack: Stack) -> str:
    content = [
        {"type": "image_url", "image_url": {"url": red_png_data_url(224)}},
        {"type": "text", "text": QUESTION},
    ]
    body = {"model": stack.settings.name, "messages": [{"role": "user", "content": content}], "temperature": 0}
    timeout = aiohttp.ClientTimeout(total=120)
    async with (
        aiohttp.ClientSession(timeout=timeout) as session,
        session.post(f"{stack.router_url}/v1/chat/completions", json=body) as response,
    ):
        answer: dict[str, Any] = await response.json(content_type=None)
    if response.status != 200:
        raise DemoError(f"/v1/chat/completions answered {response.status}: {answer}")
    text = str(answer["choices"][0]["message"]["content"]).strip()
    if text != EXPECTED:
        raise DemoError(f"/v1/chat/completions answered {text!r} and not {EXPECTED!r}")
    return text


def main() -> int:
    try:
        answer = asyncio.run(demo())
    except LaunchError as error:
        print(f"demo: {error}", *filter(None, [error.details()]), sep="\n", file=sys.stderr)
        return 1
    except (DemoError, aiohttp.ClientError, TimeoutError) as error:
        print(f"demo: {error or type(error).__name__}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("demo: stopped", file=sys.stderr)
        return 130
    print(f"\n{answer}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
