"""A folder shared with others: only what rackready wrote is replaced."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from rackready import files
from rackready.model.problems import RackreadyError
from rackready.render import owned_folder
from rackready.render.owned_folder import MARK, write_owned

OLD, NEW = {"a.yml": b"old\n", "targets/b.json": b"[]\n"}, {"a.yml": b"new\n", "targets/b.json": b"[]\n"}
BY = "rackready export prometheus --env prod"
OTHER = {"a.yml": b"other\n", "targets/b.json": b"[1]\n"}


def test_files_are_written_then_replaced_and_a_second_run_changes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "prometheus"
    assert write_owned(folder, OLD, BY).changed == ["a.yml", "targets/b.json"]
    assert write_owned(folder, OLD, BY).changed == []
    assert write_owned(folder, NEW, BY).changed == ["a.yml"]
    assert (folder / "a.yml").read_bytes() == b"new\n"
    assert (folder / "a.yml").stat().st_mode & 0o777 == 0o644


def test_files_of_others_beside_them_stay(tmp_path: Path) -> None:
    (tmp_path / "own.rules.yml").write_text("mine", encoding="utf-8")
    write_owned(tmp_path, OLD, BY)
    write_owned(tmp_path, NEW, BY)
    assert (tmp_path / "own.rules.yml").read_text(encoding="utf-8") == "mine"


def test_a_file_of_somebody_else_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    (tmp_path / "a.yml").write_text("theirs", encoding="utf-8")
    with pytest.raises(RackreadyError) as refused:
        write_owned(tmp_path, OLD, BY)
    assert str(refused.value) == (
        f"{tmp_path}: nothing was written.\n"
        f"  {tmp_path}/a.yml - Expected: no file, or what this command wrote Actual: a file of somebody else. "
        "Move it away or name another folder; put changes of your own into files of your own."
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.yml"]


def test_a_file_that_was_edited_is_refused(tmp_path: Path) -> None:
    write_owned(tmp_path, OLD, BY)
    (tmp_path / "a.yml").write_text("old\n# and mine\n", encoding="utf-8")
    with pytest.raises(RackreadyError, match=r"a\.yml - Expected: .* Actual: it was changed since rackready wrote it"):
        write_owned(tmp_path, NEW, BY)
    assert (tmp_path / "a.yml").read_text(encoding="utf-8") == "old\n# and mine\n"


def test_a_run_that_was_killed_midway_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_owned(tmp_path, OLD, BY)
    with monkeypatch.context() as cut:

        def killed(path: Path, data: bytes) -> bool:
            files.settle(path, data, mode=0o644)
            raise KeyboardInterrupt

        cut.setattr(owned_folder, "_settled", killed)
        with pytest.raises(KeyboardInterrupt):
            write_owned(tmp_path, OTHER, BY)
    assert (tmp_path / "a.yml").read_bytes() == b"other\n"
    assert write_owned(tmp_path, OTHER, BY).changed == ["targets/b.json"]
    assert write_owned(tmp_path, OLD, BY).changed == ["a.yml", "targets/b.json"]


def test_a_damaged_list_of_files_is_refused(tmp_path: Path) -> None:
    write_owned(tmp_path, OLD, BY)
    (tmp_path / MARK).write_text("{}", encoding="utf-8")
    with pytest.raises(RackreadyError, match="Expected: the list that an earlier export wrote Actual: another content"):
        write_owned(tmp_path, NEW, BY)


def test_a_folder_that_is_a_file_is_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RackreadyError, match=r"Expected: a folder that can be written Actual: Not a directory"):
        write_owned(tmp_path / "file", OLD, BY)


def test_the_list_names_every_file_with_its_digest(tmp_path: Path) -> None:
    write_owned(tmp_path, OLD, BY)
    assert sorted(json.loads((tmp_path / MARK).read_text(encoding="utf-8"))["files"]) == sorted(OLD)


def test_folders_are_open_to_the_programs_that_read_them(tmp_path: Path) -> None:
    """The command line sets umask 077, and Prometheus is another user."""
    (tmp_path / "closed").mkdir(mode=0o700)
    before = os.umask(0o077)
    try:
        write_owned(tmp_path / "closed/made/here", OLD, BY)
    finally:
        os.umask(before)
    modes = {name: (tmp_path / name).stat().st_mode & 0o777 for name in ("closed", "closed/made", "closed/made/here")}
    assert modes == {"closed": 0o700, "closed/made": 0o755, "closed/made/here": 0o755}
    assert (tmp_path / "closed/made/here/targets").stat().st_mode & 0o777 == 0o755


def test_files_of_an_earlier_run_that_are_not_needed_any_more_go(tmp_path: Path) -> None:
    write_owned(tmp_path, OLD, BY)
    write_owned(tmp_path, {"board.json": b"{}"}, "rackready export grafana")
    done = write_owned(tmp_path, {"a.yml": b"old\n"}, BY)
    assert (done.changed, done.removed) == ([], ["targets/b.json"])
    assert (tmp_path / "board.json").exists(), "another command's"
    assert write_owned(tmp_path, {"a.yml": b"new\n"}, BY).changed == ["a.yml"], "it knows its files beside others"


def test_one_that_was_edited_and_is_not_needed_any_more_is_refused(tmp_path: Path) -> None:
    write_owned(tmp_path, OLD, BY)
    (tmp_path / "targets/b.json").write_text("[mine]", encoding="utf-8")
    with pytest.raises(RackreadyError, match=r"targets/b\.json - Expected: .* Actual: it was changed since rackready"):
        write_owned(tmp_path, {"a.yml": b"new\n"}, BY)
    assert (tmp_path / "a.yml").read_bytes() == b"old\n"


def test_files_of_another_environment_are_refused(tmp_path: Path) -> None:
    write_owned(tmp_path, OLD, BY)
    with pytest.raises(RackreadyError, match=r"Actual: written by `rackready export prometheus --env prod`"):
        write_owned(tmp_path, NEW, "rackready export prometheus --env staging")
    assert (tmp_path / "a.yml").read_bytes() == b"old\n"
