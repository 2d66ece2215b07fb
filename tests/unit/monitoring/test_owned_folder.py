"""A folder shared with others: only what rackready wrote is replaced."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rackready import files
from rackready.model.problems import RackreadyError
from rackready.render import owned_folder
from rackready.render.owned_folder import MARK, write_owned

OLD, NEW = {"a.yml": b"old\n", "targets/b.json": b"[]\n"}, {"a.yml": b"new\n", "targets/b.json": b"[]\n"}
OTHER = {"a.yml": b"other\n", "targets/b.json": b"[1]\n"}


def test_files_are_written_then_replaced_and_a_second_run_changes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "prometheus"
    assert write_owned(folder, OLD) == ["a.yml", "targets/b.json"]
    assert write_owned(folder, OLD) == []
    assert write_owned(folder, NEW) == ["a.yml"]
    assert (folder / "a.yml").read_bytes() == b"new\n"
    assert (folder / "a.yml").stat().st_mode & 0o777 == 0o644


def test_files_of_others_beside_them_stay(tmp_path: Path) -> None:
    (tmp_path / "own.rules.yml").write_text("mine", encoding="utf-8")
    write_owned(tmp_path, OLD)
    write_owned(tmp_path, NEW)
    assert (tmp_path / "own.rules.yml").read_text(encoding="utf-8") == "mine"


def test_a_file_of_somebody_else_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    (tmp_path / "a.yml").write_text("theirs", encoding="utf-8")
    with pytest.raises(RackreadyError) as refused:
        write_owned(tmp_path, OLD)
    assert str(refused.value) == (
        f"{tmp_path}: nothing was written.\n"
        f"  {tmp_path}/a.yml - Expected: no file, or what rackready wrote Actual: a file of somebody else. "
        "Move it away, and put changes of your own into files of your own."
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.yml"]


def test_a_file_that_was_edited_is_refused(tmp_path: Path) -> None:
    write_owned(tmp_path, OLD)
    (tmp_path / "a.yml").write_text("old\n# and mine\n", encoding="utf-8")
    with pytest.raises(RackreadyError, match=r"a\.yml - Expected: .* Actual: it was changed since rackready wrote it"):
        write_owned(tmp_path, NEW)
    assert (tmp_path / "a.yml").read_text(encoding="utf-8") == "old\n# and mine\n"


def test_a_run_that_was_killed_midway_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_owned(tmp_path, OLD)
    with monkeypatch.context() as cut:

        def killed(path: Path, data: bytes) -> bool:
            files.settle(path, data, mode=0o644)
            raise KeyboardInterrupt

        cut.setattr(owned_folder, "_settled", killed)
        with pytest.raises(KeyboardInterrupt):
            write_owned(tmp_path, OTHER)
    assert (tmp_path / "a.yml").read_bytes() == b"other\n"
    assert write_owned(tmp_path, OTHER) == ["targets/b.json"]
    assert write_owned(tmp_path, OLD) == ["a.yml", "targets/b.json"]


def test_a_damaged_list_of_files_is_refused(tmp_path: Path) -> None:
    write_owned(tmp_path, OLD)
    (tmp_path / MARK).write_text("{}", encoding="utf-8")
    with pytest.raises(RackreadyError, match="Expected: the list that an earlier export wrote Actual: another content"):
        write_owned(tmp_path, NEW)


def test_a_folder_that_is_a_file_is_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RackreadyError, match=r"Expected: a folder that can be written Actual: Not a directory"):
        write_owned(tmp_path / "file", OLD)


def test_the_list_names_every_file_with_its_digest(tmp_path: Path) -> None:
    write_owned(tmp_path, OLD)
    assert sorted(json.loads((tmp_path / MARK).read_text(encoding="utf-8"))["files"]) == sorted(OLD)
