"""A node that was handed over to Kubernetes and that no Node has the name of: it is lost, not free."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from rackready.campaign.repaired import begin_anew
from rackready.design.pinned import site_of
from rackready.drivers.scheduler import registry
from rackready.drivers.scheduler.places import PLACE, RELEASE, where
from rackready.gates.bmc.guard import refusal
from rackready.handover.production import in_production, take_out
from rackready.handover.retire import RetireRefusedError, look, retire
from rackready.handover.run import drain_nodes
from rackready.ledger.store import Ledger
from rackready.model.outcome import Outcome
from rackready.model.phase import DRAINED, UNTOUCHED, PhaseContext
from rackready.model.state import NodeState
from rackready.paths import EnvPaths
from tests.unit.handover.several_schedulers import HELD, Site, made, parts
from tests.unit.handover.test_production import ROOT, Cluster

CLUSTER = "kubernetes prod of /k"


def lost(place: str = CLUSTER, name: str = "node01", now: str = "node01", here: str = CLUSTER) -> str:
    return (
        f"node01: handed over to {place} as {name} - Expected: a Node for it in {here}, so that its pods are known "
        f"Actual: no Node {now}. Nothing was changed: its pods may run under another name or in another cluster. "
        "Correct node_suffix, node_names or context of handover. If it was taken out of the cluster, run "
        "`rackready repair node01 --reason '...'`, then run again."
    )


@dataclass
class World:
    """A site with one cluster that knows none of its nodes."""

    ctx: PhaseContext
    ledger: Ledger
    cluster: Cluster

    @property
    def paths(self) -> EnvPaths:
        return EnvPaths(self.ctx.root, "sim")

    def write(self, **handover: Any) -> None:
        document = yaml.safe_load((ROOT / "inventories/sim/site.yml").read_text(encoding="utf-8"))
        document["handover"] = {"kind": "kubernetes", "kubeconfig": "/k", "context": "prod", **handover}
        self.paths.site_file.write_text(yaml.safe_dump(document), encoding="utf-8")

    def given(self, **seen: str) -> None:
        """node01 was handed over, as the site is now unless ``seen`` says otherwise."""
        entry = self.ledger.begin("node01", RELEASE, "digest", {**where(site_of(self.ctx), "node01"), **seen})
        self.ledger.done(entry.token, {})
        self.ledger.set_state("node01", NodeState.READY)

    def repair(self) -> list[str]:
        told: list[str] = []
        begin_anew(self.ctx, self.ledger, "node01", "repaired: x", told.append)
        return told

    def found(self) -> tuple[list[str], dict[str, str]]:
        busy, unknown = in_production(self.ctx, ["node01"])
        assert all((one.data, one.touched) == ({UNTOUCHED: True}, False) for one in unknown.values())
        return busy, {node: one.message for node, one in unknown.items()}


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    (tmp_path / "inventories/sim").mkdir(parents=True)
    cluster = Cluster(strange={"node01"})
    for table in (registry.ADAPTERS, registry.READERS):
        monkeypatch.setitem(table, "kubernetes", lambda *_: cluster)
    found = World(PhaseContext("sim", tmp_path, "c1"), Ledger.open(EnvPaths(tmp_path, "sim").database), cluster)
    found.write()
    return found


def test_a_node_that_was_never_handed_over_is_free(world: World) -> None:
    assert world.found() == ([], {})
    assert refusal(site_of(world.ctx), world.ledger, world.paths, "node01") == ""


def test_a_node_that_was_handed_over_is_lost(world: World) -> None:
    world.given()
    assert world.found() == ([], {"node01": lost()})


def test_the_name_and_the_cluster_of_the_handover_are_told(world: World) -> None:
    world.write(node_suffix=".gpu")
    world.given()
    world.write(context="lab")
    text = lost(name="node01.gpu", here="kubernetes lab of /k")
    assert world.found() == ([], {"node01": text})


def test_a_lost_node_keeps_its_power(world: World) -> None:
    world.given()
    assert refusal(site_of(world.ctx), world.ledger, world.paths, "node01") == (
        "the scheduler does not know it (node01: handed over to kubernetes prod of /k as node01: no Node node01 "
        "(expected: a Node for it in kubernetes prod of /k, so that its pods are known). Nothing was changed: its pods "
        "may run under another name or in another cluster. Correct node_suffix, node_names or context of handover. If "
        "it was taken out of the cluster, run `rackready repair node01 --reason '...'`, then run again.)"
    )


def test_a_lost_node_is_not_retired_until_a_repair_says_that_it_left(world: World) -> None:
    world.given()
    with pytest.raises(RetireRefusedError, match=r"Actual: node01: handed over to .*: no Node node01 \(expected"):
        retire(world.ctx, "node01", "sold")
    world.repair()
    assert look(world.ctx, "node01").free


@pytest.mark.parametrize("join", [None, {"command": ["join", "{taint}"]}])
def test_a_repair_says_that_a_lost_node_left_and_it_is_free_to_join_again(
    world: World, join: dict[str, Any] | None
) -> None:
    world.write(join=join)
    world.given()
    assert world.repair() == ["node01 is ready, and counts as having left its scheduler: node01: unknown to Slurm."]
    assert world.found() == ([], {})
    assert refusal(site_of(world.ctx), world.ledger, world.paths, "node01") == ""
    drained = drain_nodes(world.ctx, ["node01"], {"node01": "x"})["node01"]
    assert drained.outcome is (Outcome.ERROR if join is None else Outcome.PASS)


def test_a_node_that_rackready_joined_is_lost_for_a_return_of_its_tenant_too(world: World) -> None:
    """A return and a case drain the node, and do not ask first whether it is in production."""
    world.write(join={"command": ["join", "{taint}"]})
    world.given()
    found = take_out(world.ctx, {"node01": "hand-back: x"})
    assert (found["node01"].outcome, found["node01"].message) == (Outcome.ERROR, lost())


@pytest.mark.parametrize("place", ["slurm 192.0.2.5:22", "file /ready.txt"])
def test_a_node_of_another_kind_of_scheduler_before_is_free(world: World, place: str) -> None:
    world.given(**{PLACE: place})
    assert world.found() == ([], {})


def test_a_handover_of_an_older_version_counts(world: World) -> None:
    world.given(**{PLACE: ""})
    (text,) = world.found()[1].values()
    assert text.startswith(f"node01: handed over to a scheduler - Expected: a Node for it in {CLUSTER}, so that")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """node03 is in production in Kubernetes, which lost it, and the site file gives it to Slurm since."""
    found = made(tmp_path, monkeypatch)
    found.hand_over("node03")
    found.ledger.set_state("node03", NodeState.READY)
    found.write(*parts(found.ready, slurm="node[01,03]", kube="node02"))
    found.slurm.strange -= {"node03"}
    found.kube.strange |= {"node03"}
    found.slurm.nodes["node03"] = HELD
    return found


def test_a_node_that_moved_is_lost_where_it_was(site: Site) -> None:
    text = "node03: handed over to part kubernetes (kubernetes gpu of /kube/config) as node03 - Expected: a Node for it"
    assert in_production(site.ctx, ["node03"])[1]["node03"].message.startswith(text)
    assert site.hand_over("node03")["node03"].message.startswith(text)
    assert site.slurm.nodes["node03"] is HELD
    kept = take_out(site.ctx, {"node03": "hand-back: x"})["node03"]
    assert (kept.message.startswith(text), kept.data) == (True, {DRAINED: True})


def test_a_node_that_moved_is_free_where_it_was_after_a_repair(site: Site) -> None:
    begin_anew(site.ctx, site.ledger, "node03", "repaired: x", lambda _: None)
    assert in_production(site.ctx, ["node03"]) == ([], {})
    assert site.hand_over("node03")["node03"].message == "node03: released (IDLE)"


def test_a_cluster_that_never_had_the_node_does_not_lose_it(site: Site) -> None:
    site.hand_over("node01")
    site.write(*parts(site.ready, slurm="node02", kube="node[01,03]"))
    assert in_production(site.ctx, ["node01"]) == (["node01"], {}), "Slurm offers it still; Kubernetes never had it"
