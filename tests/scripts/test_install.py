"""scripts/install.py in a repository of its own, with a script that plays the virtual environment's Python."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "install.py"

# Notes what it is asked to do. It fails, as pip does, where a file says that it should.
FAKE_PYTHON = """#!/bin/sh
echo "$@" >> "$0.calls"
case "$*" in
  *--dry-run*) test ! -e "$0.no-torch" ;;
  *--editable*) test ! -e "$0.fail" || { echo "ERROR: No matching distribution found for x"; exit 1; } ;;
esac
"""


class Repository:
    """A copy of what the install reads, and a virtual environment that is there already."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "scripts").mkdir()
        shutil.copy(SCRIPT, root / "scripts")
        (root / "pyproject.toml").write_text("")
        (root / "constraints.txt").write_text("# torch==9\ntorch==2.13.0\n")
        self.python = root / ".venv/bin/python"
        self.python.parent.mkdir(parents=True)
        self.python.write_text(FAKE_PYTHON)
        self.python.chmod(0o755)
        self.stamp = root / ".venv/stamp"

    def install(self, *python: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*(python or (sys.executable, str(self.root / "scripts/install.py"))), "--stamp", ".venv/stamp"],
            cwd=self.root,
            env={**os.environ, **(environment or {})},
            capture_output=True,
            text=True,
            timeout=60,
        )

    def make(self, name: str) -> None:
        self.python.with_name("python" + name).touch()

    def calls(self) -> list[str]:
        calls = self.python.with_name("python.calls")
        return calls.read_text().splitlines() if calls.exists() else []


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


def test_it_installs_with_the_constraints(repository: Repository) -> None:
    """The exact versions, the extras that demo and tests need, and a stamp once it is done; each phase is told."""
    result = repository.install()
    assert result.returncode == 0
    assert repository.calls()[-1] == "-m pip install --constraint constraints.txt --editable .[render,cpu,dev]"
    assert repository.stamp.exists()
    phases = [line.partition("] ")[2] for line in result.stderr.splitlines()]
    assert phases[0] == "updating pip"
    assert phases[-1] == "done"


def test_a_second_run_costs_nothing(repository: Repository) -> None:
    """With nothing changed nothing is run, and the stamp is newer than its inputs, which is what make looks at."""
    repository.install()
    before = repository.calls()
    os.utime(repository.stamp, (0, 0))
    assert repository.install().returncode == 0
    assert repository.calls() == before
    assert repository.stamp.stat().st_mtime >= (repository.root / "constraints.txt").stat().st_mtime


@pytest.mark.parametrize("name", ["pyproject.toml", "constraints.txt"])
def test_a_change_installs_again(repository: Repository, name: str) -> None:
    """Other dependencies or versions are installed by the next make."""
    repository.install()
    before = len(repository.calls())
    with (repository.root / name).open("a") as file:
        file.write("# changed\n")
    repository.install()
    assert len(repository.calls()) > before


def test_pytorchs_index_where_pip_needs_it(repository: Repository) -> None:
    """Where pip does not find torch's CPU build by itself PyTorch's own index is added; elsewhere nothing is."""
    repository.make(".no-torch")
    repository.install()
    assert "torch==2.13.0+cpu" in repository.calls()[-2]
    assert "--extra-index-url https://download.pytorch.org/whl/cpu" in repository.calls()[-1]


def test_pips_failure_is_one_line(repository: Repository) -> None:
    """Pip's own first error and the log's place; exit code 1, and the next run tries again."""
    repository.make(".fail")
    result = repository.install()
    assert result.returncode == 1
    log = repository.root / ".rendergen/install.log"
    assert result.stderr.splitlines()[-1] == f"install: ERROR: No matching distribution found for x (log: {log})"
    assert not repository.stamp.exists()


def test_a_python_without_ensurepip(repository: Repository, tmp_path: Path) -> None:
    """Debian's Python without its venv package: one line with the package's name."""
    (tmp_path / "ensurepip.py").write_text("raise ImportError(name='ensurepip')\n")
    result = repository.install(environment={"PYTHONPATH": str(tmp_path)})
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert (result.returncode, result.stderr.strip()) == (
        1,
        f"install: this Python has no ensurepip; on Debian and Ubuntu: apt install python{version}-venv",
    )


def test_a_python_that_is_too_old(repository: Repository) -> None:
    """One line with what it is and what is needed."""
    old = (
        "import sys; sys.path.insert(0, 'scripts'); import install; install.OLDEST = (3, 99); sys.exit(install.main())"
    )
    result = repository.install(sys.executable, "-c", old)
    assert result.returncode == 1
    assert "and 3.11 to 3.14 is needed: make PYTHON=/path/to/python" in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
