"""The fence: what a run leaves for the next one."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackready.ondevice.command import NodeProblem
from rackready.ondevice.fence import at_work, fence


def test_a_refusal_is_no_interrupted_run(tmp_path: Path) -> None:
    with pytest.raises(NodeProblem), fence("install", 4, "a", folder=tmp_path):
        raise NodeProblem("room", "none", "Free disk space.")
    assert at_work("install", folder=tmp_path), "what it was for is not done"
    with fence("install", 5, "a", folder=tmp_path) as notes:
        assert notes == []
    assert not at_work("install", folder=tmp_path)


def test_an_obstacle_is_told_although_its_marker_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, words: dict[str, object]) -> None:
        if words["state"] == "refused":
            raise OSError(30, "Read-only file system", str(path))

    monkeypatch.setattr("rackready.ondevice.fence._write", full)
    with pytest.raises(NodeProblem, match="Free /boot"), fence("install", 4, "a", folder=tmp_path):
        raise NodeProblem("room", "none", "Free /boot.")


def test_a_run_that_died_is_told(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), fence("install", 4, "a", folder=tmp_path):
        raise KeyboardInterrupt
    with fence("install", 5, "a", folder=tmp_path) as notes:
        assert notes == ["an earlier run (token 4) was interrupted here: its effect is observed first"]


def test_a_refusal_of_the_lock_leaves_the_holder_s_marker(tmp_path: Path) -> None:
    with fence("install", 7, "a", folder=tmp_path):
        with pytest.raises(NodeProblem, match="held by process"), fence("install", 8, "a", folder=tmp_path, wait_s=0):
            raise AssertionError("two runs at once")
        assert at_work("install", folder=tmp_path)
    with pytest.raises(NodeProblem, match="fencing token 7"), fence("install", 6, "a", folder=tmp_path):
        raise AssertionError("an older controller")
    assert not at_work("install", folder=tmp_path)
