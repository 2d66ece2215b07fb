"""Files are written whole or not at all, and readable by nobody else."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from rackready import files


def test_a_file_is_replaced_as_a_whole_and_private(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.write_bytes(b"old")
    path.chmod(0o644)
    files.replace(path, b"new")
    assert (path.read_bytes(), path.stat().st_mode & 0o777, list(tmp_path.iterdir())) == (b"new", 0o600, [path])


def test_a_file_for_others_is_readable_under_the_private_umask_of_the_command_line(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        files.replace(tmp_path / "grub.cfg", b"new", mode=0o644)
    finally:
        os.umask(before)
    assert (tmp_path / "grub.cfg").stat().st_mode & 0o777 == 0o644


def test_a_file_that_is_right_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "shimx64.efi"
    assert files.settle(path, b"loader", mode=0o644)
    first = path.stat()
    assert not files.settle(path, b"loader", mode=0o644)
    assert path.stat().st_ino == first.st_ino
    assert files.settle(path, b"newer", mode=0o644)
    path.chmod(0o600)
    assert files.settle(path, b"newer", mode=0o644), "its rights are part of it"
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"newer", 0o644)


def test_it_is_on_the_disk_before_it_takes_the_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, seen = tmp_path / "state", list[bool]()
    monkeypatch.setattr(os, "fsync", lambda _: seen.append(path.exists()))
    files.replace(path, b"new")
    assert seen == [False]


def test_a_full_disk_leaves_what_was_there_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "state"
    path.write_bytes(b"old")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    for write in (files.replace, files.create):
        with pytest.raises(OSError, match="No space left on device"):
            write(path, b"new")
    assert (path.read_bytes(), list(tmp_path.iterdir())) == (b"old", [path])


def test_a_place_that_cannot_be_taken_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    with pytest.raises(OSError):  # noqa: PT011 - the words are the system's
        files.replace(tmp_path / "state", b"new")
    assert [item.name for item in tmp_path.iterdir()] == ["state"]


def test_of_two_that_create_a_file_the_first_stays(tmp_path: Path) -> None:
    path = tmp_path / "key"
    assert (files.create(path, b"first"), files.create(path, b"second")) == (True, False)
    assert (path.read_bytes(), path.stat().st_mode & 0o777, list(tmp_path.iterdir())) == (b"first", 0o600, [path])
