"""Nodes that nothing is done to for their neighbours' sake stay on offer as they are; one that cannot be reached is held as ever."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackready.campaign import fabric, step
from rackready.campaign.hold import Results
from rackready.campaign.request import Request
from rackready.handover.production import HELD, UNTOUCHED
from rackready.ledger.store import Ledger
from rackready.model.outcome import Outcome
from rackready.model.phase import NodeResult, PhaseContext
from rackready.model.state import NodeState
from rackready.paths import EnvPaths
from tests.unit.campaign.test_hold import ALL, Fabric

ROOT = Path(__file__).resolve().parents[3]
JOBS = NodeResult(Outcome.ERROR, "node01: jobs run on it", data={HELD: True}, touched=False)
SILENT = NodeResult(Outcome.ERROR, "node02: nobody can say it", data={UNTOUCHED: True}, touched=False)
WAITS = (
    "leaf01: a change of ports is due - Expected: no node in production behind them that is not held Actual: node01. "
    "Nothing was touched: run again when their jobs have ended."
)


class Ready(Fabric):
    """Four ready nodes."""

    def in_production(self, _ctx: PhaseContext, nodes: list[str]) -> tuple[list[str], Results]:
        return [node for node in nodes if node in self.busy], {node: SILENT for node in nodes if node in self.unknown}

    def take_out(self, _ctx: PhaseContext, reasons: dict[str, str]) -> Results:
        self.held |= reasons
        return {node: JOBS for node in reasons if node in self.keep}


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    (tmp_path / "inventories/sim").mkdir(parents=True)
    (tmp_path / "inventories/sim/site.yml").write_bytes((ROOT / "inventories/sim/site.yml").read_bytes())
    made = Ledger.open(EnvPaths(tmp_path, "sim").database)
    for node in ALL:
        made.set_state(node, NodeState.READY)
    return made


def run(monkeypatch: pytest.MonkeyPatch, root: Path, world: Ready) -> list[str]:
    """Run the fabric phase as a campaign does. Returns the nodes that it held afterwards."""
    drained: list[str] = []

    def hold_nodes(_ctx: PhaseContext, nodes: list[str], _reasons: dict[str, str]) -> Results:
        drained.extend(nodes)
        return dict.fromkeys(nodes, NodeResult(Outcome.PASS))

    monkeypatch.setattr(step, "hold_nodes", hold_nodes)
    stands = {"in_production": world.in_production, "take_out": world.take_out, "run_switches": world.switches, "run_playbook": world.playbook}
    for name, stand_in in {**stands, "verify_fabric": lambda _ctx, names: dict.fromkeys(names, NodeResult(Outcome.PASS))}.items():
        monkeypatch.setattr(fabric, name, stand_in)
    step.run_phase(Request("c1", "sim", str(root), "fabric", ("fabric",), ALL, 8, 8, 100, "d"), "fabric", list(ALL))
    return drained


def states(ledger: Ledger) -> dict[str, tuple[NodeState, str]]:
    return {row.name: (row.state, row.reason) for row in ledger.states()}


def test_neighbours_of_a_node_that_keeps_its_jobs_stay_ready_and_on_offer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ledger: Ledger) -> None:
    world = Ready(busy=ALL, keep=("node01",))
    world.diffs = {"leaf01": "+ nv set interface swp1-4 link mtu 9216"}
    assert run(monkeypatch, tmp_path, world) == []
    assert world.held == {"node01": "fabric is about to change: its ports on leaf01"}
    found = states(ledger)
    assert found.pop("node01") == (NodeState.CERTIFIED, "node01: jobs run on it")
    assert found == dict.fromkeys(ALL[1:], (NodeState.READY, WAITS))
    assert ledger.last_change("node02") == 0, "its evidence stands"


def test_a_node_of_which_the_scheduler_says_nothing_stays_as_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ledger: Ledger) -> None:
    world = Ready(unknown=("node02",))
    world.diffs = {}
    assert run(monkeypatch, tmp_path, world) == []
    assert states(ledger)["node02"] == (NodeState.READY, "node02: nobody can say it")


def test_a_node_that_cannot_be_reached_is_held(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ledger: Ledger) -> None:
    world = Ready(busy=("node03",), would={"node03": NodeResult(Outcome.ERROR, "cannot log in")})
    world.diffs = {}
    assert run(monkeypatch, tmp_path, world) == ["node03"]
    assert states(ledger)["node03"] == (NodeState.CERTIFIED, "cannot log in")


def test_what_kept_a_node_back_is_forgotten_when_it_is_handed_over(tmp_path: Path, ledger: Ledger) -> None:
    ledger.set_state("node02", NodeState.READY, WAITS)
    request = Request("c2", "sim", str(tmp_path), "handover", ("handover",), ALL, 8, 8, 100, "d")
    step._advance(ledger, request, "handover", "node02", NodeResult(Outcome.PASS))
    assert states(ledger)["node02"] == (NodeState.READY, "")
