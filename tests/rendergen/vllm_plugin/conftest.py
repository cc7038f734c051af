"""vLLM in the test's own process: it is imported here, before any test module is.

Its import warns of much that is not ours, and warnings are errors here; and where torchvision is of another build than
torch, it fails without the fix that the launcher gives to vLLM's processes.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import warnings
from pathlib import Path

import rendergen.launcher

_FIX = Path(rendergen.launcher.__file__).parent / "torchvision_fix" / "sitecustomize.py"


def _import_vllm() -> None:
    os.environ.update(HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1", DO_NOT_TRACK="1", VLLM_LOGGING_LEVEL="ERROR")
    if "torchvision" not in sys.modules:
        spec = importlib.util.spec_from_file_location("rendergen_torchvision_fix", _FIX)
        assert spec is not None
        assert spec.loader is not None
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import vllm.engine.arg_utils
        import vllm.entrypoints.scale_out.token_in_token_out.serving
        import vllm.multimodal.encoder_budget  # noqa: F401


_import_vllm()
