"""The phase before install: nodes are drained and their set recorded; what keeps its jobs or is others' is left out."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Self

import pytest
import yaml

from rackready.campaign.upgrade import take_out
from rackready.design.node_sets import NodeSet, regrouped
from rackready.design.pinned import pin
from rackready.design.site import load_site
from rackready.drivers.scheduler.base import SchedulerError, SchedulerNode, UnknownNodeError
from rackready.drivers.scheduler.places import PART, PLACE, RELEASE
from rackready.ledger.node_sets import assign, assigned
from rackready.ledger.store import Ledger
from rackready.model.outcome import Outcome
from rackready.model.phase import DRAINED, TOGETHER, UNTOUCHED, NodeResult, PhaseContext
from rackready.model.state import NodeState
from rackready.model.upgrade import SetChoice
from rackready.paths import EnvPaths
from tests.unit.campaign.upgrade.upgrade_sites import FORMER, OLD, ROOT
from tests.unit.design.several_sites import KUBERNETES, SLURM, document, part

LATER = SetChoice(set="hgx-r580-later")
NODES = ["node01", "node02"]


def out_of_use(node: str, reason: str, by: str) -> SchedulerNode:
    return SchedulerNode(node, "DRAIN", usable=False, drained=True, down=False, reason=reason, by=by)


class Scheduler:
    """Answers as told, and keeps what was drained."""

    beside_others = False

    def __init__(self) -> None:
        self.nodes = {node: SchedulerNode(node, "IDLE", usable=True, drained=False, down=False) for node in NODES}
        self.kept: dict[str, NodeResult] = {}
        self.drained: dict[str, str] = {}
        self.silent = False

    def __enter__(self) -> Self:
        if self.silent:
            raise SchedulerError("slurm", expected="an answer", actual="none", next_step="Start it.")
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def show(self, node: str) -> SchedulerNode:
        if node not in self.nodes:
            raise UnknownNodeError(node, expected="known", actual="not", next_step="Add it.")
        return self.nodes[node]

    def in_production(self, _ctx: PhaseContext, nodes: list[str]) -> tuple[list[str], dict[str, NodeResult]]:
        return [node for node in nodes if node in self.nodes and self.nodes[node].usable], {}

    def take_out(self, _ctx: PhaseContext, reasons: Mapping[str, str]) -> dict[str, NodeResult]:
        self.drained |= reasons
        return {node: result for node, result in self.kept.items() if node in reasons}


@pytest.fixture
def scheduler(monkeypatch: pytest.MonkeyPatch) -> Scheduler:
    found = Scheduler()
    monkeypatch.setattr(take_out, "in_production", found.in_production)
    monkeypatch.setattr(take_out, "take_out", found.take_out)
    monkeypatch.setattr(take_out, "adapter_for", lambda *_: found)
    return found


@pytest.fixture
def ctx(tmp_path: Path) -> PhaseContext:
    folder = tmp_path / "inventories/lab/profiles/software"
    folder.mkdir(parents=True)
    shutil.copy(ROOT / "inventories/sim/site.yml", tmp_path / "inventories/lab/site.yml")
    text = (ROOT / f"src/rackready/profiles/software/{OLD}.yml").read_text(encoding="utf-8")
    (folder / f"{LATER.set}.yml").write_text(text.replace(f"id: {OLD}", f"id: {LATER.set}"), encoding="utf-8")
    paths = EnvPaths(tmp_path, "lab")
    seen = regrouped(load_site("lab", root=tmp_path), dict.fromkeys(NODES, LATER))
    return PhaseContext("lab", tmp_path, "c1", site_digest=pin(paths, seen))


def sets(ctx: PhaseContext) -> dict[str, NodeSet]:
    with Ledger.open(EnvPaths(ctx.root, ctx.env).database) as ledger:
        return assigned(ledger)


def run(ctx: PhaseContext) -> dict[str, NodeResult]:
    return take_out.run_take_out(ctx, NODES)


def test_nodes_are_drained_and_then_on_record_with_the_new_set(ctx: PhaseContext, scheduler: Scheduler) -> None:
    found = run(ctx)
    assert {node: (result.outcome, result.touched) for node, result in found.items()} == dict.fromkeys(
        NODES, (Outcome.PASS, False)
    )
    assert scheduler.drained == dict.fromkeys(NODES, "upgrade: moves to hgx-r580-later")
    assert sets(ctx) == dict.fromkeys(NODES, NodeSet(LATER, FORMER))


def test_a_node_that_keeps_its_jobs_keeps_its_set(ctx: PhaseContext, scheduler: Scheduler) -> None:
    kept = NodeResult(Outcome.ERROR, "jobs run on it", data={DRAINED: True}, touched=False)
    scheduler.kept["node01"] = kept
    assert run(ctx)["node01"] is kept
    assert list(sets(ctx)) == ["node02"]


@pytest.fixture
def one_domain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the nodes share an NVLink domain, which no server of the simulated rack can be in."""
    monkeypatch.setattr(take_out, "units", lambda _site: [tuple(NODES)])


@pytest.mark.usefixtures("one_domain")
def test_the_mates_of_a_node_that_stays_keep_their_set(ctx: PhaseContext, scheduler: Scheduler) -> None:
    scheduler.kept["node01"] = NodeResult(Outcome.ERROR, "jobs run on it", data={DRAINED: True}, touched=False)
    mate = run(ctx)["node02"]
    assert (mate.outcome, mate.data, mate.touched) == (Outcome.ERROR, {TOGETHER: "node01", DRAINED: True}, False)
    assert mate.message == (
        "node02: nodes of its NVLink domain - Expected: taken out together: their drivers must be the same "
        "Actual: node01 stays. It keeps its set. Run with --failed-only when node01 can go."
    )
    assert sets(ctx) == {}


@pytest.mark.usefixtures("one_domain")
def test_a_mate_on_its_former_set_is_released_though_another_one_stays(ctx: PhaseContext, scheduler: Scheduler) -> None:
    """The way back of a domain that was left out: it has nothing to move."""
    former = replace(ctx, site_digest=pin(EnvPaths(ctx.root, ctx.env), load_site("lab", root=ctx.root)))
    scheduler.kept["node01"] = NodeResult(Outcome.ERROR, "jobs run on it", data={DRAINED: True}, touched=False)
    assert run(former)["node02"].outcome is Outcome.PASS


@pytest.mark.parametrize("beside_others", [False, True])
def test_a_node_that_somebody_else_drained_is_left_alone(
    ctx: PhaseContext, scheduler: Scheduler, *, beside_others: bool
) -> None:
    """Also where our drain could stand beside theirs, as in Kubernetes: they work on the node."""
    scheduler.beside_others = beside_others
    scheduler.nodes["node01"] = out_of_use("node01", "fan noise", "ann")
    result = run(ctx)["node01"]
    assert (result.outcome, result.message, result.data) == (
        Outcome.ERROR,
        (
            "node01: drained by somebody else - Expected: offered, or drained by us Actual: fan noise, by ann. "
            "It was left out. Ask who drained it, release it, then run with --failed-only."
        ),
        {UNTOUCHED: True},
    )
    assert (list(sets(ctx)), list(scheduler.drained)) == (["node02"], ["node02"])


def test_a_moved_node_that_somebody_drained_in_its_former_scheduler_is_left_alone(
    ctx: PhaseContext, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The site gave it to another part; its former scheduler still holds it for somebody."""
    paths = EnvPaths(ctx.root, ctx.env)
    paths.site_file.write_text(
        yaml.safe_dump(document(part("node[03-04]", SLURM), part("node[01-02]", KUBERNETES))), encoding="utf-8"
    )
    site = regrouped(load_site("lab", root=ctx.root), dict.fromkeys(NODES, LATER))
    former = Scheduler()
    former.nodes = {"node01": out_of_use("node01", "fan noise", "ann")}
    monkeypatch.setattr(take_out, "adapter_for", lambda view, _: {"slurm": former}.get(view.handover.kind, scheduler))
    with Ledger.open(paths.database) as ledger:
        for node in NODES:
            ledger.done(ledger.begin(node, RELEASE, "d", {PART: "slurm", PLACE: "slurm 192.0.2.5:22"}).token)
    found = take_out.run_take_out(replace(ctx, site_digest=pin(paths, site)), NODES)
    assert found["node01"].message.startswith("node01: drained by somebody else - Expected: offered, or drained by us")
    assert (list(sets(ctx)), list(scheduler.drained)) == (["node02"], ["node02"])


def test_a_node_that_we_drained_moves(ctx: PhaseContext, scheduler: Scheduler) -> None:
    scheduler.nodes["node01"] = out_of_use("node01", "rackready: x", "root")
    assert run(ctx)["node01"].outcome is Outcome.PASS
    assert (list(sets(ctx)), list(scheduler.drained)) == (NODES, ["node02"])


def test_a_node_that_a_killed_run_brought_there_is_not_drained_again(ctx: PhaseContext, scheduler: Scheduler) -> None:
    paths = EnvPaths(ctx.root, ctx.env)
    with Ledger.open(paths.database) as ledger:
        assign(ledger, paths, "node01", NodeSet(LATER, FORMER))
        ledger.set_state("node01", NodeState.READY)
        ledger.set_state("node02", NodeState.READY)
    assert run(ctx)["node01"].message == "node01: ready with hgx-r580-later"
    assert list(scheduler.drained) == ["node02"], "node02 is ready with its former set"


def test_a_node_on_its_way_when_the_run_was_killed_goes_on(ctx: PhaseContext, scheduler: Scheduler) -> None:
    paths = EnvPaths(ctx.root, ctx.env)
    with Ledger.open(paths.database) as ledger:
        assign(ledger, paths, "node01", NodeSet(LATER, FORMER))
        ledger.set_state("node01", NodeState.INSTALLED)
    scheduler.nodes["node01"] = out_of_use("node01", "rackready: x", "root")
    assert run(ctx)["node01"].outcome is Outcome.PASS


def test_a_silent_scheduler_leaves_all_nodes_as_they_are(ctx: PhaseContext, scheduler: Scheduler) -> None:
    scheduler.silent = True
    found = run(ctx)
    assert {result.outcome for result in found.values()} == {Outcome.ERROR}
    assert all(result.data == {UNTOUCHED: True} for result in found.values())
    assert (sets(ctx), scheduler.drained) == ({}, {})


def test_a_node_that_the_scheduler_does_not_know_moves(ctx: PhaseContext, scheduler: Scheduler) -> None:
    del scheduler.nodes["node01"]
    assert run(ctx)["node01"].outcome is Outcome.PASS


def test_a_dry_run_records_nothing(ctx: PhaseContext, scheduler: Scheduler) -> None:
    dry = PhaseContext(**{**{name: getattr(ctx, name) for name in ctx.__slots__}, "check": True})
    run(dry)
    assert (sets(ctx), scheduler.drained) == ({}, {})
