from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MAKEFILE = (ROOT / "Makefile").read_text()


def make(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run make as a user does: `make test` leaves variables behind that change what a make below it prints."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("MAKE") and name != "MFLAGS"
    }
    return subprocess.run(["make", *arguments], cwd=cwd, env=environment, capture_output=True, text=True, timeout=30)


def test_help_lists_every_target() -> None:
    """`make help`, which is what `make` alone does, shows each target with a sentence."""
    targets = re.search(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)
    assert targets is not None
    assert [line.split()[1] for line in make().stdout.splitlines()] == targets[1].split()


@pytest.mark.parametrize(
    ("python", "line"),
    [("", "make: no Python 3.11 or newer found"), ("/no/python", "make: PYTHON=/no/python does not run")],
)
def test_no_python_is_one_line(python: str, line: str, tmp_path: Path) -> None:
    """Where no Python will do, make says so in a line of its own."""
    for name in ("pyproject.toml", "constraints.txt", "scripts/install.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    result = make("-f", str(ROOT / "Makefile"), f"PYTHON={python}", "install", cwd=tmp_path)
    assert result.returncode != 0
    assert any(each.startswith(line) for each in result.stderr.splitlines())


def test_ci_runs_the_readmes_test_command() -> None:
    """`.ci/run` can be run as it is, and ends in `make test`."""
    script = ROOT / ".ci/run"
    assert os.access(script, os.X_OK)
    assert re.search(r"^exec make test\b", script.read_text(), re.MULTILINE)
