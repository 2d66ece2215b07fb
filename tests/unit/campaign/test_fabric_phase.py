"""The fabric phase of a single node: a rail without a reachable peer counts as not measured, never as a pass."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from rackready.campaign import fabric, rails
from rackready.campaign.phase_table import PHASES
from rackready.drivers.ansible_events import Events
from rackready.drivers.switch.apply import OPERATION
from rackready.ledger.store import Ledger
from rackready.model.outcome import Outcome
from rackready.model.phase import NodeResult, PhaseContext
from rackready.model.state import NodeState
from rackready.paths import EnvPaths

ROOT = Path(__file__).resolve().parents[3]
ALONE = ["rail 1: no other node in this run to reach", "rail 2: no other node in this run to reach"]


class World:
    """Records what the phase would do; ``unmeasured``: what the playbook reports as not measured."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.known: list[str] = []
        self.unmeasured: list[str] = []
        self.agrees = Outcome.PASS
        (root / "inventories/t").mkdir(parents=True)
        shutil.copy(ROOT / "inventories/sim/site.yml", root / "inventories/t/site.yml")
        self.context = PhaseContext("t", root, "c1")
        self.ledger = Ledger.open(EnvPaths(root, "t").database)
        self.visited: list[list[str]] = []
        monkeypatch.setattr(fabric, "in_production", lambda _ctx, _nodes: ([], {}))
        for module in (fabric, rails):
            monkeypatch.setattr(module, "run_switches", self._switches)
        monkeypatch.setattr(fabric, "run_playbook", self._playbook)
        self.wrong: dict[str, NodeResult] = {}
        self.tags: list[tuple[list[str] | None, list[str]]] = []
        monkeypatch.setattr(fabric, "wrong_cables", lambda _ctx, _nodes: self.wrong)
        monkeypatch.setattr(
            fabric,
            "verify_fabric",
            lambda _ctx, nodes: {node: NodeResult(self.agrees, f"{node}: said") for node in nodes},
        )

    def _switches(self, _ctx: PhaseContext, names: list[str]) -> dict[str, NodeResult]:
        self.visited.append(names)
        return {name: NodeResult(Outcome.PASS, f"{name}: changed and confirmed") for name in names}

    def _playbook(
        self,
        _ctx: PhaseContext,
        playbook: str,
        nodes: list[str],
        extra: dict[str, Any],
        tags: list[str] | None = None,
    ) -> dict[str, NodeResult]:
        assert playbook == "fabric.yml"
        self.tags.append((tags, nodes))
        self.known = extra["host_roce_known_peers"]
        data = {"changed": 1, "ok": 9} | ({"unmeasured": self.unmeasured} if self.unmeasured else {})
        return {node: NodeResult(Outcome.PASS, changed=True, data=data) for node in nodes}

    def run(self, *nodes: str) -> dict[str, NodeResult]:
        return PHASES["fabric"].run(self.context, list(nodes))


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def test_a_lone_node_is_never_a_pass(world: World) -> None:
    world.unmeasured = ALONE
    found = world.run("node01")["node01"]
    assert (found.outcome, found.changed) == (Outcome.SKIP, True)
    assert found.message == f"node01: said; not measured: {ALONE[0]}; {ALONE[1]}"
    assert found.data == {"unmeasured": ALONE}


def test_a_disagreement_stays_a_fail(world: World) -> None:
    world.unmeasured, world.agrees = ALONE, Outcome.FAIL
    assert world.run("node01")["node01"].outcome is Outcome.FAIL


def test_a_measured_fabric_is_a_pass(world: World) -> None:
    assert world.run("node01", "node02")["node02"].outcome is Outcome.PASS


def test_a_node_with_a_wrong_cable_stops_before_its_rails_are_measured_and_others_go_on(world: World) -> None:
    world.wrong = {"node02": NodeResult(Outcome.FAIL, "node02: swapped", data={"findings": ["x"]})}
    found = world.run("node01", "node02")
    assert (found["node02"].outcome, found["node02"].message) == (Outcome.FAIL, "node02: swapped")
    assert found["node02"].changed
    assert found["node02"].data["findings"] == ["x"]
    assert found["node01"].outcome is Outcome.PASS
    assert world.tags == [(["nics"], ["node01", "node02"]), (["rails"], ["node01"])]
    assert "node02" not in world.known, "no peer for a rail"


def test_cables_that_one_end_told_of_are_in_the_result_and_hold_nobody_back(world: World) -> None:
    ends = ["4 cables to leaf01: read at node02 only"]
    world.wrong = {"node02": NodeResult(Outcome.PASS, "node02: right", data={"read_at_one_end": ends})}
    found = world.run("node01", "node02")
    assert (found["node01"].message, found["node01"].data) == ("node01: said", {})
    assert found["node02"].outcome is Outcome.PASS
    assert found["node02"].message == f"node02: said; {ends[0]}"
    assert found["node02"].data == {"read_at_one_end": ends}
    assert world.tags == [(["nics"], ["node01", "node02"]), (["rails"], ["node01", "node02"])]


def test_a_node_whose_rails_were_not_measured_tells_the_ends_too(world: World) -> None:
    ends = ["4 cables to leaf01: read at node02 only"]
    world.wrong = {"node02": NodeResult(Outcome.PASS, "node02: right", data={"read_at_one_end": ends})}
    world.unmeasured = ALONE
    found = world.run("node02")["node02"]
    assert found.outcome is Outcome.SKIP
    assert found.message.endswith(f"{ALONE[1]}; {ends[0]}")


def test_a_dry_run_shows_wrong_cables_beside_what_would_change(world: World) -> None:
    world.wrong = {"node02": NodeResult(Outcome.FAIL, "node02: swapped")}
    world.context = replace(world.context, check=True)
    found = world.run("node01", "node02")
    assert {node: result.outcome for node, result in found.items()} == {"node01": Outcome.PASS, "node02": Outcome.FAIL}
    assert [tags for tags, nodes in world.tags if nodes] == [[]], "one run shows settings and rails"


def test_nodes_that_are_connected_or_further_stand_in_as_peers(world: World) -> None:
    for node, state in (
        ("node02", NodeState.READY),
        ("node03", NodeState.CONNECTED),
        ("node04", NodeState.INSTALLED),
        ("node01", NodeState.READY),
    ):
        world.ledger.set_state(node, state)
    world.run("node01")
    assert world.known == ["node02", "node03"]


def test_a_switch_that_no_cable_ends_on_any_more_is_cleared_when_we_had_configured_it(world: World) -> None:
    path = world.context.root / "inventories/t/site.yml"
    raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    raw["switches"] += [
        {**raw["switches"][0], "name": name, "address": address}
        for name, address in (("leaf03", "192.0.2.23"), ("leaf04", "192.0.2.24"))
    ]
    path.write_text(yaml.safe_dump(raw), encoding="utf-8")
    world.ledger.done(world.ledger.begin("leaf03", OPERATION, "d", {"commands": []}).token)
    assert world.run("node01")["node01"].outcome is Outcome.PASS
    assert world.visited == [["leaf01", "leaf02"], ["leaf03"]]
    told = [(event.node, event.text, event.level) for event in world.ledger.events("c1")]
    assert told == [("leaf03", "no cable ends on it any more: leaf03: changed and confirmed", "ok")]


def test_what_a_task_could_not_measure_is_told_as_information_and_kept() -> None:
    told: list[tuple[str, str, str]] = []
    events = Events("fabric", ["node01"], "log", lambda *words: told.append(words))
    events.line(
        json.dumps(
            {"event": "runner_on_ok", "host": "node01", "task": "rails", "res": {"changed": False, "unmeasured": ALONE}}
        )
    )
    events.line(json.dumps({"event": "playbook_on_stats", "ok": {"node01": 3}, "processed": {"node01": 1}}))
    assert told == [("node01", text, "info") for text in ALONE]
    assert events.result("node01").data == {"changed": 0, "ok": 3, "unmeasured": ALONE}
