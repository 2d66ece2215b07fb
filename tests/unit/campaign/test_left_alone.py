"""Nodes left alone for their neighbours' sake stay on offer; one that cannot be reached is drained as always."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackready.campaign import fabric, step
from rackready.campaign.drained_phase import Results
from rackready.campaign.request import CampaignRequest
from rackready.ledger.store import Ledger
from rackready.model.outcome import Outcome
from rackready.model.phase import DRAINED, UNTOUCHED, NodeResult, PhaseContext
from rackready.model.state import NodeState
from rackready.paths import EnvPaths
from tests.unit.campaign.test_drained_phase import ALL, Fabric

ROOT = Path(__file__).resolve().parents[3]
JOBS = NodeResult(Outcome.ERROR, "node01: jobs run on it", data={DRAINED: True}, touched=False)
SILENT = NodeResult(Outcome.ERROR, "node02: nobody can say it", data={UNTOUCHED: True}, touched=False)
WAITS = (
    "leaf01: its ports would change - Expected: all nodes in production behind it drained Actual: not drained: node01. "
    "Nothing was changed. Run again when their jobs have ended."
)


class Ready(Fabric):
    """Four ready nodes."""

    def in_production(self, _ctx: PhaseContext, nodes: list[str]) -> tuple[list[str], Results]:
        return [node for node in nodes if node in self.busy], {node: SILENT for node in nodes if node in self.unknown}

    def take_out(self, _ctx: PhaseContext, reasons: dict[str, str]) -> Results:
        self.drained |= reasons
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
    """Run the fabric phase as a campaign does. Returns the nodes that it drained afterwards."""
    drained: list[str] = []

    def drain_nodes(_ctx: PhaseContext, nodes: list[str], _reasons: dict[str, str]) -> Results:
        drained.extend(nodes)
        return dict.fromkeys(nodes, NodeResult(Outcome.PASS))

    monkeypatch.setattr(step, "drain_nodes", drain_nodes)
    stands = {
        "in_production": world.in_production,
        "take_out": world.take_out,
        "run_switches": world.switches,
        "run_playbook": world.playbook,
    }
    for name, stand_in in {
        **stands,
        "wrong_cables": lambda _ctx, _names: {},
        "verify_fabric": lambda _ctx, names: dict.fromkeys(names, NodeResult(Outcome.PASS)),
    }.items():
        monkeypatch.setattr(fabric, name, stand_in)
    step.run_phase(
        CampaignRequest("c1", "sim", str(root), "fabric", ("fabric",), ALL, 8, (1,), 100, ""), "fabric", list(ALL)
    )
    return drained


def states(ledger: Ledger) -> dict[str, tuple[NodeState, str]]:
    return {row.name: (row.state, row.reason) for row in ledger.states()}


def test_neighbours_of_a_node_that_keeps_its_jobs_stay_ready_and_on_offer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ledger: Ledger
) -> None:
    world = Ready(busy=ALL, keep=("node01",))
    world.diffs = {"leaf01": "+ nv set interface swp1-4 link mtu 9216"}
    assert run(monkeypatch, tmp_path, world) == []
    assert world.drained == {"node01": "fabric is about to change: its ports on leaf01"}
    found = states(ledger)
    assert found.pop("node01") == (NodeState.CERTIFIED, "node01: jobs run on it")
    assert found == dict.fromkeys(ALL[1:], (NodeState.READY, WAITS))
    assert ledger.last_change("node02").at == 0, "its evidence stands"


def test_a_node_of_which_the_scheduler_says_nothing_stays_as_it_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ledger: Ledger
) -> None:
    world = Ready(unknown=("node02",))
    world.diffs = {}
    assert run(monkeypatch, tmp_path, world) == []
    assert states(ledger)["node02"] == (NodeState.READY, "node02: nobody can say it")


def test_a_node_that_cannot_be_reached_is_drained(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ledger: Ledger
) -> None:
    world = Ready(busy=("node03",), would={"node03": NodeResult(Outcome.ERROR, "cannot log in")})
    world.diffs = {}
    assert run(monkeypatch, tmp_path, world) == ["node03"]
    assert states(ledger)["node03"] == (NodeState.CERTIFIED, "cannot log in")


def test_what_kept_a_node_back_is_forgotten_when_it_is_handed_over(tmp_path: Path, ledger: Ledger) -> None:
    ledger.set_state("node02", NodeState.READY, WAITS)
    request = CampaignRequest("c2", "sim", str(tmp_path), "handover", ("handover",), ALL, 8, (1,), 100, "")
    step._advance(ledger, request, "handover", "node02", NodeResult(Outcome.PASS))
    assert states(ledger)["node02"] == (NodeState.READY, "")


class Blind(Ready):
    """A fabric with a switch whose preview fails; its real run would go through."""

    def switches(self, ctx: PhaseContext, names: list[str]) -> Results:
        out = super().switches(ctx, names)
        return out | (
            {"leaf02": NodeResult(Outcome.ERROR, "leaf02: no preview.")} if ctx.check and "leaf02" in names else {}
        )


def test_a_switch_whose_preview_fails_is_not_changed_while_a_node_behind_it_is_in_production(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ledger: Ledger
) -> None:
    world = Blind(busy=("node01",))
    world.diffs = {"leaf01": "+ nv set qos roce mode lossless"}
    assert run(monkeypatch, tmp_path, world) == []
    assert (world.done, world.drained) == ([], {})
    assert states(ledger) == dict.fromkeys(ALL, (NodeState.READY, "leaf02: no preview."))


def test_a_preview_fails_and_nobody_can_say_whether_jobs_run_behind_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ledger: Ledger
) -> None:
    world = Blind(unknown=("node02",))
    world.diffs = {}
    assert run(monkeypatch, tmp_path, world) == []
    assert world.done == []
    assert states(ledger)["node01"] == (NodeState.READY, "leaf02: no preview.")
    assert states(ledger)["node02"] == (NodeState.READY, "node02: nobody can say it")


def test_a_switch_whose_preview_fails_is_tried_when_nobody_behind_it_is_in_production(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ledger: Ledger
) -> None:
    world = Blind()
    world.diffs = {}
    assert run(monkeypatch, tmp_path, world) == []
    assert world.done == ["leaf01", "leaf02", *ALL]
    assert states(ledger) == dict.fromkeys(ALL, (NodeState.READY, ""))


class Peers(Ready):
    """A fabric that records each call: (dry run, played nodes, peers of their rail checks)."""

    plays: list[tuple[bool, list[str], list[str]]]

    def playbook(
        self,
        ctx: PhaseContext,
        playbook: str,
        nodes: list[str],
        more: dict[str, list[str]] | None = None,
        tags: list[str] | None = None,
    ) -> Results:
        if nodes and tags != ["nics"]:
            self.plays.append((ctx.check, nodes, (more or {}).get("host_roce_known_peers", [])))
        return super().playbook(ctx, playbook, nodes, more, tags)


@pytest.mark.usefixtures("ledger")
def test_nodes_that_are_not_played_stand_in_as_peers_in_the_dry_run_and_the_real_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    world = Peers(
        busy=("node01", "node02"), would={"node02": NodeResult(Outcome.PASS, changed=True, data={"changes": ["x"]})}
    )
    world.diffs, world.plays = {}, []
    run(monkeypatch, tmp_path, world)
    assert world.plays == [
        (True, ["node01", "node02"], ["node03", "node04"]),
        (False, ["node02", "node03", "node04"], ["node01"]),
    ]


def test_a_node_left_alone_at_one_switch_and_changed_at_another_is_not_as_it_was(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ledger: Ledger
) -> None:
    behind = {"node01": ["leaf01", "leaf02"], "node02": ["leaf01"], "node03": ["leaf01"], "node04": ["leaf01"]}
    monkeypatch.setattr(fabric, "cables", lambda _site, names: {name: behind[name] for name in names})
    world = Blind(busy=("node01",))
    world.diffs = {"leaf01": "+ nv set interface swp1-4 link mtu 9216"}
    assert run(monkeypatch, tmp_path, world) == ["node01"]
    assert world.drained == {"node01": "fabric is about to change: its ports on leaf01"}
    assert world.done == ["leaf01", "node02", "node03", "node04"]
    assert states(ledger)["node01"] == (NodeState.INSTALLED, "leaf02: no preview.")
    assert ledger.last_change("node01").at > 0
