"""A small file that is read again when it changes, without anyone waiting for it."""

from __future__ import annotations

import asyncio
import logging
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

log = logging.getLogger(__name__)

T = TypeVar("T")

INTERVAL_S = 1.0
MAX_FILE_BYTES = 1024 * 1024


class BadFile(Exception):
    """A file that a setting names cannot be used. The message says why, and holds neither path nor content."""


class WatchedFile(Generic[T]):
    """The last good value of a file.

    The whole file is read each time and compared, not its modification time: whatever way it was replaced (written
    over, renamed into place, a link on its path changed, as Kubernetes does) and however coarse the clock, what counts
    is what it says. It is small.

    Args:
        setting: the flag that names the file: what to call it in messages.
        path: where it is.
        read: makes the value of the content, or raises :class:`BadFile`.
        unsafe_mode: permissions that the file ought not to give; a warning is logged if it does.
        interval_s: time between two looks, in seconds.

    Raises:
        BadFile: there is no good value to begin with.
    """

    def __init__(
        self,
        setting: str,
        path: Path,
        read: Callable[[bytes], T],
        *,
        unsafe_mode: int = 0,
        interval_s: float = INTERVAL_S,
    ) -> None:
        self._setting = setting
        self._path = path
        self._read = read
        self._interval_s = interval_s
        self._problem: str | None = None
        try:
            self._content, mode = _content(path)
            self.value = read(self._content)
        except BadFile as error:
            raise BadFile(f"{setting}: {error}") from error
        if mode & unsafe_mode:
            log.warning("permissions of this file are too wide", extra={"setting": setting, "mode": f"{mode:04o}"})

    async def watch(self) -> None:
        """Look at the file at every interval, until cancelled."""
        while True:
            await asyncio.sleep(self._interval_s)
            await self.look()

    async def look(self) -> None:
        """Take over what the file says now. If that is bad, the last good value stays, and one line says so."""
        problem = None
        try:
            content, value = await asyncio.to_thread(self._changed)
        except BadFile as error:
            problem = str(error)
        else:
            if content != self._content:
                self._content, self.value = content, value
                log.info("file was read again", extra={"setting": self._setting})
        if problem is not None and problem != self._problem:
            log.error("file is bad, what it said before stays", extra={"setting": self._setting, "error": problem})
        self._problem = problem

    def _changed(self) -> tuple[bytes, T]:
        content, _ = _content(self._path)
        return content, self.value if content == self._content else self._read(content)


def _content(path: Path) -> tuple[bytes, int]:
    """What the file holds, and its permissions."""
    try:
        # Not to wait for a writer, should it be a pipe.
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            mode = os.fstat(file.fileno()).st_mode
            if not stat.S_ISREG(mode):
                raise BadFile("it is no regular file")
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise BadFile(f"it cannot be read: {error.strerror}") from error
    if len(content) > MAX_FILE_BYTES:
        raise BadFile(f"it is larger than {MAX_FILE_BYTES} bytes")
    return content, stat.S_IMODE(mode)
