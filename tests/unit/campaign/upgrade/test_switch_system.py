"""Another system on a switch: the order, and never two switches of a node whose rails are not proven."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from rackready.campaign.upgrade import switch_system
from rackready.campaign.upgrade.switch_system import OPERATION, SwitchUpgrade, order, step_of
from rackready.design.site import load_site
from rackready.ledger.store import Ledger
from rackready.model.outcome import Outcome
from rackready.model.phase import NodeResult, PhaseContext
from rackready.model.problems import RackreadyError
from rackready.model.state import NodeState
from rackready.paths import EnvPaths
from tests.unit.campaign.upgrade.upgrade_sites import ROOT, site_of

NODES = ["node01", "node02", "node03", "node04"]


class Fleet:
    """Nodes in production, and what was drained."""

    def __init__(self, paths: EnvPaths) -> None:
        self.paths = paths
        self.ctx = PhaseContext(paths.env, paths.root, "u1")
        self.kept: dict[str, NodeResult] = {}
        self.drained: dict[str, str] = {}
        self.set_all(NodeState.READY)

    def set_all(self, state: NodeState, *nodes: str) -> None:
        with Ledger.open(self.paths.database) as ledger:
            for node in nodes or NODES:
                ledger.set_state(node, state)

    def take_out(self, _ctx: PhaseContext, reasons: Mapping[str, str]) -> dict[str, NodeResult]:
        self.drained |= reasons
        return self.kept

    def upgrade(self, switch: str) -> SwitchUpgrade:
        return SwitchUpgrade(self.ctx, switch)


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    (tmp_path / "inventories/lab").mkdir(parents=True)
    shutil.copy(ROOT / "inventories/sim/site.yml", tmp_path / "inventories/lab/site.yml")
    found = Fleet(EnvPaths(tmp_path, "lab"))
    monkeypatch.setattr(switch_system, "in_production", lambda _ctx, nodes: (list(nodes), {}))
    monkeypatch.setattr(switch_system, "take_out", found.take_out)
    return found


def test_the_order_is_one_switch_at_a_time_with_what_nodes_lose() -> None:
    steps = order(site_of())
    assert [(step.switch, step.system, step.whole) for step in steps] == [
        ("leaf01", "cumulus_nvue", ()),
        ("leaf02", "cumulus_nvue", ()),
    ]
    assert steps[0].cut["node01"] == (1, 2, 3, 4)
    assert steps[1].cut["node01"] == (5, 6, 7, 8)


def test_spines_come_before_leafs() -> None:
    site = load_site("sim-spine", root=ROOT)
    names = [step.switch for step in order(site)]
    tiers = [step_of(site, name).tier for name in names]
    assert tiers == sorted(tiers, reverse=True)
    assert set(tiers) == {"upper", "leaf"}


def test_its_nodes_are_empty_before_it_begins_and_their_evidence_is_void(fleet: Fleet) -> None:
    assert fleet.upgrade("leaf01").begin(print) == NODES
    assert fleet.drained == dict.fromkeys(NODES, "switch leaf01 gets another system")
    with Ledger.open(fleet.paths.database) as ledger:
        assert ledger.interrupted(OPERATION) == {"leaf01"}
        assert all(ledger.last_change(node).at > 0 for node in NODES)
        assert {row.state for row in ledger.states()} == {NodeState.INSTALLED}


def test_the_other_leaf_waits_until_the_rails_are_proven(fleet: Fleet) -> None:
    fleet.upgrade("leaf01").begin(print)
    with pytest.raises(RackreadyError) as caught:
        fleet.upgrade("leaf02").begin(print)
    assert str(caught.value).startswith(
        "leaf02: rails through leaf01 - Expected: proven: node01, node02, node03, node04 would lose rails "
        "twice Actual: open since "
    )
    assert str(caught.value).endswith("Run `rackready upgrade --switch leaf01 --done` first.")
    fleet.set_all(NodeState.READY, "node01", "node02", "node03")
    assert fleet.upgrade("leaf01").end() == ["node04"]
    with pytest.raises(RackreadyError):
        fleet.upgrade("leaf02").begin(print)
    fleet.set_all(NodeState.READY)
    assert fleet.upgrade("leaf01").end() == []
    assert fleet.upgrade("leaf02").begin(print) == NODES


def test_a_begin_that_was_killed_is_repeated(fleet: Fleet) -> None:
    fleet.upgrade("leaf01").begin(print)
    assert fleet.upgrade("leaf01").begin(print) == NODES
    with Ledger.open(fleet.paths.database) as ledger:
        assert len([entry for entry in ledger.entries("leaf01") if entry.operation == OPERATION]) == 1


@pytest.mark.parametrize("status", ["running", "interrupted"])
def test_a_proof_that_was_cut_off_is_not_resumed_for_the_next_system(fleet: Fleet, status: str) -> None:
    """It would replay the recorded pass of `fabric`, and the fresh system would not be configured."""
    fleet.upgrade("leaf01").begin(print)
    with Ledger.open(fleet.paths.database) as ledger:
        ledger.put_campaign(
            "u2", env="lab", kind="upgrade", nodes=NODES, site_digest="d", abi="2", status=status, summary={}
        )
        said: list[str] = []
        fleet.upgrade("leaf01").begin(said.append)
        assert said == ["campaign u2 was cut off and is not resumed: leaf01 gets another system"]
        assert {row["id"]: row["status"] for row in ledger.campaigns()} == {"u2": "superseded"}


def test_above_the_leafs_no_campaign_of_the_site_is_resumed(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(switch_system, "fabric_links", lambda _site: [])
    with Ledger.open(fleet.paths.database) as ledger:
        ledger.put_campaign(
            "c1", env="lab", kind="deploy", nodes=["node04"], site_digest="d", abi="2", status="running", summary={}
        )
        assert fleet.upgrade("leaf01").begin(print) == []
        assert [row["status"] for row in ledger.campaigns()] == ["superseded"]


def test_a_node_with_jobs_keeps_the_switch_waiting(fleet: Fleet) -> None:
    fleet.kept = {"node02": NodeResult(Outcome.ERROR, "node02: jobs run on it.")}
    with pytest.raises(RackreadyError) as caught:
        fleet.upgrade("leaf01").begin(print)
    assert str(caught.value) == "node02: switch leaf01 waits. node02: jobs run on it."
    with Ledger.open(fleet.paths.database) as ledger:
        assert ledger.interrupted(OPERATION) == frozenset()


def test_a_quarantined_node_holds_no_switch_up(fleet: Fleet) -> None:
    fleet.set_all(NodeState.QUARANTINED, "node02")
    assert fleet.upgrade("leaf01").begin(print) == ["node01", "node03", "node04"]
    fleet.set_all(NodeState.READY, "node01", "node03", "node04")
    assert fleet.upgrade("leaf01").end() == []


def test_nothing_is_proven_of_a_switch_that_was_not_begun(fleet: Fleet) -> None:
    with pytest.raises(RackreadyError) as caught:
        fleet.upgrade("leaf01").nodes()
    assert str(caught.value) == (
        "leaf01: upgrade of its system - Expected: begun Actual: not begun. "
        "Begin with `rackready upgrade --switch leaf01`."
    )
    with pytest.raises(RackreadyError) as caught:
        fleet.upgrade("leaf09")
    assert str(caught.value) == "--switch - Expected: one of leaf01, leaf02 Actual: leaf09. Correct the name."


def test_a_node_that_was_never_installed_stays_where_it_is_and_holds_nothing_up(fleet: Fleet) -> None:
    fleet.set_all(NodeState.PROVISIONED, "node04")
    assert fleet.upgrade("leaf01").begin(print) == NODES[:3]
    with Ledger.open(fleet.paths.database) as ledger:
        row = ledger.state("node04")
    assert row is not None
    assert row.state is NodeState.PROVISIONED
    fleet.set_all(NodeState.READY, *NODES[:3])
    assert fleet.upgrade("leaf01").end() == []
