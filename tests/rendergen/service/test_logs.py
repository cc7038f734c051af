import json
import logging
from collections.abc import Iterator

import pytest

from rendergen.service import logs, request_id

log = logging.getLogger("rendergen.somewhere")


@pytest.fixture(autouse=True)
def root_logger() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    out, err = capsys.readouterr()
    assert out == ""
    return [json.loads(line) for line in err.splitlines()]


def test_a_line_is_one_json_object(capsys: pytest.CaptureFixture[str]) -> None:
    """With the time, the level, the service, the request's id, the logger, the message, and what was added to it."""
    logs.configure("router", "info")
    token = request_id.current.set("mine")
    try:
        log.warning("pod is not ready", extra={"pod": "http://p"})
    finally:
        request_id.current.reset(token)
    [line] = lines(capsys)
    assert line.pop("time")
    assert line == {
        "level": "WARNING",
        "service": "router",
        "request_id": "mine",
        "logger": "rendergen.somewhere",
        "message": "pod is not ready",
        "pod": "http://p",
    }


@pytest.mark.parametrize("text", ["two\nlines", "\r\n", '"}', "\u2028", "한 😀", "\x00\x1b[31m"])
def test_whatever_is_logged_is_one_line(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A message cannot make a second line, nor end its own."""
    logs.configure("router", "info")
    log.info(text, extra={"error": text})
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert json.loads(err)["message"] == json.loads(err)["error"] == text


def test_a_traceback_is_within_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Outside of a request there is no id."""
    logs.configure("router", "info")
    try:
        raise KeyError("why")
    except KeyError:
        log.exception("unexpected failure")
    [line] = lines(capsys)
    assert "KeyError: 'why'" in str(line["exc_info"])
    assert line["request_id"] is None


def test_what_others_log_is_json_too(capsys: pytest.CaptureFixture[str]) -> None:
    """aiohttp's and asyncio's lines go the same way, from the level that was asked for."""
    logs.configure("router", "warning")
    logging.getLogger("aiohttp.server").error("Error handling request")
    logging.getLogger("asyncio").info("not shown")
    assert [line["logger"] for line in lines(capsys)] == ["aiohttp.server"]


def test_configuring_twice_does_not_log_twice(capsys: pytest.CaptureFixture[str]) -> None:
    """The last one counts."""
    logs.configure("a", "info")
    logs.configure("b", "info")
    log.info("x")
    assert [line["service"] for line in lines(capsys)] == ["b"]
