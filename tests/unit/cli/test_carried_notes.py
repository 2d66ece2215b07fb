"""Notes on the states before provisioning: a node that is not looked at again keeps them, with their day."""

from __future__ import annotations

import calendar
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rackready.ledger.state_notes import StateNote, keep, notes_of
from rackready.ledger.store import Ledger
from rackready.model.outcome import Outcome
from rackready.model.phase import REACHED
from rackready.model.state import NodeState
from rackready.paths import EnvPaths
from tests.unit.cli.bmc_node import Node
from tests.unit.cli.test_inventory import ALL, OPEN, prepared, run
from tests.unit.sim.bmc_service import served


@pytest.fixture
def node(call: Any, tmp_path: Path) -> Iterator[Node]:  # noqa: ANN401
    del call
    with served(tmp_path) as service:
        found = Node(service, tmp_path)
        found.site(campaign={"provision_timeout_s": 60})
        yield found


def test_a_node_that_was_provisioned_is_not_looked_at_again_and_keeps_its_notes(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(node, Outcome.PASS, monkeypatch)
    asked = len(node.service.asked)
    found, calls = prepared(node)
    assert (len(node.service.asked), calls) == (asked, [["node01"]])
    today = time.strftime("%Y-%m-%d", time.gmtime())
    assert found.data[REACHED]["inventoried"] == f"as on {today}: {ALL}{OPEN} (as listed while it is off)"


def carried(node: Node) -> list[str]:
    """Return the note of the inventory in two changes of the node, each of which records it with the state."""
    out = []
    for _ in range(2):
        found, _calls = prepared(node)
        out.append(found.data[REACHED]["inventoried"])
        with Ledger.open(EnvPaths(node.root, "sim").database) as ledger:
            ledger.set_state("node01", NodeState.INVENTORIED, out[-1])
            ledger.set_state("node01", NodeState.READY)
    return out


def test_a_note_that_is_carried_on_keeps_the_day_of_its_look(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    run(node, Outcome.PASS, monkeypatch)
    first = f"as on 2026-03-01: {ALL}{OPEN} (as listed while it is off)"
    with Ledger.open(EnvPaths(node.root, "sim").database) as ledger:
        noted = notes_of(ledger, ["node01"])["node01"]
        at = calendar.timegm((2026, 3, 1, 12, 0, 0))
        keep(ledger, {"node01": {state: replace(note, at=at) for state, note in noted.items()}})
    assert carried(node) == [first, first]


@pytest.mark.parametrize("reason", ["as listed on its label", "as on paper"])
def test_a_note_is_dated_whatever_its_words_are(node: Node, reason: str) -> None:
    at = calendar.timegm((2026, 3, 1, 12, 0, 0))
    with Ledger.open(EnvPaths(node.root, "sim").database) as ledger:
        ledger.set_state("node01", NodeState.READY)
        keep(ledger, {"node01": {NodeState.INVENTORIED: StateNote(reason, at)}})
    found, _ = prepared(node)
    assert found.data[REACHED] == {
        "inventoried": f"as on 2026-03-01: {reason}",
        "baselined": "not compared: it was provisioned before that was done",
    }


def test_a_note_of_an_earlier_release_is_dated_once(node: Node) -> None:
    """That ledger has the reason alone: whether it was carried on already is not known."""
    today = time.strftime("%Y-%m-%d", time.gmtime())
    with Ledger.open(EnvPaths(node.root, "sim").database) as ledger:
        ledger.set_state("node01", NodeState.INVENTORIED, "as on 2026-03-01: 8 GPUs")
        ledger.set_state("node01", NodeState.READY)
    assert prepared(node, check=True)[0].data[REACHED]["inventoried"] == f"as on {today}: as on 2026-03-01: 8 GPUs"
    assert carried(node) == [f"as on {today}: as on 2026-03-01: 8 GPUs"] * 2


def test_a_dry_run_records_no_note(node: Node) -> None:
    prepared(node, check=True)
    with Ledger.open(EnvPaths(node.root, "sim").database) as ledger:
        assert notes_of(ledger, ["node01"]) == {"node01": {}}


def test_notes_of_a_ledger_of_before_say_so(node: Node) -> None:
    with Ledger.open(EnvPaths(node.root, "sim").database) as ledger:
        ledger.set_state("node01", NodeState.READY)
    found, _ = prepared(node)
    assert set(found.data[REACHED].values()) == {"not compared: it was provisioned before that was done"}
