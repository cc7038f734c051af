"""A router of its own before the stack's services, which asks its callers for a key."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from rendergen.launcher import Stack
from rendergen.service.api_keys import key_line, new_key
from tests.e2e.service_process import service_process


@asynccontextmanager
async def guarded_router(stack: Stack, directory: Path) -> AsyncIterator[tuple[str, str]]:
    """Its URL, and a key that it takes. The file of keys is written to ``directory``."""
    key, file = new_key(), directory / "keys"
    file.write_text(key_line("caller", key))
    flags = (
        *("--render-pods", ",".join(stack.render_service_urls)),
        *("--generate-pods", ",".join(stack.generate_service_urls)),
        *("--api-keys-file", str(file)),
    )
    async with service_process("router", *flags) as process:
        yield process.spec.url, key
