"""A short run of the fuzz; `make fuzz` is the long one."""

from __future__ import annotations

from pathlib import Path

import aiohttp
import pytest

from rendergen.launcher import Stack
from tests.e2e.fuzz.run import Fuzz, kinds

pytestmark = pytest.mark.plugin

SEED = 20261201
OF_EACH_KIND = 10


async def test_tampered_payloads(stack: Stack, client: aiohttp.ClientSession, tmp_path: Path) -> None:
    """Each is refused with a typed 4xx or answered as its pixels deserve, and the engine is the same in the end."""
    fuzz = await Fuzz.of(client, stack)
    report = await fuzz.run(client, stack, SEED, OF_EACH_KIND * len(kinds()))
    print(report.table())
    assert report.complaints(tmp_path) == []
