"""A site with several schedulers: each node is drained in its own, and in the one that it may still be in."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from rackready.drivers.scheduler.base import SchedulerAdapter, SchedulerNode, UnknownNodeError
from rackready.drivers.scheduler.places import PART, PLACE, RELEASE
from rackready.model.site import Site
from rackready.model.state import NodeState
from rackready.model.watch import Watch
from rackready.paths import EnvPaths
from rackready.watch.drain_faulty import Actor
from rackready.watch.store import Step
from tests.unit.design.several_sites import BOTH, KUBERNETES, SLURM, part, several
from tests.unit.watch.world import FakeScheduler, World, down


class Partial(FakeScheduler):
    """A scheduler that knows some nodes. ``away``: it does not answer."""

    def __init__(self, *known: str) -> None:
        super().__init__()
        self.known, self.away = known, False

    def show(self, node: str) -> SchedulerNode:
        if node not in self.known:
            raise UnknownNodeError(node, "unknown here", expected="a line", actual="none")
        return super().show(node)


class Two:
    """A site with Slurm and Kubernetes in production."""

    def __init__(self, root: Path) -> None:
        self.world = World(root)
        self.world.site = several(*BOTH).model_copy(update={"watch": Watch(storm_share=1.0)})
        self.world.ready()
        self.slurm, self.kube = Partial("node01", "node02"), Partial("node03", "node04")

    def connect(self, site: Site, _paths: EnvPaths) -> AbstractContextManager[SchedulerAdapter]:
        found = {"slurm": self.slurm, "kubernetes": self.kube}[site.handover.kind]
        if found.away:
            raise down()
        return found

    def actor(self) -> Actor:
        world = self.world
        return Actor(world.site, world.paths, world.store, world.tell, self.connect, lambda: world.now)


@pytest.fixture
def two(tmp_path: Path) -> Two:
    return Two(tmp_path)


def test_each_node_is_drained_in_its_own_scheduler(two: Two) -> None:
    two.world.see("node01")
    two.world.see("node04")
    two.actor().act()
    assert [node for node, _ in two.slurm.drains] == ["node01"]
    assert [node for node, _ in two.kube.drains] == ["node04"]
    assert set(two.world.steps().values()) == {"drained"}


def test_a_scheduler_that_is_away_delays_only_its_own_nodes_and_is_told_once(two: Two) -> None:
    two.slurm.away = True
    two.world.see("node01")
    two.world.see("node04")
    actor = two.actor()
    for _ in range(3):
        actor.act()
    assert two.world.steps() == {"node01 gpu4": "draining", "node04 gpu4": "drained"}
    text = "nodes wait to be drained (node01): slurmctl: `scontrol`: none (expected: an answer). "
    assert [event for event in two.world.events if event[0] == "failed"] == [
        ("failed", "", f"{text}Check that slurmctld runs.")
    ]
    two.slurm.away = False
    actor.act()
    assert set(two.world.steps().values()) == {"drained"}


def test_a_node_that_moved_is_drained_where_it_was_handed_over_too(two: Two) -> None:
    ledger = two.world.ledger
    ledger.done(ledger.begin("node03", RELEASE, "d", {PART: "slurm", PLACE: "slurm 192.0.2.5:22"}).token)
    two.slurm.known = ("node01", "node02", "node03")
    two.world.see("node03")
    two.slurm.away = True
    actor = two.actor()
    actor.act()
    assert two.world.steps() == {"node03 gpu4": "draining"}, "jobs may still start in the other one"
    two.slurm.away = False
    actor.act()
    assert [node for node, _ in two.slurm.drains] == ["node03"]
    assert two.world.steps() == {"node03 gpu4": "drained"}


def test_a_moved_node_that_the_former_scheduler_no_longer_knows_is_drained(two: Two) -> None:
    ledger = two.world.ledger
    ledger.done(ledger.begin("node03", RELEASE, "d", {PART: "slurm", PLACE: "slurm 192.0.2.5:22"}).token)
    two.world.see("node03")
    two.actor().act()
    (fault,) = two.world.store.faults()
    assert (fault.step, fault.drained_at is None) == ("drained", False)
    row = ledger.state("node03")
    assert row is not None
    assert row.state is NodeState.QUARANTINED


def test_a_node_of_no_part_stops_no_other_drain(two: Two) -> None:
    two.world.site = several(part("node[01-02]", SLURM), part("node[03-04]", KUBERNETES)).model_copy()
    two.world.ready("node99")
    two.world.see("node99")
    two.world.see("node01")
    two.actor().act()
    assert [node for node, _ in two.slurm.drains] == ["node01"]
    assert "node99: its scheduler: in none (expected: in one of handover.parts)" in str(two.world.events)


def _drained_long_ago(two: Two, *nodes: str) -> None:
    """Drains that a command kept from being recorded, and lifted."""
    two.world.ready(*nodes)
    for number, node in enumerate(nodes, 1):
        two.world.see(node)
        two.world.store.put(number, step=Step.DRAINED.value, drained_at=two.world.now)
    two.world.now += 60


def test_a_node_that_a_scheduler_no_longer_knows_keeps_no_other_from_its_second_drain(two: Two) -> None:
    two.slurm.known = ("node02",)
    _drained_long_ago(two, "node01", "node02")
    two.actor().act()
    assert [node for node, _ in two.slurm.drains] == ["node02"]
    assert ("drained", "node02", "node02: was released meanwhile: drained again") in two.world.events


def test_a_drained_node_that_left_the_site_does_not_end_the_watch(two: Two) -> None:
    _drained_long_ago(two, "node99", "node02")
    two.actor().act()
    assert [node for node, _ in two.slurm.drains] == ["node02"]
    row = two.world.ledger.state("node99")
    assert row is not None
    assert row.state is NodeState.QUARANTINED
