"""Draining: once, with the finding as reason, within the storm limit, never against others, and again after a kill."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest

from rackready.drivers.scheduler.base import UnknownNodeError
from rackready.drivers.scheduler.places import drained_by_us
from rackready.ledger.lock import ControllerLock
from rackready.model.problems import RackreadyError
from rackready.model.state import NodeState
from rackready.watch import storm
from rackready.watch.store import Seen, Step
from tests.unit.watch.world import World, down

REASON = "rackready: GpuXidRestartBm: node03 gpu4: Xid 79"


def test_a_fault_drains_its_node_with_the_finding_as_reason(world: World) -> None:
    world.see("node03")
    world.actor().act()
    assert world.scheduler.drains == [("node03", REASON)]
    row = world.ledger.state("node03")
    assert row is not None
    assert (row.state, row.reason) == (NodeState.QUARANTINED, "GpuXidRestartBm: node03 gpu4: Xid 79")
    (fault,) = world.store.faults()
    assert (fault.step, fault.quarantined, fault.detail["jobs"]) == (
        "drained",
        True,
        ["job 73 (alice, train) left to its end"],
    )
    assert world.kinds() == ["drained", "job"]
    assert drained_by_us(world.ledger.entries("node03"), "Slurm"), "handover must know whose drain it ends"


def test_a_drain_of_somebody_else_is_not_recorded_as_ours(world: World) -> None:
    world.scheduler.reasons["node03"] = "bob: disk swap"
    world.see("node03")
    world.actor().act()
    assert not drained_by_us(world.ledger.entries("node03"), "Slurm")


def test_a_fault_that_is_seen_again_is_counted_and_drains_once(world: World) -> None:
    for _ in range(3):
        world.see("node03")
        world.actor().act()
    assert len(world.scheduler.drains) == 1
    assert [fault.count for fault in world.store.faults()] == [3]


def test_what_is_recorded_or_ticketed_drains_nothing(world: World) -> None:
    world.see("node01", "GpuXidRestartApp", act="record")
    world.see("node02", "GpuRowRemapPending", act="ticket")
    world.actor().act()
    assert world.scheduler.drains == []
    assert world.steps() == {"node01 gpu4": "recorded", "node02 gpu4": "drained"}


def test_two_findings_on_one_part_are_one_drain_and_one_ticket(world: World) -> None:
    world.see("node03")
    world.see("node03", "GpuXid154")
    world.see("node03", "GpuEccUncorrected", "gpu1")
    world.actor().act()
    assert world.scheduler.drains == [("node03", f"{REASON} (and 1 more)")]
    assert [(one.condition, one.step) for one in world.store.faults()] == [
        ("GpuXidRestartBm", "drained"),
        ("GpuXid154", "recorded"),
        ("GpuEccUncorrected", "drained"),
    ]


def test_a_drain_of_somebody_else_stays_and_the_fault_gets_its_ticket(world: World) -> None:
    world.scheduler.reasons["node03"] = "bob: disk swap"
    world.see("node03")
    world.actor().act()
    assert world.scheduler.drains == []
    (fault,) = world.store.faults()
    assert (fault.step, fault.why, fault.drained_at) == ("drained", "drained by root: bob: disk swap", None)
    row = world.ledger.state("node03")
    assert row is not None
    assert row.state is NodeState.READY, "what others drained is not touched"


def test_a_node_that_left_production_is_left_alone(world: World) -> None:
    world.see("node03")
    world.ledger.set_state("node03", NodeState.REACHABLE, "repaired: GPU swapped")
    world.actor().act()
    assert world.scheduler.drains == []
    assert world.events == [
        (
            "overtaken",
            "node03",
            "GpuXidRestartBm: node03 gpu4: Xid 79: not drained, the node is reachable, not in production",
        )
    ]


def test_a_fault_from_before_the_node_came_into_production_is_left(world: World) -> None:
    world.now -= 100
    world.see("node03")
    world.now += 100
    world.actor().act()
    assert world.scheduler.drains == []
    assert world.steps() == {"node03 gpu4": "overtaken"}


def test_a_fault_that_was_overtaken_while_it_was_drained_quarantines_nothing(world: World) -> None:
    world.see("node03")
    world.store.put(1, step=Step.DRAINING.value, drained_at=world.now + 50, first_at=world.now - 100)
    world.actor().act()
    row = world.ledger.state("node03")
    assert row is not None
    assert (row.state, world.steps()) == (NodeState.READY, {"node03 gpu4": "overtaken"})


def test_a_fault_that_comes_again_after_it_was_overtaken_drains(world: World) -> None:
    world.see("node03")
    world.ledger.set_state("node03", NodeState.CERTIFIED)
    world.actor().act()
    world.ready("node03")
    world.see("node03")
    world.actor().act()
    assert [node for node, _ in world.scheduler.drains] == ["node03"]


def _controller(root: Path, held: object, over: object) -> None:
    world = World(root)
    with ControllerLock(world.paths.lock, "rackready deploy --env sim", world.paths.database):
        world.ledger.put_campaign(
            "20260101-1",
            env="sim",
            kind="deploy",
            nodes=["node03"],
            site_digest="",
            abi="",
            status="running",
        )
        held.set()  # type: ignore[attr-defined]
        over.wait(120)  # type: ignore[attr-defined]


def test_nodes_of_a_running_campaign_wait_and_others_are_drained_beside_it(tmp_path: Path) -> None:
    world = World(tmp_path, {"storm_share": 1.0})
    world.ready()
    spawn = multiprocessing.get_context("spawn")
    held, over = spawn.Event(), spawn.Event()
    child = spawn.Process(target=_controller, args=(world.root, held, over))
    child.start()
    try:
        assert held.wait(120)
        world.see("node03")
        world.see("node04")
        actor = world.actor()
        actor.act()
        assert [node for node, _ in world.scheduler.drains] == ["node04"]
        row = world.ledger.state("node04")
        assert row is not None
        assert row.state is NodeState.READY, "recorded when the campaign has ended"
        assert ("waits", "node03") in [event[:2] for event in world.events]
        assert "campaign 20260101-1 works on the node" in str(world.events)
    finally:
        over.set()
        child.join()
    actor.act()
    states = {row.name: row.state for row in world.ledger.states()}
    assert [node for node, _ in world.scheduler.drains] == ["node04", "node03"]
    assert {states["node03"], states["node04"]} == {NodeState.QUARANTINED}


def test_a_scheduler_that_does_not_answer_is_told_once_and_asked_again(world: World) -> None:
    world.scheduler.fails = [down(), down()]
    world.see("node03")
    actor = world.actor()
    actor.act()
    actor.act()
    assert world.steps() == {"node03 gpu4": "draining"}
    assert world.events == [
        (
            "failed",
            "node03",
            (
                "node03: could not be drained: slurmctl: `scontrol`: none (expected: an answer). "
                "Check that slurmctld runs. It is tried again."
            ),
        )
    ]
    actor.act()
    assert world.steps() == {"node03 gpu4": "drained"}


def test_a_node_that_the_scheduler_does_not_know_still_gets_its_ticket(world: World) -> None:
    world.scheduler.fails = [UnknownNodeError("node03", "unknown to Slurm", expected="a line", actual="none")]
    world.see("node03")
    world.actor().act()
    assert world.steps() == {"node03 gpu4": "drained"}


def test_jobs_are_requeued_where_the_site_wants_it_and_they_are_lost(tmp_path: Path) -> None:
    world = World(tmp_path, {"requeue": True, "storm_share": 1.0})
    world.ready()
    world.see("node03")
    world.see("node02", "GpuSramThreshold")
    world.actor().act()
    assert world.scheduler.requeued == ["node03"], "an SRAM threshold ended no job"
    assert ("job", "node03", "node03: job 73 (alice, train) requeued") in world.events


# kills -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [Step.SEEN, Step.DRAINING])
def test_a_watch_that_was_killed_before_its_drain_drains_once(world: World, step: Step) -> None:
    world.see("node03")
    if step is Step.DRAINING:
        world.store.put(1, step=step.value, drained_at=world.now)
    world.actor().act()
    world.actor().act()
    assert [node for node, _ in world.scheduler.drains] == ["node03"]


def test_a_watch_that_was_killed_between_drain_and_record_keeps_reason_and_storm_count(world: World) -> None:
    world.see("node03")
    world.store.put(1, step=Step.DRAINING.value, drained_at=world.now)
    world.scheduler.reasons["node03"] = REASON
    world.actor().act()
    assert world.scheduler.reasons["node03"] == REASON
    assert world.store.drained_since(world.now - 1) == {"node03"}


# storms ----------------------------------------------------------------------------------------------------------


def test_a_storm_drains_nothing_beyond_the_limit_and_survives_a_restart(world: World) -> None:
    for node in ("node02", "node03", "node04"):
        world.see(node)
    world.actor().act()
    assert [node for node, _ in world.scheduler.drains] == ["node02"], "10 % of 4 nodes, at least one"
    assert world.steps() == {"node02 gpu4": "drained", "node03 gpu4": "held", "node04 gpu4": "held"}
    (text,) = [text for kind, _, text in world.events if kind == "storm"]
    assert text == (
        "storm: faults on more nodes than the limit - Expected: at most 1 of 4 nodes in 3600 s Actual: 2 more. Nothing "
        "more is drained. Find the common cause, then run `rackready watch clear-storm --reason ...`."
    )
    world.now += 7200
    world.see("node01")
    world.actor().act()
    assert len(world.scheduler.drains) == 1, "the window is over, the storm is not: a person ends it"


def test_a_cleared_storm_drains_what_was_held_up_to_the_limit(world: World) -> None:
    for node in ("node02", "node03", "node04"):
        world.see(node)
    world.actor().act()
    world.now += 1
    assert storm.clear(world.store, "one bad power feed", world.now) == ["node03", "node04"]
    world.actor().act()
    assert [node for node, _ in world.scheduler.drains] == ["node02", "node03"]
    assert world.store.mark(storm.STORM)["active"], "the limit counts anew, and the third node is beyond it"


def test_the_window_slides(world: World) -> None:
    world.see("node02")
    world.actor().act()
    world.now += 3700
    world.see("node03")
    world.actor().act()
    assert [node for node, _ in world.scheduler.drains] == ["node02", "node03"]


def test_a_storm_of_40_percent_drains_a_tenth(tmp_path: Path) -> None:
    world = World(tmp_path)
    names = [f"n{number:03d}" for number in range(100)]
    world.ready(*names)
    world.store.record([Seen(node, "RailDown", "mlx5_0", "down", "drain", at=world.now) for node in names[:40]], {})
    actor = world.actor()
    for _ in range(3):
        actor.act()
    assert len(world.scheduler.drains) == 10
    assert sum(one.step == "held" for one in world.store.faults()) == 30


def test_clearing_no_storm_is_refused(world: World) -> None:
    with pytest.raises(RackreadyError) as refused:
        storm.clear(world.store, "x", world.now)
    assert str(refused.value) == (
        "storm - Expected: one that is on Actual: none. `rackready watch status` shows what is held."
    )
