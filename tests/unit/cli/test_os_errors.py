"""Errors of the operating system about a path come with the step that helps: a missing path is not a full disk."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa

from rackready.cli import main
from rackready.cli.os_errors import database_error, system_call_error
from rackready.cli.streams import OUT

Command = Callable[..., tuple[int, str, str]]

SAID = [
    (errno.ENOENT, "Expected: an existing path Actual: No such file or directory. Correct the path."),
    (errno.EISDIR, "Expected: a file Actual: Is a directory. Name a file in that folder."),
    (
        errno.EACCES,
        (
            "Expected: a path that this user may use Actual: Permission denied. "
            "Correct its permissions or its owner, or run as another user."
        ),
    ),
    (
        errno.EROFS,
        (
            "Expected: a writable file system Actual: Read-only file system. "
            "Name a path on another, or mount it writable."
        ),
    ),
    (errno.EEXIST, "Expected: nothing there yet Actual: File exists. Name another, or remove it."),
    (
        errno.ENOSPC,
        "Expected: room on the file system Actual: No space left on device. Free disk space there, then run again.",
    ),
    (
        errno.EDQUOT,
        "Expected: room on the file system Actual: Disk quota exceeded. Free disk space there, then run again.",
    ),
    (
        errno.EIO,
        (
            "Expected: a usable file system Actual: Input/output error. "
            "Check `dmesg` for errors of its disk, then run again."
        ),
    ),
]


@pytest.mark.parametrize(("number", "text"), SAID)
def test_each_error_has_its_own_step(number: int, text: str) -> None:
    assert str(system_call_error(OSError(number, os.strerror(number), "/x"))) == f"/x - {text}"


@pytest.mark.parametrize("number", [number for number in errno.errorcode if number not in {errno.ENOSPC, errno.EDQUOT}])
@pytest.mark.parametrize("place", ["/x", OUT, None])
def test_only_a_full_disk_is_to_be_freed(number: int, place: str | None) -> None:
    assert "Free disk space" not in str(system_call_error(OSError(number, os.strerror(number), place)))


DATABASES = "the databases of rackready's state (.rackready, or $RACKREADY_STATE)"


def _of_sqlite(code: int, text: str) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError(text)
    error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize("wrapped", ["plain", "sqlalchemy", "cause"])
@pytest.mark.parametrize(
    ("code", "text", "said"),
    [
        (
            sqlite3.SQLITE_FULL,
            "database or disk is full",
            (
                "Expected: room on the file system Actual: database or disk is full. "
                "Free disk space there, then run again."
            ),
        ),
        (
            sqlite3.SQLITE_IOERR_WRITE,
            "disk I/O error",
            (
                "Expected: a usable file system Actual: disk I/O error. "
                "Check `dmesg` for errors of its disk, then run again."
            ),
        ),
        (
            sqlite3.SQLITE_READONLY,
            "attempt to write a readonly database",
            (
                "Expected: a writable file system Actual: attempt to write a readonly database. "
                "Name a path on another, or mount it writable."
            ),
        ),
    ],
    ids=["full", "ioerr", "readonly"],
)
def test_a_disk_that_sqlite_reports_is_no_defect(
    code: int, text: str, said: str, wrapped: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    inner = _of_sqlite(code, text)
    outer: Exception = inner
    if wrapped == "sqlalchemy":
        outer = sa.exc.OperationalError("COMMIT", None, inner)
    elif wrapped == "cause":
        outer = RuntimeError("the workflow engine did not start")
        outer.__cause__ = sa.exc.OperationalError("COMMIT", None, inner)

    def broken(_: list[str]) -> int:
        raise outer

    monkeypatch.setattr(main, "_called", broken)
    assert main.run(["deploy"]) == main.Ended(2, by_error=True)
    assert capsys.readouterr().err == f"{DATABASES} - {said}\n"


def test_another_error_of_sqlite_is_a_defect() -> None:
    assert database_error(_of_sqlite(sqlite3.SQLITE_ERROR, "no such table: nodes")) is None
    assert database_error(RuntimeError("database or disk is full")) is None


CALLS = [
    ("size", "model", "--config"),
    ("size", "serve", "--config"),
    ("size", "train", "--config"),
    ("import", "manifest"),
    ("gate", "evaluate", "node/gpu/sanity/ecc", "--profile", "dgx_h100", "--input"),
    ("plan", "--site"),
]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: " ".join(call[:2]))
@pytest.mark.parametrize("what", ["none.json", "."], ids=["absent", "folder"])
def test_every_command_that_reads_a_file_says_so_of_one_that_it_cannot_read(
    command: Command, tmp_path: Path, call: tuple[str, ...], what: str
) -> None:
    code, out, error = command(*call, str(tmp_path / what))
    assert code == 2
    assert "Free disk space" not in error + out
    assert "defect" not in error
    assert str(tmp_path) in (error + out).replace("\n", "")
