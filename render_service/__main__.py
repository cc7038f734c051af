"""``python -m render_service``: the door of one vLLM render server."""

from __future__ import annotations

import sys

from render_service.app import make_app
from render_service.settings import RenderServiceSettings
from rendergen.service.process import run


def main() -> int:
    settings = RenderServiceSettings.read(sys.argv[1:])
    return run("render_service", settings, lambda: make_app(settings))


if __name__ == "__main__":
    sys.exit(main())
