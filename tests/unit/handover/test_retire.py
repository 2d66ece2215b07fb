"""Retiring a node: shown before it is done, refused while jobs run, repeated safely after a kill; exact words."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from rackready.drivers.scheduler.base import (
    Job,
    JobsUnknownError,
    SchedulerAdapter,
    SchedulerError,
    SchedulerNode,
    UnknownNodeError,
    reason_text,
)
from rackready.handover import retire, run
from rackready.handover.retire import RetireRefusedError, look, steps
from rackready.ledger.store import Ledger
from rackready.model.outcome import Outcome
from rackready.model.phase import NodeResult, PhaseContext
from rackready.model.state import NodeState
from rackready.paths import EnvPaths
from rackready.stacks import provision as stacks
from rackready.stacks.machine import POWER_ON

ROOT = Path(__file__).resolve().parents[3]
JOB = Job("4711", "maria", "gpu", "train")


class Scheduler(SchedulerAdapter):
    """One node in a cluster."""

    def __init__(self) -> None:
        self.reason = ""
        self.running: list[Job] = []
        self.trouble = ""
        self.kind: type[SchedulerError] = SchedulerError
        self.starts: list[Job] = []
        """Jobs that start in the moment before the node is drained."""

    def show(self, node: str) -> SchedulerNode:
        if self.trouble:
            raise self.kind(self.trouble)
        return SchedulerNode(
            node,
            "IDLE+DRAIN" if self.reason else "IDLE",
            not self.reason,
            bool(self.reason),
            down=False,
            reason=self.reason,
        )

    def drain(self, node: str, reason: str) -> bool:
        if self.show(node).drained and not self.show(node).ours:
            return False
        self.reason = reason_text(reason)
        self.running = self.running + self.starts
        return True

    def release(self, node: str) -> bool:
        raise AssertionError(node)

    def jobs(self, node: str) -> list[Job]:
        self.show(node)
        return self.running

    def close(self) -> None:
        """Nothing to give back."""


class World:
    """A site, its ledger, a cluster and an engine that writes down what it was asked."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (root / "inventories/t").mkdir(parents=True)
        raw = yaml.safe_load((ROOT / "inventories/sim/site.yml").read_text(encoding="utf-8"))
        (root / "inventories/t/site.yml").write_text(yaml.safe_dump(raw), encoding="utf-8")
        self.context = PhaseContext("t", root, "")
        self.ledger = Ledger.open(EnvPaths(root, "t").database)
        self.scheduler = Scheduler()
        self.destroyed: list[str] = []
        self.engine = NodeResult(Outcome.PASS, "powered off", changed=True)
        self.dies = False
        for module in (run, retire):
            monkeypatch.setattr(module, "adapter_for", lambda _site, _paths: self.scheduler)
        monkeypatch.setattr(retire, "reader_for", lambda _site, _paths: self.scheduler)
        monkeypatch.setattr(stacks, "run_destroy", self._destroy)

    def _destroy(self, _ctx: PhaseContext, nodes: list[str]) -> dict[str, NodeResult]:
        if self.dies:
            self.dies = False
            raise SystemExit
        self.destroyed += nodes
        return dict.fromkeys(nodes, self.engine)

    def made(self, node: str = "node01", state: NodeState = NodeState.READY) -> None:
        self.ledger.done(self.ledger.begin(node, POWER_ON, "d", {}).token)
        self.ledger.done(self.ledger.begin(node, "scheduler-release", "d", {}).token)
        self.ledger.set_state(node, state)

    def retire(self, reason: str = "sold") -> NodeResult:
        return retire.retire(self.context, "node01", reason)

    def state(self) -> tuple[NodeState, str]:
        row = self.ledger.state("node01")
        assert row is not None
        return row.state, row.reason


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def test_jobs_that_waiting_does_not_end_are_refused_with_what_does(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.made()
    world.scheduler.running = [JOB]
    monkeypatch.setattr(world.scheduler, "stuck", lambda jobs: "power it on." if jobs == [JOB] else "", raising=False)
    with pytest.raises(RetireRefusedError) as refused:
        world.retire()
    assert str(refused.value).endswith("It is drained, so that it empties: power it on.")


def test_a_pod_that_comes_back_after_its_eviction_keeps_no_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, monkeypatch)
    world.made()
    evicted = Job("kube-system/typha-a", "ReplicaSet/typha", "kube-system", "typha-a", "is ending")
    monkeypatch.setattr(Scheduler, "vacate", lambda _self, nodes: iter([(nodes[0], [evicted])]))
    assert world.retire().outcome is Outcome.PASS
    assert world.destroyed == ["node01"]


def test_what_would_happen_is_shown_and_nothing_is_touched(world: World) -> None:
    world.made()
    assert steps(look(world.context, "node01"), "sold") == [
        "node01: ready",
        "would be drained in the scheduler: rackready: retired: sold",
        "would be powered off, and its resources removed from the rack's stack",
        "would be retired: sold",
    ]
    assert (world.scheduler.reason, world.destroyed, world.state()[0]) == ("", [], NodeState.READY)


def test_what_would_be_refused_is_shown(world: World) -> None:
    world.made()
    world.scheduler.running = [JOB]
    assert steps(look(world.context, "node01"), "sold")[-1] == (
        "would be refused: node01: jobs run on it - Expected: none Actual: 4711 (maria, train). "
        "It would be drained, so that it empties: wait for the jobs to end, then run again; "
        "see docs/runbooks/retire.md."
    )
    assert world.scheduler.reason == "", "a look drains nothing"


def test_a_drained_node_is_reported_as_drained(world: World) -> None:
    world.made()
    world.scheduler.running, world.scheduler.reason = [JOB], "bad PSU, maria"
    assert steps(look(world.context, "node01"), "sold")[-2:] == [
        "is drained in the scheduler already: bad PSU, maria",
        (
            "would be refused: node01: jobs run on it - Expected: none Actual: 4711 (maria, train). "
            "It is drained, so that it empties: wait for the jobs to end, then run again; see docs/runbooks/retire.md."
        ),
    ]


def test_a_machine_that_was_on_before_us_is_said_to_stay(world: World) -> None:
    world.ledger.set_state("node01", NodeState.QUARANTINED, "gpu2: NVLink down")
    world.scheduler.reason = "bad PSU, maria"
    assert steps(look(world.context, "node01"), "sold") == [
        "node01: quarantined (gpu2: NVLink down)",
        "is drained in the scheduler already: bad PSU, maria",
        "was not powered on by rackready: its power stays as it is",
        "would be retired: sold",
    ]


def test_a_repair_does_not_make_the_machine_somebody_elses(world: World) -> None:
    """The engine knows that we powered it on and powers it off; the preview shows that."""
    world.made(state=NodeState.REACHABLE)
    world.ledger.raise_epoch("node01", "repaired: GPU 2 replaced")
    assert "would be powered off, and its resources removed from the rack's stack" in steps(
        look(world.context, "node01"), "sold"
    )


def test_a_ready_node_is_drained_emptied_powered_off_and_recorded(world: World) -> None:
    world.made()
    result = world.retire()
    assert (result.outcome, result.changed, result.message) == (Outcome.PASS, True, "node01: retired: powered off")
    assert world.scheduler.reason == "rackready: retired: sold"
    assert world.destroyed == ["node01"]
    assert world.state() == (NodeState.RETIRED, "sold")
    assert world.ledger.last_change("node01").at > 0.0, "what was measured before counts no longer"


def test_a_second_time_nothing_happens(world: World) -> None:
    world.made()
    world.retire()
    again = world.retire("other words")
    assert (again.changed, again.message) == (False, "node01: is retired already (sold)")
    assert world.destroyed == ["node01"]
    assert steps(look(world.context, "node01"), "x") == ["node01: is retired already (sold)"]


def test_jobs_are_never_ended_the_node_is_drained_and_refused(world: World) -> None:
    world.made()
    world.scheduler.running = [JOB]
    with pytest.raises(RetireRefusedError) as caught:
        world.retire()
    assert str(caught.value) == (
        "node01: jobs run on it - Expected: none Actual: 4711 (maria, train). "
        "It is drained, so that it empties: wait for the jobs to end, then run again; see docs/runbooks/retire.md."
    )
    assert world.scheduler.reason == "rackready: retired: sold"
    assert (world.destroyed, world.state()) == ([], (NodeState.CERTIFIED, "drained: retired: sold"))
    world.scheduler.running = []
    assert world.retire().outcome is Outcome.PASS
    assert world.state() == (NodeState.RETIRED, "sold")


def test_a_job_that_starts_right_before_the_drain_is_seen(world: World) -> None:
    world.made()
    world.scheduler.starts = [JOB]
    with pytest.raises(RetireRefusedError, match=r"jobs run on it - Expected: none Actual: 4711 \(maria, train\)\."):
        world.retire()
    assert world.destroyed == []


def test_many_jobs_are_counted(world: World) -> None:
    world.made()
    world.scheduler.running = [Job(str(number), "maria", "gpu", "train") for number in range(5)]
    with pytest.raises(
        RetireRefusedError,
        match=r"Actual: 0 \(maria, train\), 1 \(maria, train\), 2 \(maria, train\) and 2 more\. It is drained",
    ):
        world.retire()


def test_a_scheduler_that_does_not_answer_stops_it_for_a_node_that_was_handed_over(world: World) -> None:
    world.made()
    world.scheduler.trouble = "Slurm controller 192.0.2.5:22: SSH - Expected: x Actual: y."
    with pytest.raises(RetireRefusedError) as caught:
        world.retire()
    assert str(caught.value) == (
        "node01: jobs on it - Expected: known from the scheduler "
        "Actual: Slurm controller 192.0.2.5:22: SSH: y (expected: x). "
        "Nothing was changed. Run again once it answers."
    )
    assert (world.destroyed, world.state()[0]) == ([], NodeState.READY)


def test_a_node_that_no_scheduler_ever_had_is_retired_and_the_trouble_said(world: World) -> None:
    world.ledger.set_state("node01", NodeState.PROVISIONED)
    world.scheduler.trouble = "node01: unknown to Slurm."
    assert world.retire().message == "node01: retired: powered off; node01: unknown to Slurm."


@pytest.mark.parametrize("state", [NodeState.INSTALLED, NodeState.VALIDATED, NodeState.QUARANTINED])
def test_a_node_that_somebody_else_may_have_running_is_not_retired_while_the_scheduler_is_silent(
    world: World, state: NodeState
) -> None:
    world.ledger.set_state("node01", state)
    world.scheduler.trouble = "no answer."
    with pytest.raises(RetireRefusedError) as caught:
        world.retire()
    assert str(caught.value) == (
        "node01: jobs on it - Expected: known from the scheduler Actual: no answer. "
        "Nothing was changed. Run again once it answers."
    )
    assert (world.destroyed, world.state()[0]) == ([], state)


def test_a_node_that_was_taken_out_of_the_scheduler_first_is_retired(world: World) -> None:
    world.made()
    world.scheduler.trouble, world.scheduler.kind = "node01: unknown to Slurm.", UnknownNodeError
    assert world.retire().message == "node01: retired: powered off; node01: unknown to Slurm."


def test_a_node_whose_jobs_are_not_shown_is_not_retired(world: World) -> None:
    world.ledger.set_state("node01", NodeState.PROVISIONED)
    world.scheduler.trouble, world.scheduler.kind = "squeue shows no job, scontrol says MIXED.", JobsUnknownError
    with pytest.raises(
        RetireRefusedError,
        match=r"Actual: squeue shows no job, scontrol says MIXED\. Nothing was changed\. Run again once it answers\.",
    ):
        world.retire()


def test_a_machine_that_cannot_be_given_up_is_not_retired(world: World) -> None:
    world.made()
    world.engine = NodeResult(Outcome.ERROR, "node01 BMC 192.0.2.111: no answer")
    assert world.retire().message == "node01 BMC 192.0.2.111: no answer"
    assert world.state()[0] is NodeState.CERTIFIED
    world.engine = NodeResult(Outcome.PASS, "powered off", changed=True)
    assert world.retire().outcome is Outcome.PASS


def test_killed_while_powering_off_goes_on(world: World) -> None:
    world.made()
    world.dies = True
    with pytest.raises(SystemExit):
        world.retire()
    assert world.state() == (NodeState.CERTIFIED, "drained: retired: sold")
    assert world.retire().message == "node01: retired: powered off"
    assert world.state() == (NodeState.RETIRED, "sold")


def test_an_unknown_node_is_refused(world: World) -> None:
    with pytest.raises(RetireRefusedError) as caught:
        look(world.context, "node9")
    assert str(caught.value) == (
        "node9 - Expected: one of node01, node02, node03, node04 Actual: no such node. Correct the name: "
        "`rackready status` lists the nodes."
    )
