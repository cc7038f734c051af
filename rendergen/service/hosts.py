"""Host names and addresses, as settings give them."""

from __future__ import annotations

import ipaddress
import re

MAX_NAME_LENGTH = 253

_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what listens on ``host``.

    True for loopback addresses alone: what a name stands for, ``localhost`` too, is not ours to know.
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def host_name(text: str) -> str:
    """``text`` in lower case: a name or an IPv4 address, as it stands in a URL, in ASCII.

    Raises:
        ValueError: it is none.
    """
    name = text.lower()
    if not text.isascii() or len(name) > MAX_NAME_LENGTH or not _NAME.fullmatch(name):
        raise ValueError(f"{text!r} is no host name: write images.example.org, without scheme, port, path or wildcard")
    return name
