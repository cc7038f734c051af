"""``python -m router``: the only door for clients."""

from __future__ import annotations

import sys

from rendergen.service.process import run
from rendergen.service.watched_file import BadFile
from router.app import make_router
from router.settings import RouterSettings


def main() -> int:
    settings = RouterSettings.read(sys.argv[1:])
    try:
        return run("router", settings, lambda: make_router(settings))
    except BadFile as error:
        print(f"router: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
