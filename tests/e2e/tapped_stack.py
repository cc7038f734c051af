"""Second services before the stack's vLLM, with taps where the payload leaves one vLLM and enters the other.

router ─▶ render service ─▶ render tap ─▶ vLLM render server
       └▶ generate service ─▶ generate tap ─▶ vLLM engine
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from rendergen.launcher import Stack
from tests.e2e.service_process import service_process
from tests.e2e.tap import Tap, tap

# Where the plugin says what it speaks. A vLLM that does not answer there is spoken to as one without the plugin.
CAPABILITIES = "/inference/v1/rendergen"


@dataclass(frozen=True, slots=True)
class TappedStack:
    """The addresses, and what passed."""

    router_url: str
    render: Tap
    generate: Tap

    def forget(self) -> None:
        """Drop what passed so far."""
        self.render.exchanges.clear()
        self.generate.exchanges.clear()


@asynccontextmanager
async def tapped_stack(stack: Stack, *, frames: bool) -> AsyncIterator[TappedStack]:
    """Start it. Without ``frames`` the taps hide that vLLM speaks them, and payloads go as JSON."""
    hides = frozenset() if frames else frozenset({CAPABILITIES})
    async with (
        tap(stack.vllm_render_urls[0], hides) as render,
        tap(stack.vllm_engine_urls[0], hides) as generate,
        service_process("render_service", "--vllm-url", render.url) as render_service,
        service_process("generate_service", "--vllm-url", generate.url) as generate_service,
        service_process(
            "router", "--render-pods", render_service.spec.url, "--generate-pods", generate_service.spec.url
        ) as router,
    ):
        yield TappedStack(router.spec.url, render, generate)
