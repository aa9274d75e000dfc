"""A report's file: checked before the work, written whole or not at all."""

import errno
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from normula.report import check_writable, write
from normula.report import files as module

FULL = Path("/dev/full")


def test_a_file_is_written_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    check_writable(path)
    assert list(tmp_path.iterdir()) == []
    write("x′ \ud800", path)
    assert path.read_bytes() == "x′ \\ud800".encode()
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_is_there_is_replaced_and_keeps_its_permissions(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text("old")
    path.chmod(0o640)
    check_writable(path)
    assert path.read_text() == "old"
    write("new", path)
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_new_file_has_the_permissions_of_the_users_files(tmp_path: Path) -> None:
    (tmp_path / "other").touch()
    write("new", tmp_path / "page.html")
    assert (tmp_path / "page.html").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_a_symbolic_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    link = tmp_path / "page.html"
    link.symlink_to(tmp_path / "far" / "real.html")
    check_writable(link)
    write("new", link)
    assert link.is_symlink()
    assert (tmp_path / "far" / "real.html").read_text() == "new"


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "page.html"
    path.write_text("old")

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(ValueError, match="make room first"):
        write("new", path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("function", [check_writable, lambda path: write("text", path)])
@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("missing/page.html", "must exist, and .*missing does not; make it"),
        ("", "is a folder; name a file in it"),
        ("file/page.html", "is a file; name another place"),
        ("\0", "null"),
        ("a" * 300, "too long"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, function: object, place: str, words: str) -> None:
    (tmp_path / "file").touch()
    assert callable(function)
    with pytest.raises(ValueError, match=words):
        function(tmp_path / place)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_folder_that_may_not_be_written_to_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(module, "_put", refuse)  # root may write everywhere
    with pytest.raises(ValueError, match="permission denied"):
        check_writable(tmp_path / "page.html")


def test_a_file_that_may_not_be_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "page.html").touch()
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(ValueError, match="may not be written"):
        check_writable(tmp_path / "page.html")


def test_a_full_disk_is_refused_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=2**20))
    with pytest.raises(ValueError, match="16 MiB"):
        check_writable(tmp_path / "page.html")


@pytest.mark.skipif(not FULL.exists(), reason="only Linux has /dev/full")
@pytest.mark.parametrize("function", [check_writable, lambda path: write("text", path)])
def test_a_full_device_is_refused(function: object) -> None:
    assert callable(function)
    with pytest.raises(ValueError, match="no such space is left"):
        function(FULL)
    assert FULL.is_char_device()


@pytest.mark.skipif(not Path("/dev/null").exists(), reason="only Unix has /dev/null")
def test_a_device_is_written_to_and_stays_one() -> None:
    check_writable("/dev/null")
    write("text", "/dev/null")
    assert Path("/dev/null").is_char_device()
