"""The fix is tried on fake packages that fail as the real ones do, in processes of their own as vLLM's are."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from rendergen.launcher.torch_companions import FIX_DIRECTORY, broken_torch_companions, environment_for

FAKES = {
    "torch/__init__.py": "from torch import library\n",
    "torch/library.py": "defined = []\ndef define(name, schema): defined.append(name)\n",
    "torchvision/__init__.py": "from torchvision import extension, _meta_registrations\n",
    "torchvision/extension.py": "",
    "torchvision/_meta_registrations.py": (
        "import torch\n"
        "for name in ('torchvision::nms', 'torchvision::qnms'):\n"
        "    if name not in torch.library.defined:\n"
        "        raise RuntimeError(f'operator {name} does not exist')\n"
    ),
    "torchaudio/__init__.py": "from torchaudio import _extension\n",
    "torchaudio/_extension/__init__.py": ("from .utils import _load_lib\nAVAILABLE = _load_lib('_torchaudio')\n"),
    "torchaudio/_extension/utils.py": (
        "def _load_lib(lib): raise OSError('Could not load this library: _torchaudio.so')\n"
    ),
    "torchcodec/__init__.py": "raise OSError('Could not load this library: torchcodec.so')\n",
}


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory on PYTHONPATH with the fakes."""
    for name, text in FAKES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path


async def python(code: str, environment: dict[str, str]) -> str:
    """What a Python process with this environment prints; the last line of its traceback if it fails."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", code),
        env={**os.environ, **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await child.communicate()
    return output.decode().strip().rpartition("\n")[2]


async def test_what_is_broken_is_found(packages: Path) -> None:
    """All three fail here as they do beside a torch that they were not built for."""
    assert await broken_torch_companions() == ("torchvision", "torchaudio", "torchcodec")


async def test_what_works_or_is_missing_is_left_alone(packages: Path) -> None:
    """A package that imports, one that is not installed, and one that fails for another reason are not broken."""
    (packages / "torchvision/_meta_registrations.py").write_text("")
    (packages / "torchaudio/__init__.py").write_text("raise ImportError('not here')\n")
    assert await broken_torch_companions() == ("torchcodec",)
    (packages / "torchcodec/__init__.py").write_text("raise RuntimeError('FFmpeg is not installed')\n")
    assert await broken_torch_companions() == ()


async def test_a_python_that_hangs_is_not_waited_for(tmp_path: Path) -> None:
    """Finding out has a time limit; vLLM then says itself what is wrong."""
    hanging = tmp_path / "python"
    hanging.write_text("#!/bin/sh\nexec sleep 600\n")
    hanging.chmod(0o755)
    assert await broken_torch_companions(str(hanging), timeout_s=0.05) == ()


@pytest.mark.parametrize("package", ["torchvision", "torchaudio"])
async def test_it_imports_with_the_fix(packages: Path, package: str) -> None:
    """Without the fix the import fails, with it the package's Python code is there."""
    code = f"import {package}; print('imported')"
    assert "Error" in await python(code, {})
    assert await python(code, environment_for((package,))) == "imported"


async def test_torchcodec_counts_as_not_installed(packages: Path) -> None:
    """vLLM expects an ImportError where torchcodec cannot be used."""
    code = "import torchcodec"
    assert (await python(code, {})).startswith("OSError")
    assert (await python(code, environment_for(("torchcodec",)))).startswith("ImportError: Could not load")


async def test_only_what_is_broken_is_touched(packages: Path) -> None:
    """A torchvision that is named as broken says nothing about torchaudio."""
    assert (await python("import torchaudio", environment_for(("torchvision",)))).startswith("OSError")


async def test_torch_is_not_imported_for_nothing(packages: Path) -> None:
    """A process that uses none of these packages does not pay for torch."""
    code = "import sys; print('torch' in sys.modules, 'typing' in sys.modules)"
    assert await python(code, environment_for(("torchvision",))) == await python(code, {}) == "False False"


async def test_children_have_the_fix_too(packages: Path) -> None:
    """vLLM's engine core and workers are child processes: they inherit it with the environment."""
    inner = "import torchvision; print('imported')"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {inner!r}])"
    assert await python(code, environment_for(("torchvision",))) == "imported"


async def test_another_sitecustomize_still_runs(packages: Path) -> None:
    """A machine may have its own: it is run as well."""
    (packages / "sitecustomize.py").write_text("import builtins\nbuiltins.theirs = 'ran'\n")
    assert await python("print(theirs)", environment_for(("torchvision",))) == "ran"


def test_no_environment_where_nothing_is_broken() -> None:
    """A machine whose packages match does not get the directory on any path."""
    assert environment_for(()) == {}
    assert (FIX_DIRECTORY / "sitecustomize.py").is_file()
