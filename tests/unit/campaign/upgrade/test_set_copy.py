"""The quick look at the copy of the version sets: it says "current" only where a refresh would change nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rackready.ledger.node_sets import assign, refresh
from rackready.ledger.set_copy import is_current
from rackready.ledger.store import Ledger
from rackready.model.state import NodeState
from rackready.paths import EnvPaths
from tests.unit.campaign.upgrade.test_node_sets import LATER, MOVED


@pytest.fixture
def paths(tmp_path: Path) -> EnvPaths:
    """Return an environment in which an upgrade moved node02."""
    paths = EnvPaths(tmp_path, "lab")
    with Ledger.open(paths.database) as ledger:
        ledger.set_state("node02", NodeState.READY)
        assign(ledger, paths, "node02", MOVED)
        assign(ledger, paths, "node03", type(MOVED)(LATER, LATER))
    return paths


def test_a_copy_as_written_is_current(paths: EnvPaths) -> None:
    before = paths.node_sets.read_bytes()
    assert b"node02" in before
    assert is_current(paths)
    refresh(paths)
    assert paths.node_sets.read_bytes() == before


@pytest.mark.parametrize(
    "change",
    [
        lambda file: file.unlink(),
        lambda file: file.write_bytes(file.read_bytes().replace(b"node02", b"node01")),
        lambda file: file.write_bytes(b""),
        lambda file: file.chmod(0o644),
    ],
    ids=["gone", "another-node", "empty", "open-to-others"],
)
def test_any_other_copy_is_not_and_a_refresh_mends_it(paths: EnvPaths, change: Callable[[Path], None]) -> None:
    change(paths.node_sets)
    assert not is_current(paths)
    refresh(paths)
    assert is_current(paths)


def test_where_no_node_was_ever_moved_no_copy_is_current(tmp_path: Path) -> None:
    paths = EnvPaths(tmp_path, "lab")
    assert is_current(paths)
    with Ledger.open(paths.database) as ledger:
        ledger.set_state("node02", NodeState.READY)
    assert is_current(paths)
    assert not paths.node_sets.exists()


def test_a_copy_from_before_the_node_came_back_is_not_current(paths: EnvPaths) -> None:
    old = paths.node_sets.read_bytes()
    with Ledger.open(paths.database) as ledger:
        assign(ledger, paths, "node02", type(MOVED)(LATER, LATER))
    assert is_current(paths)
    paths.node_sets.write_bytes(old)
    assert not is_current(paths)
