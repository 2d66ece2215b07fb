"""A node's file is replaced as a whole, or stays as it was."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rackready.ondevice.whole_file import replace_file


def test_new_content_and_mode_take_the_old_ones_place(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text("old")
    replace_file(path, "new")
    assert (path.read_text(), path.stat().st_mode & 0o777, [one.name for one in tmp_path.iterdir()]) == (
        "new",
        0o644,
        ["x.json"],
    )


def test_a_disk_that_is_full_leaves_the_old_file_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.json"
    path.write_text("old")

    def full(_number: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        replace_file(path, "new")
    assert (path.read_text(), [one.name for one in tmp_path.iterdir()]) == ("old", ["x.json"])
