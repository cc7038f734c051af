"""`rendergen up` with fake processes: `python fake_up.py LOG_DIR [FLAGS]`; the flags go to the fake engine."""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from rendergen.launcher.commands import ProcessSpec, Role
from rendergen.launcher.settings import LaunchSettings
from rendergen.launcher.up import run_until_stopped
from tests.rendergen.launcher.conftest import make_spec


async def plan(settings: LaunchSettings) -> Sequence[ProcessSpec]:
    engine = make_spec(Role.VLLM_ENGINE, *sys.argv[2:])
    return [
        make_spec(Role.VLLM_RENDER),
        engine,
        make_spec(Role.RENDER_SERVICE),
        make_spec(Role.GENERATE_SERVICE),
        make_spec(Role.ROUTER),
    ]


settings = LaunchSettings(log_dir=Path(sys.argv[1]), stop_grace_s=15.0)
sys.exit(asyncio.run(run_until_stopped(settings, sys.stdout, plan)))
