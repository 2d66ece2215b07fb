"""Where a ledger may lie."""

from __future__ import annotations

from pathlib import Path

from rackready.ledger.store import Ledger
from rackready.model.state import NodeState


def test_a_ledger_may_lie_in_a_folder_of_any_name(tmp_path: Path) -> None:
    folder = tmp_path / "rack 1#%20?x"
    folder.mkdir()
    Ledger.open(folder / "s.sqlite").set_state("node01", NodeState.READY)
    assert [row.name for row in Ledger.read_only(folder / "s.sqlite").states()] == ["node01"]
    assert [path.name for path in tmp_path.iterdir()] == [folder.name]
