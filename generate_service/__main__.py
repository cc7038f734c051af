"""``python -m generate_service``: the door of one vLLM engine."""

from __future__ import annotations

import sys

from generate_service.app import make_app
from generate_service.settings import GenerateServiceSettings
from rendergen.service.process import run


def main() -> int:
    settings = GenerateServiceSettings.read(sys.argv[1:])
    return run("generate_service", settings, lambda: make_app(settings))


if __name__ == "__main__":
    sys.exit(main())
