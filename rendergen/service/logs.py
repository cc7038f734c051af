"""JSON logs on standard error: one object a line, with the service and the request's id in each."""

from __future__ import annotations

import logging
import sys

from aiohttp.http_exceptions import HttpProcessingError
from pythonjsonlogger.json import JsonFormatter

from rendergen.service import request_id


class _Context(logging.Filter):
    """Adds what every line should have."""

    def __init__(self, service: str) -> None:
        super().__init__()
        self._service = service

    def filter(self, record: logging.LogRecord) -> bool:
        record.service = self._service
        record.request_id = request_id.current.get() or None
        return True


class _MalformedRequest(logging.Filter):
    """aiohttp logs what is no HTTP as an error with a traceback; it is somebody's mistake, and one line.

    aiohttp's own words are left out, for they quote the header at fault, which may be the one with the key.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, HttpProcessingError):
            record.levelno, record.levelname = logging.INFO, "INFO"
            record.msg, record.args, record.exc_info = "request is no HTTP: %s", (type(error).__name__,), None
        return True


def configure(service: str, level: str) -> None:
    """Send this process's logs to standard error as JSON.

    Args:
        service: name that each line carries.
        level: ``debug``, ``info``, ``warning`` or ``error``.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(_Context(service))
    handler.setFormatter(
        JsonFormatter(
            "%(asctime)s %(levelname)s %(service)s %(request_id)s %(name)s %(message)s",
            rename_fields={"asctime": "time", "levelname": "level", "name": "logger"},
        )
    )
    logging.getLogger("aiohttp.server").addFilter(_MalformedRequest())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
