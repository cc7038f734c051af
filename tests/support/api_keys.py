"""API keys, and the file that makes two of them good."""

from __future__ import annotations

from pathlib import Path

from rendergen.service.api_keys import key_line, new_key

A, B, NOBODY = new_key(), new_key(), new_key()
FILE = f"{key_line('alice', A)}\n{key_line('bob', B)}\n"


def rewrite(path: Path, text: str) -> None:
    path.write_text(text)
