"""The fabric phase of a site with opensm: partitions reach the subnet managers that are not in the run."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from rackready.campaign import fabric, opensm
from rackready.campaign.phase_table import PHASES
from rackready.drivers.ib_fabric.reading import Reader
from rackready.ledger.store import Ledger
from rackready.model.outcome import Outcome
from rackready.model.phase import NodeResult, PhaseContext
from rackready.model.state import NodeState
from rackready.paths import EnvPaths

ROOT = Path(__file__).resolve().parents[3]
MANAGERS = ["node01", "node02"]
RED = {"name": "red", "nodes": ["node[01-03]"], "pkey": "0x0011"}
FABRIC, UPDATE = "fabric-infiniband.yml", "update-opensm.yml"
OFF = "node02: update-opensm: no answer at 192.0.2.12 - Expected: a login Actual: timed out. Check its power."


class World:
    """A rack with opensm on node01 and node02. Playbooks pass, but for those in ``bad``."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.context = PhaseContext("t", root, "c1")
        self.guids = {f"node0{at}": [f"b83fd203000000{at}{rail}" for rail in range(1, 9)] for at in range(1, 5)}
        self.plays: list[tuple[str, list[str]]] = []
        self.bad: dict[tuple[str, str], NodeResult] = {}
        self.unmeasured: list[str] = []
        self.busy: set[str] = set()
        self.drained: dict[str, str] = {}
        self.file = root / "inventories/t/site.yml"
        self.file.parent.mkdir(parents=True)
        (root / "playbooks").mkdir()
        shutil.copytree(ROOT / "inventories/sim-ib/profiles", self.file.parent / "profiles")
        self.site([RED])
        self.ledger = Ledger.open(EnvPaths(root, "t").database)
        for module in (fabric, opensm):
            monkeypatch.setattr(module, "run_playbook", self._playbook)
            monkeypatch.setattr(module, "in_production", self._in_production)
        monkeypatch.setattr(fabric, "take_out", self._take_out)
        monkeypatch.setattr(fabric, "verify_infiniband", self._verify)
        monkeypatch.setattr(Reader, "guids", lambda _reader, nodes: {node: self.guids[node] for node in nodes})

    def site(self, tenants: Sequence[dict[str, Any]]) -> None:
        site = yaml.safe_load((ROOT / "inventories/sim-ib/site.yml").read_text(encoding="utf-8"))
        self.file.write_text(yaml.safe_dump(site | {"tenants": list(tenants)}), encoding="utf-8")

    def _in_production(self, _ctx: PhaseContext, nodes: Iterable[str]) -> tuple[list[str], dict[str, NodeResult]]:
        return [node for node in nodes if node in self.busy], {}

    def _take_out(self, _ctx: PhaseContext, reasons: dict[str, str]) -> dict[str, NodeResult]:
        self.drained = dict(reasons)
        return {}

    def _playbook(
        self, ctx: PhaseContext, playbook: str, nodes: list[str], extra: dict[str, Any]
    ) -> dict[str, NodeResult]:
        if not ctx.check and nodes:
            self.plays.append((playbook, nodes))
        assert not extra["opensm_port_guids"] or set(nodes) <= extra["opensm_port_guids"].keys()
        data = {"unmeasured": self.unmeasured} if self.unmeasured else {}
        out = {node: self.bad.get((playbook, node), NodeResult(Outcome.PASS, data=dict(data))) for node in nodes}
        for node in [] if ctx.check else nodes:
            token = self.ledger.begin(node, f"install:{playbook}", "d", {}).token
            if out[node].outcome is Outcome.PASS:
                self.ledger.done(token)
        return out

    @staticmethod
    def _verify(_ctx: PhaseContext, nodes: list[str], _others: list[str]) -> dict[str, NodeResult]:
        return {node: NodeResult(Outcome.PASS, f"{node}: said") for node in nodes}

    def run(self, *nodes: str, check: bool = False) -> dict[str, NodeResult]:
        """Run the phase on nodes; those that pass are connected afterwards."""
        self.plays.clear()
        found = PHASES["fabric"].run(replace(self.context, check=check), list(nodes))
        for node, result in found.items():
            if result.outcome is Outcome.PASS and not check:
                self.ledger.set_state(node, NodeState.CONNECTED)
        return found


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def outcomes(found: dict[str, NodeResult]) -> dict[str, Outcome]:
    return {node: result.outcome for node, result in found.items()}


def test_managers_of_an_earlier_wave_get_the_ports_of_a_later_one_once(world: World) -> None:
    assert outcomes(world.run(*MANAGERS)) == dict.fromkeys(MANAGERS, Outcome.PASS)
    assert world.plays == [(FABRIC, MANAGERS)]
    found = world.run("node03")
    assert found["node03"].outcome is Outcome.PASS
    assert found["node03"].changed
    assert world.plays == [(UPDATE, MANAGERS), (FABRIC, ["node03"])]
    found = world.run("node03")
    assert world.plays == [(FABRIC, ["node03"])]
    assert not found["node03"].changed


def test_a_node_without_keys_leaves_the_managers_alone(world: World) -> None:
    world.run(*MANAGERS)
    assert world.run("node04")["node04"].outcome is Outcome.PASS
    assert world.plays == [(FABRIC, ["node04"])]


def test_a_manager_in_the_run_is_played_with_it_and_the_other_one_by_itself(world: World) -> None:
    world.run(*MANAGERS)
    world.run("node02", "node03")
    assert world.plays == [(UPDATE, ["node01"]), (FABRIC, ["node02", "node03"])]
    world.run("node03")
    assert world.plays == [(FABRIC, ["node03"])], "both have it"


def test_a_replaced_adapter_reaches_the_managers(world: World) -> None:
    world.run(*MANAGERS, "node03")
    world.guids["node03"] = [f"b83fd203000001{rail:02x}" for rail in range(1, 9)]
    world.run("node03")
    assert world.plays == [(UPDATE, MANAGERS), (FABRIC, ["node03"])]


def test_a_manager_that_does_not_take_them_holds_back_the_nodes_whose_keys_depend_on_it(world: World) -> None:
    world.run(*MANAGERS)
    world.bad[UPDATE, "node02"] = NodeResult(Outcome.ERROR, OFF)
    found = world.run("node03", "node04")
    assert outcomes(found) == {"node03": Outcome.ERROR, "node04": Outcome.PASS}
    assert found["node03"].message == (
        "node03: partition keys - Expected: those of node03 in opensm on node02 "
        "Actual: node02: update-opensm: no answer at 192.0.2.12: timed out (expected: a login). Check its power. "
        "Correct that, or take node02 out of fabric.infiniband.nodes; then run again."
    )
    assert world.plays == [(UPDATE, MANAGERS), (FABRIC, ["node04"])]
    world.bad.clear()
    assert world.run("node03")["node03"].outcome is Outcome.PASS
    assert world.plays == [(UPDATE, ["node02"]), (FABRIC, ["node03"])], "node01 has them"


def test_keys_that_go_back_after_a_try_that_failed_reach_the_manager_again(world: World) -> None:
    """It may have written its file before it failed."""
    world.run(*MANAGERS, "node03")
    world.bad[UPDATE, "node02"] = NodeResult(Outcome.FAIL, "node02: failed")
    world.site([RED | {"pkey": "0x0012"}])
    world.run("node01", "node03")
    world.bad.clear()
    world.site([RED])
    world.run("node01", "node03")
    assert world.plays == [(UPDATE, ["node02"]), (FABRIC, ["node01", "node03"])]


def test_an_update_that_was_killed_is_repeated(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_arguments: object) -> None:
        raise KeyboardInterrupt

    world.run(*MANAGERS)
    with monkeypatch.context() as patched:
        patched.setattr(opensm, "run_playbook", killed)
        with pytest.raises(KeyboardInterrupt):
            world.run("node03")
    world.run("node03")
    assert world.plays == [(UPDATE, MANAGERS), (FABRIC, ["node03"])]


def test_managers_of_whom_the_ledger_knows_nothing_are_updated(world: World) -> None:
    """An older version kept no record, and a new epoch voids it."""
    world.run(*MANAGERS, "node03")
    world.ledger.raise_epoch("node02", "declared repeat")
    world.run("node03")
    assert world.plays == [(UPDATE, ["node02"]), (FABRIC, ["node03"])]


def test_a_manager_without_opensm_is_not_waited_for(world: World) -> None:
    """One that never passed the phase, or is out for repair, gets the whole file when the phase comes to it."""
    world.run("node01")
    world.run("node03")
    assert world.plays == [(UPDATE, ["node01"]), (FABRIC, ["node03"])]
    world.ledger.set_state("node01", NodeState.REPAIR)
    world.site([RED | {"pkey": "0x0012"}])
    found = world.run("node03")
    assert world.plays == [(FABRIC, ["node03"])]
    assert not found["node03"].changed, "it would be drained in each run until the manager is back"


def test_a_site_whose_tenants_went_opens_its_partitions_on_every_manager(world: World) -> None:
    world.run(*MANAGERS, "node03")
    world.site([])
    world.run("node03")
    assert world.plays == [(UPDATE, MANAGERS), (FABRIC, ["node03"])]


def test_a_site_without_tenants_records_nothing(world: World) -> None:
    world.site([])
    world.run(*MANAGERS)
    world.run("node03")
    assert world.plays == [(FABRIC, ["node03"])]
    assert [entry for entry in world.ledger.entries() if entry.operation == opensm.OPERATION] == []


def test_a_dry_run_says_whose_keys_change_and_updates_nothing(world: World) -> None:
    world.run(*MANAGERS)
    found = world.run("node03", "node04", check=True)
    assert found["node03"].changed
    assert found["node03"].data["plan"]["changes"] == ["partition keys in opensm on node01, node02"]
    assert not found["node04"].changed
    assert world.plays == []
    world.run("node03")
    assert world.plays == [(UPDATE, MANAGERS), (FABRIC, ["node03"])]


def test_a_node_in_production_is_drained_before_its_keys_change(world: World) -> None:
    world.run(*MANAGERS, "node03")
    world.busy = {"node03", "node04"}
    world.site([RED | {"nodes": ["node[01-02]"]}])
    world.run("node03", "node04")
    assert world.drained == {
        "node03": "fabric is about to change: partition keys in opensm on node01, node02",
    }
    assert world.plays == [(UPDATE, MANAGERS), (FABRIC, ["node03"])]


def test_keys_of_nodes_in_production_outside_of_the_run_do_not_change(world: World) -> None:
    world.run(*MANAGERS, "node03", "node04")
    world.busy = {"node03"}
    world.site([RED | {"nodes": ["node[01-02]", "node04"]}])
    found = world.run("node04")
    assert world.plays == []
    assert found["node04"].message == (
        "node04: partition keys in opensm on node01, node02 - "
        "Expected: nodes in production outside of this run keep theirs Actual: those of node03 would change, too. "
        "Nothing was changed. Run it for them, too (--limit), or again when their jobs have ended."
    )
    assert (found["node04"].outcome, found["node04"].touched) == (Outcome.ERROR, False)
    world.busy.clear()
    assert world.run("node04")["node04"].outcome is Outcome.PASS


def test_managers_of_the_run_do_not_change_keys_of_others_in_production(world: World) -> None:
    """They write the whole file: a node whose jobs did not end in time is not in the run any more."""
    world.run(*MANAGERS, "node03", "node04")
    world.busy = {"node03"}
    world.site([RED | {"nodes": ["node[01-02]", "node04"]}])
    found = world.run(*MANAGERS, "node04")
    assert world.plays == []
    assert outcomes(found) == dict.fromkeys((*MANAGERS, "node04"), Outcome.ERROR)
    assert "Actual: those of node03 would change, too. Nothing was changed." in found["node01"].message
    world.busy.clear()
    assert outcomes(world.run(*MANAGERS, "node04")) == dict.fromkeys((*MANAGERS, "node04"), Outcome.PASS)


def test_a_subnet_of_which_the_log_tells_nothing_is_not_measured(world: World) -> None:
    world.unmeasured = ["rackready-opensm@leaf01.service: opensm emptied its log"]
    found = world.run("node01")["node01"]
    assert found.outcome is Outcome.SKIP
    assert found.message == "node01: said; not measured: rackready-opensm@leaf01.service: opensm emptied its log"
