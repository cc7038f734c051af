"""`python -m benchmarks [splice|hop|split|stalls|derender|latency] [--quick]`: run them, and print what came out."""

from __future__ import annotations

import argparse
import asyncio
import sys

from benchmarks import derender, hop, latency, splice, split
from benchmarks.client import RequestFailed
from benchmarks.processes import ProcessFailed
from benchmarks.report import machine
from rendergen.launcher import LaunchError


def main() -> int:
    """Run what the command line asks for. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="benchmarks", description="What the product costs.")
    parser.add_argument(
        "only",
        nargs="?",
        choices=("splice", "hop", "split", "stalls", "derender", "latency"),
        help="run this one; default: all (stalls is the end of split)",
    )
    parser.add_argument("--quick", action="store_true", help="a short run, for whether it works: its figures vary")
    arguments = parser.parse_args()
    print(machine(["aiohttp", "uvloop"]))
    try:
        if arguments.only in (None, "splice"):
            print("\n## Splice\n")
            splice.run()
        if arguments.only in (None, "hop"):
            print("\n## Hop")
            hop.run(hop.QUICK if arguments.quick else hop.FULL)
        if arguments.only in (None, "split"):
            print("\n## Split\n")
            split.run(split.QUICK if arguments.quick else split.FULL)
        if arguments.only == "stalls":
            split.run(split.QUICK if arguments.quick else split.FULL, cases=())
        if arguments.only in (None, "derender"):
            print("\n## Derender\n")
            derender.run()
        if arguments.only in (None, "latency"):
            print("\n## Latency\n")
            latency.run(latency.QUICK if arguments.quick else latency.FULL)
    except (ProcessFailed, RequestFailed) as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 1
    except LaunchError as error:
        print(f"benchmarks: {error}\n{error.details()}".rstrip(), file=sys.stderr)
        return 1
    except (KeyboardInterrupt, asyncio.CancelledError):
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
