from __future__ import annotations

from pathlib import Path

import pytest

from rendergen.launcher.logs import LogFile

VLLM_DEATH = """\
(APIServer pid=1) INFO 12-01 09:48:27 [api_utils.py:286] non-default args
Traceback (most recent call last):
  File "entry.py", line 129, in <module>
huggingface_hub.errors.LocalEntryNotFoundError: Cannot find it.
nanobind: leaked 64 types!
 - leaked type "triton"
 - ... skipped remainder
See https://nanobind.readthedocs.io/en/latest/refleaks.html/lib/resource_tracker.py:254: UserWarning
  warnings.warn('resource_tracker: There appear to be %d '
"""


@pytest.fixture
def log(tmp_path: Path) -> LogFile:
    return LogFile(tmp_path / "log")


def test_new_lines_come_once(log: LogFile) -> None:
    """Each line is given once, when it is complete; a missing file has none."""
    assert log.new_lines() == []
    log.path.write_text("one\ntw")
    assert log.new_lines() == ["one"]
    assert log.new_lines() == []
    with log.path.open("a") as file:
        file.write("o\n\nthree\n")
    assert log.new_lines() == ["two", "three"]


def test_a_progress_bar_is_lines(log: LogFile) -> None:
    """Carriage returns end lines, and bytes that are no UTF-8 do not stop the reader."""
    log.path.write_bytes(b"10%\r20%\r\xff\n")
    assert log.new_lines() == ["10%", "20%", "\ufffd"]


def test_the_error_is_found_above_the_noise(log: LogFile) -> None:
    """What Python prints as it exits hides the line that matters; the tail and the error leave it out."""
    log.path.write_text(VLLM_DEATH)
    assert log.error() == "huggingface_hub.errors.LocalEntryNotFoundError: Cannot find it."
    assert log.tail(2) == (
        '  File "entry.py", line 129, in <module>',
        "huggingface_hub.errors.LocalEntryNotFoundError: Cannot find it.",
    )


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", ""),
        ("usage: x\nentry.py: error: unrecognized arguments: --no\n", "entry.py: error: unrecognized arguments: --no"),
        ("(EngineCore pid=7) ERROR 12-01 09:48:27 [core.py:1] ValueError: too small\nbye\n", "ValueError: too small"),
        (
            "(EngineCore pid=7) torch.OutOfMemoryError: CUDA out of memory\n",
            "torch.OutOfMemoryError: CUDA out of memory",
        ),
        ("INFO all is well\nsee Errors.md for more\n", "see Errors.md for more"),
    ],
)
def test_which_line_is_the_error(log: LogFile, text: str, error: str) -> None:
    """The last exception, with or without vLLM's prefix, else the last line."""
    log.path.write_text(text)
    assert log.error() == error


def test_only_the_end_is_read(log: LogFile) -> None:
    """A log of any size costs the same."""
    log.path.write_text("ValueError: old\n" + "line\n" * 100_000 + "last\n")
    assert log.error() == "last"
    assert log.tail(2) == ("line", "last")
