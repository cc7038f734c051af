"""Lets vLLM run beside a torchvision, torchaudio or torchcodec that was built for another torch.

PyPI's builds of these three are CUDA builds. Beside a CPU build of torch their compiled parts do not load, and so:

    torchvision  RuntimeError: operator torchvision::nms does not exist
    torchaudio   OSError: Could not load this library
    torchcodec   OSError: Could not load this library

vLLM imports torchvision for Qwen-VL's image processors; transformers imports torchaudio, and vLLM torchcodec, wherever
they are installed. What is used of them here is Python code, or nothing. So, as one of them is imported:

- torchvision: the schemas of the operators that it registers fake kernels for are defined first.
- torchaudio: its loader is told that there is no compiled extension, a case that it provides for.
- torchcodec: the OSError becomes an ImportError, which vLLM takes to mean that it is not there.

vLLM starts child processes, and each has to be told. Python imports a module named `sitecustomize` as every process
starts, so `rendergen.launcher.torch_companions` puts this directory on the PYTHONPATH of vLLM's processes, where and
only where these imports were seen to fail, and names those that did in RENDERGEN_BROKEN_TORCH_COMPANIONS (comma
separated; all three when it is absent). A process that imports none of them pays for one entry in `sys.meta_path`;
torch itself is imported only when torchvision is.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys

TYPE_CHECKING = False  # what type checkers read as true: `typing` is not imported here, for it would cost every process
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.abc import Loader
    from importlib.machinery import ModuleSpec
    from types import ModuleType

_NMS_SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_BROKEN = os.environ.get("RENDERGEN_BROKEN_TORCH_COMPANIONS", "torchvision,torchaudio,torchcodec").split(",")


class _Loader:
    """A module's own loader, with something done before, after or around the module's code."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)


class _DefinesOperators(_Loader):
    def exec_module(self, module: ModuleType) -> None:
        import torch

        for operator in ("torchvision::nms", "torchvision::qnms"):
            torch.library.define(operator, _NMS_SCHEMA)
        super().exec_module(module)


class _HasNoExtension(_Loader):
    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        module.__dict__["_load_lib"] = lambda name: False


class _SaysImportError(_Loader):
    def exec_module(self, module: ModuleType) -> None:
        try:
            super().exec_module(module)
        except OSError as error:
            raise ImportError(str(error)) from error


_FIXES: dict[str, tuple[str, type[_Loader]]] = {
    "torchvision": ("torchvision.extension", _DefinesOperators),
    "torchaudio": ("torchaudio._extension.utils", _HasNoExtension),
    "torchcodec": ("torchcodec", _SaysImportError),
}
_LOADERS: dict[str, type[_Loader]] = dict(_FIXES[package] for package in _BROKEN if package in _FIXES)


class _Finder:
    """Finds the modules to fix as the normal finder would, and gives them the loader of the fix."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        loader = _LOADERS.get(name)
        if loader is None:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = loader(spec.loader)  # type: ignore[assignment]  # a loader by what it does, not by its base
        return spec


def _run_the_one_this_one_hides() -> None:
    """Another sitecustomize further down the path still has its turn."""
    here = os.path.dirname(os.path.abspath(__file__))
    others = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


sys.meta_path.insert(0, _Finder)
_run_the_one_this_one_hides()
