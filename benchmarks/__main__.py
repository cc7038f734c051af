"""`python -m benchmarks [splice|hop] [--quick]`: run the benchmarks, and print what came out."""

from __future__ import annotations

import argparse
import asyncio
import sys

from benchmarks import hop, splice
from benchmarks.client import RequestFailed
from benchmarks.processes import ProcessFailed
from benchmarks.report import machine


def main() -> int:
    """Run what the command line asks for. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="benchmarks", description="What the product costs.")
    parser.add_argument("only", nargs="?", choices=("splice", "hop"), help="run this one; default: both")
    parser.add_argument("--quick", action="store_true", help="a short hop run, for whether it works: its figures vary")
    arguments = parser.parse_args()
    print(machine(["aiohttp", "uvloop"]))
    try:
        if arguments.only != "hop":
            print("\n## Splice\n")
            splice.run()
        if arguments.only != "splice":
            print("\n## Hop")
            hop.run(hop.QUICK if arguments.quick else hop.FULL)
    except (ProcessFailed, RequestFailed) as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 1
    except (KeyboardInterrupt, asyncio.CancelledError):
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
