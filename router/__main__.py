"""``python -m router``: the only door for clients."""

from __future__ import annotations

import sys

from rendergen.service.process import run
from router.app import make_router
from router.settings import RouterSettings


def main() -> int:
    settings = RouterSettings.read(sys.argv[1:])
    return run("router", settings, lambda: make_router(settings))


if __name__ == "__main__":
    sys.exit(main())
