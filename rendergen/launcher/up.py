"""`rendergen up`: a stack in the foreground, from the command line to Ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TextIO

from rendergen.launcher.commands import ProcessSpec
from rendergen.launcher.display import display_for
from rendergen.launcher.errors import LaunchError
from rendergen.launcher.red_image import red_png_data_url
from rendergen.launcher.settings import LaunchSettings
from rendergen.launcher.stack import Stack, prepare

__all__ = ["run_until_stopped"]


Plan = Callable[[LaunchSettings], Awaitable[Sequence[ProcessSpec]]]


async def run_until_stopped(settings: LaunchSettings, out: TextIO, plan: Plan = prepare) -> int:
    """Run the stack until a signal or a failure ends it. The exit code: 0 when it was asked to stop, 1 on failure.

    The first SIGINT or SIGTERM stops everything in good order, a second one kills it.
    """
    stack = Stack(settings, display_for(out))
    running = asyncio.current_task()
    assert running is not None
    stopping = False
    failure: LaunchError | None = None

    def stop() -> None:
        nonlocal stopping
        if stopping:
            stack.kill()
        else:
            stopping = True
            running.cancel()

    with _on_signals(stop):
        try:
            print("checking this machine", file=out, flush=True)
            specs = await plan(settings)
            print(f"starting {len(specs)} processes for {settings.name}; logs in {stack.log_dir}", file=out, flush=True)
            await stack.start(specs)
            print(_welcome(stack), file=out, flush=True)
            await stack.wait()
        except asyncio.CancelledError:
            if not stopping:
                raise
            running.uncancel()
        except LaunchError as error:
            failure = error
        stopping = True  # from here on a signal does not wait
        await stack.stop()
    if failure is None:
        return 0
    print(f"rendergen: {failure}", *filter(None, [failure.details()]), sep="\n", file=sys.stderr)
    return 1


@contextlib.contextmanager
def _on_signals(action: Callable[[], None]) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    for number in numbers:
        loop.add_signal_handler(number, action)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


def _welcome(stack: Stack) -> str:
    """Where everything is, and something to try."""
    rows = [
        ("router", (stack.router_url,)),
        ("render services", stack.render_service_urls),
        ("generate services", stack.generate_service_urls),
        ("vLLM render", stack.vllm_render_urls),
        ("vLLM engines", stack.vllm_engine_urls),
    ]
    lines = ["", *(f"{name:<18} {' '.join(urls)}" for name, urls in rows), f"{'logs':<18} {stack.log_dir}", ""]
    lines += ["Try it (the image is 64×64 red pixels):", "", _example(stack), "", "Ctrl-C stops everything."]
    return "\n".join(lines)


def _example(stack: Stack) -> str:
    content = [
        {"type": "image_url", "image_url": {"url": red_png_data_url(64)}},
        {"type": "text", "text": "What color is this image? Answer in one word."},
    ]
    messages = [{"role": "user", "content": content}]
    body = json.dumps({"model": stack.settings.name, "messages": messages, "max_tokens": 16, "temperature": 0})
    headers = "-H 'Content-Type: application/json'"
    if stack.settings.api_keys_file is not None:
        headers += ' -H "Authorization: Bearer $KEY"'  # the files have only its hash
    return f"curl -s {stack.router_url}/v1/chat/completions {headers} -d '{body}'"
