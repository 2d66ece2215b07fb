"""Files of a report are replaced as a whole, also where several runs write one at once or were killed."""

from __future__ import annotations

import errno
import fcntl
import os
import re
from pathlib import Path

import pytest

from rackready.evidence.parts import ReportError
from rackready.evidence.report_files import replaced


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_of_two_runs_at_once_each_writes_its_own_and_the_last_one_stays(tmp_path: Path) -> None:
    path = tmp_path / "c1.json"
    with replaced(path) as first:
        first.write(b"first")
        with replaced(path) as second:
            second.write(b"second, and longer")
        assert path.read_bytes() == b"second, and longer"
    assert path.read_bytes() == b"first"
    assert names(tmp_path) == ["c1.json"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_what_killed_runs_left_goes_and_what_another_run_writes_stays(tmp_path: Path) -> None:
    left, held, foreign = (
        tmp_path / name for name in (".c1.json.dead.part", ".c1.json.held.part", ".c1.html.dead.part")
    )
    for path in (left, held, foreign):
        path.write_bytes(b"half")
    with held.open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with replaced(tmp_path / "c1.json") as file:
            file.write(b"whole")
    assert names(tmp_path) == [foreign.name, held.name, "c1.json"]


def test_a_part_that_was_taken_for_a_left_over_is_begun_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = fcntl.flock
    taken: list[Path] = []

    def slow(file: int, how: int) -> None:
        if not taken:
            taken.extend(tmp_path.glob(".c1.json.*"))
            taken[0].unlink()
        lock(file, how)

    monkeypatch.setattr(fcntl, "flock", slow)
    with replaced(tmp_path / "c1.json") as file:
        file.write(b"whole")
    assert (tmp_path / "c1.json").read_bytes() == b"whole"
    assert len(taken) == 1


def test_a_disk_that_takes_no_more_is_said_and_keeps_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "c1.json"
    path.write_bytes(b"before")
    text = (
        f"{path}: the report cannot be written - Expected: a writable folder Actual: No space left on device. "
        "Free disk space, then run `rackready report`."
    )
    with pytest.raises(ReportError, match=re.escape(text)):
        write_half(path)
    assert (names(tmp_path), path.read_bytes()) == (["c1.json"], b"before")


def write_half(path: Path) -> None:
    with replaced(path) as file:
        file.write(b"half of it")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
