"""The list of ready nodes in a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackready.drivers.scheduler.base import NotOursError, SchedulerError
from rackready.drivers.scheduler.file import FileAdapter


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "out" / "ready"


def test_release_and_drain(path: Path) -> None:
    adapter = FileAdapter(path)
    assert [adapter.release("node02"), adapter.release("node01"), adapter.release("node01")] == [True, True, False]
    assert adapter.show("node01").usable
    assert adapter.drain("node01", "gpu2: NVLink down")
    assert not adapter.drain("node01", "gpu2: NVLink down")
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[1:] == ["node02", "# node01: rackready: gpu2: NVLink down"]
    assert adapter.show("node01").ours
    assert adapter.release("node01")


def test_a_second_release_does_not_touch_the_file(path: Path) -> None:
    FileAdapter(path).release("node01")
    before = path.stat().st_mtime_ns
    assert not FileAdapter(path).release("node01")
    assert path.stat().st_mtime_ns == before


def test_somebody_elses_drain_stays(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("node02\n# node01: waiting for a PSU (maria)\n", encoding="utf-8")
    adapter = FileAdapter(path)
    assert not adapter.drain("node01", "gate failed")
    with pytest.raises(NotOursError) as caught:
        adapter.release("node01")
    assert str(caught.value) == (
        f"node01: drained in {path} - Expected: a reason that begins with 'rackready:' "
        "Actual: 'waiting for a PSU (maria)'. "
        "Remove that line when it is settled, then run again."
    )
    assert path.read_text(encoding="utf-8") == "node02\n# node01: waiting for a PSU (maria)\n"


def test_a_node_that_is_not_named_is_not_offered(path: Path) -> None:
    assert not FileAdapter(path).show("node07").usable


def test_a_file_knows_of_no_jobs(path: Path) -> None:
    adapter = FileAdapter(path)
    adapter.release("node01")
    assert adapter.jobs("node01") == []


@pytest.mark.parametrize(
    ("content", "actual"),
    [(None, "Is a directory"), (b"\xff\xfe", "'utf-8' codec can't decode byte 0xff in position 0: invalid start byte")],
)
def test_a_list_that_cannot_be_read_is_the_schedulers_error(tmp_path: Path, content: bytes | None, actual: str) -> None:
    path = tmp_path / "ready"
    path.mkdir() if content is None else path.write_bytes(content)
    with pytest.raises(SchedulerError) as caught:
        FileAdapter(path).show("node01")
    assert (
        str(caught.value) == f"{path}: the list of ready nodes - Expected: a readable text file Actual: {actual}. "
        "Correct handover.path or its permissions."
    )
