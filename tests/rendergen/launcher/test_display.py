from __future__ import annotations

import io
from dataclasses import replace

import pytest

from rendergen.launcher.display import LiveDisplay, PlainDisplay, ProcessState, display_for

STATE = ProcessState("router", 7, "waiting", 0.0, False)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_plain_lines_tell_changes_only() -> None:
    """One line when a process goes on to another stage, none while it stays in one."""
    out = io.StringIO()
    display = PlainDisplay(out)
    display.show([STATE])
    display.show([replace(STATE, seconds=1.0)])
    display.show([replace(STATE, stage="ready", seconds=2.0, ready=True)])
    display.close()
    assert out.getvalue() == "[  0.0 s] router             waiting\n[  2.0 s] router             ready\n"


def test_the_table_shows_every_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Name, process id, what it is doing and the seconds, for each."""
    monkeypatch.setenv("TERM", "xterm")
    out = Terminal()
    display = LiveDisplay(out)
    display.show([STATE, ProcessState("vllm-engine-0", 8, "loading weights, 50 %", 12.4, False)])
    display.close()
    for text in ("router", "7", "waiting", "vllm-engine-0", "8", "loading weights, 50 %", "12"):
        assert text in out.getvalue()


def test_text_after_closing_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is printed between two tables is not written over: the second does not move the cursor up."""
    monkeypatch.setenv("TERM", "xterm")
    out = Terminal()
    display = LiveDisplay(out)
    display.show([STATE])
    display.close()
    out.write("READY\n")
    display.show([STATE])
    display.close()
    second = out.getvalue().partition("READY\n")[2]
    assert "router" in second
    assert "\x1b[1A" not in second.partition("router")[0]


def test_closing_what_was_never_shown() -> None:
    """A start that fails at once leaves nothing on the screen."""
    out = Terminal()
    LiveDisplay(out).close()
    assert out.getvalue() == ""


def test_which_display() -> None:
    """A table needs a terminal; a log file or CI gets lines."""
    assert isinstance(display_for(Terminal()), LiveDisplay)
    assert isinstance(display_for(io.StringIO()), PlainDisplay)
