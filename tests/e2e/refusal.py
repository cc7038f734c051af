"""What every error that a caller sees must be like, whatever went wrong."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from urllib.parse import urlsplit

from rendergen.launcher import Stack
from tests.e2e.calls import Reply

# Signs of a program's inside: tracebacks, reprs of objects, C-level and asyncio errors.
_INSIDES = re.compile(r"Traceback|File \"|site-packages|\.py\b| object at 0x|Errno|Connect call failed|ClientError")
_PATH = re.compile(r"(?:/[\w.@+-]+)+/?")
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def assert_refused(
    reply: Reply, statuses: int | Collection[int], says: str, *, stack: Stack, said: Collection[str] = ()
) -> None:
    """The reply is an error as callers should get it.

    Args:
        reply: the answer.
        statuses: the HTTP status, or those of which any will do.
        says: a regular expression that must be found in the message, letters of either case.
        stack: the stack, whose addresses must not show.
        said: what the caller wrote itself and so may read again.
    """
    allowed = {statuses} if isinstance(statuses, int) else set(statuses)
    assert reply.status in allowed, f"{reply.status}: {reply.text()}"
    assert reply.headers["Content-Type"].startswith("application/json")
    assert_openai_shape(reply)
    error = reply.json()["error"]
    assert re.search(says, error["message"], re.IGNORECASE), error["message"]
    assert_tells_nothing_of_the_inside(reply.text(), stack, said)


def assert_openai_shape(reply: Reply) -> None:
    """The body is OpenAI's error object, and its code the status."""
    document = reply.json()
    assert set(document) == {"error"}, document
    error = document["error"]
    assert set(error) == {"message", "type", "param", "code"}, error
    assert isinstance(error["message"], str)
    assert error["message"].strip()
    assert isinstance(error["type"], str)
    assert error["type"]
    assert error["param"] is None or isinstance(error["param"], str)
    assert error["code"] == reply.status


def assert_tells_nothing_of_the_inside(text: str, stack: Stack, said: Collection[str] = ()) -> None:
    """No traceback, no path of this machine and no address of a process of ours is in ``text``."""
    for own_words in said:
        text = text.replace(own_words, "")
    assert not _INSIDES.search(text), text
    for address in (*_LOOPBACK, *(str(port) for port in _ports(stack))):
        assert not re.search(rf"(?<![\w.]){re.escape(address)}(?![\w.])", text), f"{address} is in {text}"
    for path in _PATH.findall(text):
        assert path.count("/") < 2 or not Path(path).exists(), f"{path} is in {text}"


def _ports(stack: Stack) -> list[int]:
    ports = [urlsplit(process.spec.url).port for process in stack.processes]
    return [port for port in ports if port is not None]
