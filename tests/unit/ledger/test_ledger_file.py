"""Where a ledger may lie."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackready.ledger.sqlite import SqliteFile
from rackready.ledger.store import Ledger
from rackready.model.state import NodeState


def test_a_ledger_may_lie_in_a_folder_of_any_name(tmp_path: Path) -> None:
    folder = tmp_path / "rack 1#%20?x"
    folder.mkdir()
    Ledger.open(folder / "s.sqlite").set_state("node01", NodeState.READY)
    assert [row.name for row in Ledger.read_only(folder / "s.sqlite").states()] == ["node01"]
    assert [path.name for path in tmp_path.iterdir()] == [folder.name]


@pytest.mark.parametrize("cause", ["disk I/O error", "database or disk is full"])
@pytest.mark.parametrize("reading", [True, False])
def test_a_full_disk_has_the_step_that_helps_also_for_a_reader(cause: str, reading: bool, tmp_path: Path) -> None:  # noqa: FBT001 - a case
    said = SqliteFile(tmp_path / "state.sqlite").step(cause, reading=reading)
    assert said == "Free disk space there (`df`), check `dmesg` for errors of its disk, then run again."
