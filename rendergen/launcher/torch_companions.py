"""Finds packages that were built for another torch, and says what vLLM's processes need to get along with them.

`torchvision_fix/sitecustomize.py` has the story and the fix. It is used only where the imports were seen to fail.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

__all__ = ["broken_torch_companions", "environment_for"]

FIX_DIRECTORY = Path(__file__).resolve().parent / "torchvision_fix"
_VARIABLE = "RENDERGEN_BROKEN_TORCH_COMPANIONS"

# Prints the names of those that are installed and whose compiled parts do not load. Any other fault is left to vLLM
# to report: hiding it here would only move it.
_PROBE = """
import importlib
for name in ("torchvision", "torchaudio", "torchcodec"):
    try:
        importlib.import_module(name)
    except ImportError:
        pass
    except (OSError, RuntimeError) as error:
        if "torchvision::nms does not exist" in str(error) or "Could not load this library" in str(error):
            print(name)
"""


async def broken_torch_companions(python: str = sys.executable, timeout_s: float = 120.0) -> tuple[str, ...]:
    """The packages whose import fails beside the installed torch. Takes as long as importing torch: some seconds."""
    child = await asyncio.create_subprocess_exec(
        python,
        "-c",
        _PROBE,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        output, _ = await asyncio.wait_for(child.communicate(), timeout_s)
    except TimeoutError:
        return ()
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    return tuple(output.decode().split())


def environment_for(broken: tuple[str, ...]) -> dict[str, str]:
    """Variables for vLLM's processes; none where nothing is broken."""
    if not broken:
        return {}
    path = [str(FIX_DIRECTORY), *filter(None, [os.environ.get("PYTHONPATH", "")])]
    return {"PYTHONPATH": os.pathsep.join(path), _VARIABLE: ",".join(broken)}
