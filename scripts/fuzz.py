"""What `make fuzz` runs: start the stack, send its engine thousands of tampered payloads, and judge each.

A run is made again from its seed; one payload of it, with `--first N --count 1`.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import sys
import tempfile
import time
from pathlib import Path

import aiohttp

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the fuzz is among the tests, which are not installed

from rendergen.launcher import LaunchError, LaunchSettings, Stack, display_for
from tests.e2e.fuzz.run import Fuzz, Report, kinds

REQUEST_TIMEOUT_S = 120
SHOW_EVERY = 100


async def fuzz(options: argparse.Namespace) -> Report:
    """Run it on a stack of its own."""
    environment = (("RENDERGEN_PLUGIN__SIGNING_KEYS", secrets.token_hex(32)),) if options.signed else ()
    stack = Stack(LaunchSettings(port=0, environment=environment), display_for(sys.stdout))
    print(f"logs: {stack.log_dir}", flush=True)
    begun = time.monotonic()

    def show(report: Report) -> None:
        if report.total() % SHOW_EVERY == 0:
            seconds = time.monotonic() - begun
            print(f"{report.total():6d} payloads, {len(report.faults)} faults, {seconds:.0f} s", flush=True)

    timeout = aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_S)
    async with (
        stack,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True), timeout=timeout) as client,
    ):
        sender = await Fuzz.of(client, stack)
        return await sender.run(
            client,
            stack,
            options.seed,
            options.count,
            first=options.first,
            only=options.kind,
            at_once=options.at_once,
            progress=show,
        )


def main() -> int:
    """The exit code: 0 where nothing is wrong, 1 where something is, 2 where the stack did not start."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--seed", type=int, default=secrets.randbelow(10**9), help="makes a run again; default: a new one"
    )
    parser.add_argument("--count", type=int, default=2500, help="payloads to send")
    parser.add_argument("--first", type=int, default=0, help="number of the first one")
    parser.add_argument("--at-once", type=int, default=4, help="payloads in flight")
    parser.add_argument("--kind", action="append", default=[], choices=kinds(), help="only this kind; may be repeated")
    parser.add_argument("--signed", action="store_true", help="a stack with a key: whatever is signed must be refused")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    try:
        report = asyncio.run(fuzz(options))
    except LaunchError as error:
        print(f"fuzz: {error}", file=sys.stderr)
        return 2
    print(report.table())
    complaints = report.complaints(Path(tempfile.mkdtemp(prefix="fuzz-")))
    print("\n".join(complaints) or "nothing wrong")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
