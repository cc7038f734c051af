import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from rendergen.service.watched_file import MAX_FILE_BYTES, BadFile, WatchedFile
from tests.support.polling import eventually


def number(content: bytes) -> int:
    try:
        return int(content)
    except ValueError as error:
        raise BadFile("it is no number") from error


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "secret-place"
    path.write_text("1")
    return path


def watched(path: Path, unsafe_mode: int = 0) -> WatchedFile[int]:
    return WatchedFile("--number-file", path, number, unsafe_mode=unsafe_mode, interval_s=0.01)


def logged(caplog: pytest.LogCaptureFixture, level: int) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.levelno == level]


def rewrite(path: Path, text: str) -> None:
    path.write_text(text)


def rename(path: Path, text: str) -> None:
    new = path.with_name("new")
    new.write_text(text)
    if path.is_dir():
        path.rmdir()
    new.replace(path)


def rewrite_with_the_old_time(path: Path, text: str) -> None:
    """Same length, same inode, same times: nothing but the content tells."""
    before = path.stat()
    path.write_text(text)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("replace", [rewrite, rename, rewrite_with_the_old_time])
async def test_a_change_is_taken_over(path: Path, replace: Callable[[Path, str], None]) -> None:
    """However the file was replaced."""
    file = watched(path)
    assert file.value == 1
    replace(path, "2")
    await file.look()
    assert file.value == 2


async def test_a_change_and_back(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Each change counts, and is told once; no change is told never."""
    caplog.set_level(logging.INFO)
    file = watched(path)
    for text, value in (("1", 1), ("2", 2), ("2", 2), ("1", 1), ("1", 1)):
        rename(path, text)
        await file.look()
        assert file.value == value
    assert [record.getMessage() for record in logged(caplog, logging.INFO)] == ["file was read again"] * 2


async def test_a_link_on_the_path_changes(tmp_path: Path) -> None:
    """As a volume of a Kubernetes Secret: file → ..data/file, and ..data → a directory that is swapped by rename."""
    for version in ("1", "2"):
        (tmp_path / f"..v{version}").mkdir()
        (tmp_path / f"..v{version}" / "file").write_text(version)
    (tmp_path / "..data").symlink_to("..v1")
    (tmp_path / "file").symlink_to("..data/file")
    file = watched(tmp_path / "file")
    (tmp_path / "..tmp").symlink_to("..v2")
    (tmp_path / "..tmp").replace(tmp_path / "..data")
    await file.look()
    assert file.value == 2


async def test_it_is_looked_at_in_the_background(path: Path) -> None:
    """Again and again, also after it was bad."""
    file = watched(path)
    watch = asyncio.create_task(file.watch())
    try:
        for text, value in (("2", 2), ("x", 2), ("3", 3)):
            rename(path, text)
            if text != "x":
                await eventually(lambda value=value: file.value == value)
    finally:
        watch.cancel()
    assert await asyncio.gather(watch, return_exceptions=True) != [None]


def remove(path: Path) -> None:
    path.unlink()


def directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def large(path: Path) -> None:
    path.write_bytes(b"1" * (MAX_FILE_BYTES + 1))


def bad(path: Path) -> None:
    path.write_text("what?")


BREAK = [remove, directory, pipe, large, bad]


@pytest.mark.parametrize("spoil", BREAK)
async def test_a_file_that_turns_bad_keeps_the_last_good_value(
    path: Path, spoil: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    """One error line until it is another problem, without the path or the content; a good file counts at once again."""
    file = watched(path)
    spoil(path)
    for _ in range(3):
        await file.look()
        assert file.value == 1
    [record] = logged(caplog, logging.ERROR)
    assert record.__dict__["setting"] == "--number-file"
    assert not any(word in str(record.__dict__) for word in ("secret-place", "what?"))
    rename(path, "1")
    await file.look()
    assert file.value == 1
    spoil(path)
    await file.look()
    assert len(logged(caplog, logging.ERROR)) == 2, "it is told again once it was good in between"
    rename(path, "2")
    await file.look()
    assert file.value == 2


@pytest.mark.parametrize("spoil", BREAK)
def test_a_file_that_is_bad_from_the_start(path: Path, spoil: Callable[[Path], None]) -> None:
    """Names the setting and what is wrong; neither the path nor the content."""
    spoil(path)
    with pytest.raises(BadFile, match=r"^--number-file: it ") as caught:
        watched(path)
    assert not any(word in str(caught.value) for word in ("secret-place", "what?"))


@pytest.mark.parametrize(("mode", "warns"), [(0o600, False), (0o640, False), (0o644, True), (0o602, True)])
def test_permissions_that_are_too_wide(path: Path, mode: int, warns: bool, caplog: pytest.LogCaptureFixture) -> None:
    """One warning, which names the setting."""
    path.chmod(mode)
    watched(path, unsafe_mode=0o006)
    assert [record.__dict__["setting"] for record in logged(caplog, logging.WARNING)] == ["--number-file"] * warns
