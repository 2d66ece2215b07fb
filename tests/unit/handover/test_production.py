"""Nodes in production: who they are, by the scheduler's word, and how one is emptied before anything is done to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rackready.drivers import process
from rackready.drivers.process import Interrupted
from rackready.drivers.scheduler import registry
from rackready.drivers.scheduler.base import (
    Job,
    JobsUnknownError,
    SchedulerAdapter,
    SchedulerError,
    SchedulerNode,
    UnknownNodeError,
)
from rackready.handover import production
from rackready.handover.production import changes_words, in_production, take_out, wait_for_jobs
from rackready.handover.run import DRAIN, PARTNER_OF, RELEASE
from rackready.ledger.store import Ledger
from rackready.model.outcome import Outcome
from rackready.model.phase import DRAINED, UNTOUCHED, PhaseContext
from rackready.model.state import NodeState
from rackready.paths import EnvPaths
from rackready.stacks.machine import POWER_ON

ROOT = Path(__file__).resolve().parents[3]
TRAIN = Job("7", "root", "gpu", "train")
OTHER = Job("12_3", "ann", "gpu", "sweep")
IN_DRAIN = SchedulerNode("", "IDLE+DRAIN", usable=False, drained=True, down=False, reason="rackready: x", by="root")
DOWN = SchedulerNode(
    "", "DOWN+NOT_RESPONDING", usable=False, drained=False, down=True, reason="Not responding", by="slurm"
)
IDLE = SchedulerNode("", "IDLE", usable=True, drained=False, down=False)
THEIRS = SchedulerNode("", "MIXED+DRAIN", usable=False, drained=True, down=False, reason="bad PSU, maria", by="maria")


@dataclass
class Cluster(SchedulerAdapter):
    """A scheduler in memory. ``ends``: looks until a node's jobs are over; ``silent``: nodes it cannot report on."""

    nodes: dict[str, SchedulerNode] = field(default_factory=dict)
    running: dict[str, list[Job]] = field(default_factory=dict)
    ends: dict[str, int] = field(default_factory=dict)
    silent: set[str] = field(default_factory=set)
    looks: dict[str, int] = field(default_factory=dict)
    strange: set[str] = field(default_factory=set)
    hidden: set[str] = field(default_factory=set)

    def show(self, node: str) -> SchedulerNode:
        if node in self.strange:
            raise UnknownNodeError(f"{node}: unknown to Slurm.")
        if node in self.silent:
            raise SchedulerError(f"{node}: no answer.")
        return self.nodes[node]

    def jobs(self, node: str) -> list[Job]:
        if node in self.silent:
            raise SchedulerError(f"{node}: no answer.")
        if node in self.hidden:
            raise JobsUnknownError(f"{node}: squeue shows no job, scontrol says MIXED+DRAIN.")
        self.looks[node] = self.looks.get(node, 0) + 1
        over = node in self.ends and self.looks[node] > self.ends[node]
        return [] if over else self.running.get(node, [])

    def drain(self, node: str, reason: str) -> bool:
        now = self.show(node)
        if now.drained and not now.ours:
            return False
        self.nodes[node] = SchedulerNode(
            node, "MIXED+DRAIN", usable=False, drained=True, down=False, reason=reason, by="root"
        )
        return True

    def release(self, node: str) -> bool:
        raise AssertionError(node)

    def how_to_end(self, jobs: Sequence[Job]) -> str:
        return f"wait and run again, or end {' '.join(job.id for job in jobs)}."

    def close(self) -> None:
        """Nothing to give back."""


@dataclass
class Scene:
    ctx: PhaseContext
    ledger: Ledger
    cluster: Cluster

    def given(self, *nodes: str) -> None:
        """These nodes were handed over once."""
        for node in nodes:
            self.ledger.done(self.ledger.begin(node, RELEASE, "digest", {}).token, {})
            self.ledger.set_state(node, NodeState.READY)

    def told(self) -> list[tuple[str, str, str]]:
        return [(event.node, event.phase, event.text) for event in self.ledger.events("c1")]


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    (tmp_path / "inventories/sim").mkdir(parents=True)
    (tmp_path / "inventories/sim/site.yml").write_bytes((ROOT / "inventories/sim/site.yml").read_bytes())
    cluster = Cluster()
    monkeypatch.setitem(registry.ADAPTERS, "slurm", lambda _handover, _paths: cluster)
    monkeypatch.setattr(production, "_POLL_S", 0.01)
    return Scene(PhaseContext("sim", tmp_path, "c1"), Ledger.open(EnvPaths(tmp_path, "sim").database), cluster)


def wait_limit(scene: Scene, seconds: int) -> None:
    EnvPaths(scene.ctx.root, "sim").overlay.parent.mkdir(parents=True, exist_ok=True)
    EnvPaths(scene.ctx.root, "sim").overlay.write_text(f"handover: {{drain_wait_s: {seconds}}}\n", encoding="utf-8")


@pytest.mark.parametrize(
    ("state", "jobs", "given", "busy"),
    [
        (IDLE, [], True, True),
        (IDLE, [], False, True),
        (IN_DRAIN, [], True, False),
        (IN_DRAIN, [TRAIN], True, True),
        (IN_DRAIN, [TRAIN], False, True),
        (THEIRS, [], True, False),
        (DOWN, [], True, True),
        (DOWN, [], False, False),
    ],
)
def test_the_scheduler_says_who_is_in_production(
    scene: Scene, state: SchedulerNode, jobs: list[Job], *, given: bool, busy: bool
) -> None:
    scene.cluster.nodes["node01"], scene.cluster.running["node01"] = state, jobs
    scene.given(*(["node01"] if given else []))
    assert in_production(scene.ctx, ["node01"]) == (["node01"] if busy else [], {})
    assert scene.told() == []


def test_a_node_of_which_the_scheduler_cannot_say_it_is_left_alone_when_it_was_handed_over(scene: Scene) -> None:
    scene.cluster.silent = {"node01", "node02"}
    scene.given("node01")
    busy, unknown = in_production(scene.ctx, ["node01", "node02"])
    assert busy == []
    assert {
        node: (result.outcome, result.message, result.touched, result.data) for node, result in unknown.items()
    } == {
        "node01": (
            Outcome.ERROR,
            (
                "node01: jobs on it - Expected: known from the scheduler Actual: node01: no answer. "
                "Nothing was changed. Run again once it answers."
            ),
            False,
            {UNTOUCHED: True},
        )
    }
    assert scene.told() == [
        (
            "node02",
            "drain",
            "taken as not in production: rackready never handed it over, and the scheduler reports: node02: no answer.",
        )
    ]


EARLY = (NodeState.DECLARED, NodeState.REACHABLE, NodeState.INVENTORIED, NodeState.BASELINED, NodeState.PROVISIONED)


@pytest.mark.parametrize("made", [True, False])
def test_a_silent_scheduler_frees_only_what_nobody_else_can_have_running(scene: Scene, *, made: bool) -> None:
    nodes = [state.value for state in NodeState]
    scene.cluster.silent = set(nodes)
    for node in nodes:
        scene.ledger.set_state(node, NodeState(node))
        if made:
            scene.ledger.done(scene.ledger.begin(node, POWER_ON, "d", {}).token)
    busy, unknown = in_production(scene.ctx, nodes)
    assert (busy, set(unknown)) == ([], set() if made else set(nodes) - {state.value for state in EARLY})


def test_a_scheduler_that_is_down_frees_no_installed_node_of_a_site_that_others_built(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def down(_handover: object, _paths: object) -> SchedulerAdapter:
        raise SchedulerError("Slurm controller 192.0.2.5:22: SSH - Expected: x Actual: y.")

    monkeypatch.setitem(registry.ADAPTERS, "slurm", down)
    scene.ledger.set_state("node01", NodeState.INSTALLED)
    busy, unknown = in_production(scene.ctx, ["node01"])
    assert (busy, unknown["node01"].touched, unknown["node01"].message) == (
        [],
        False,
        (
            "node01: jobs on it - Expected: known from the scheduler "
            "Actual: Slurm controller 192.0.2.5:22: SSH: y (expected: x). "
            "Nothing was changed. Run again once it answers."
        ),
    )
    assert scene.told() == []


def test_a_node_that_the_scheduler_does_not_have_is_free(scene: Scene) -> None:
    scene.cluster.strange = {"node01", "node02"}
    scene.given("node01")
    scene.ledger.set_state("node02", NodeState.VALIDATED)
    assert in_production(scene.ctx, ["node01", "node02"]) == ([], {})
    assert scene.told() == [
        (node, "drain", f"taken as not in production: {node}: unknown to Slurm.") for node in ("node01", "node02")
    ]


def test_a_node_whose_jobs_are_not_shown_is_never_free(scene: Scene) -> None:
    scene.cluster.nodes["node01"], scene.cluster.hidden = IN_DRAIN, {"node01"}
    busy, unknown = in_production(scene.ctx, ["node01"])
    assert (busy, unknown["node01"].message) == (
        [],
        (
            "node01: jobs on it - Expected: known from the scheduler "
            "Actual: node01: squeue shows no job, scontrol says MIXED+DRAIN. "
            "Nothing was changed. Run again once it answers."
        ),
    )


def test_a_long_wait_asks_ever_more_seldom(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.cluster.running["node01"], scene.cluster.ends["node01"] = [TRAIN], 9
    waits: list[float] = []
    monkeypatch.setattr(process.STOP, "wait", waits.append)
    assert wait_for_jobs(scene.cluster, ["node01"], 3600, lambda _node, _text: None, 2.0) == {}
    assert [round(wait, 1) for wait in waits] == [2.0, 3.0, 4.5, 6.8, 10.1, 15.2, 22.8, 30.0, 30.0]


def test_ctrl_c_is_heard_between_two_nodes() -> None:
    class Stops(Cluster):
        def jobs(self, node: str) -> list[Job]:
            self.looks[node] = 1
            process.STOP.set()
            return []

    cluster = Stops()
    try:
        with pytest.raises(Interrupted):
            wait_for_jobs(cluster, ["node01", "node02"], 3600, lambda _node, _text: None, 2.0)
    finally:
        process.STOP.clear()
    assert cluster.looks == {"node01": 1}


def test_the_ledger_keeps_what_a_drain_is_for(scene: Scene) -> None:
    """By this the next run finds a partner that a killed one lent, whatever the reason in the scheduler says."""
    scene.cluster.nodes |= {"node01": IDLE, "node02": IDLE}
    take_out(scene.ctx, {"node01": "optimize is about to change: x"})
    take_out(scene.ctx, {"node02": "a reason"}, partner_of=["node01"])
    drains = [entry.observed for entry in scene.ledger.entries() if entry.operation == DRAIN]
    assert [entry[PARTNER_OF] for entry in drains] == [[], ["node01"]]


def test_a_job_is_waited_for_and_said_once(scene: Scene) -> None:
    scene.cluster.nodes["node01"], scene.cluster.running["node01"], scene.cluster.ends["node01"] = IDLE, [TRAIN], 3
    scene.given("node01")
    assert take_out(scene.ctx, {"node01": "optimize is about to change: x"}) == {}
    assert scene.told() == [
        ("node01", "drain", "drained: optimize is about to change: x"),
        ("node01", "drain", "drained; waits, at most 3600 s in all, for the end of 7 (root, gpu)"),
    ]
    assert scene.cluster.nodes["node01"].reason == "rackready: optimize is about to change: x"
    row = scene.ledger.state("node01")
    assert row is not None
    assert (row.state, row.reason) == (NodeState.CERTIFIED, "drained: optimize is about to change: x"), (
        "it is on offer no more"
    )


def test_a_job_that_stays_keeps_its_node_untouched(scene: Scene) -> None:
    wait_limit(scene, 0)
    scene.cluster.nodes = {"node01": IDLE, "node02": IDLE}
    scene.cluster.running = {"node01": [TRAIN, OTHER]}
    found = take_out(scene.ctx, {"node01": "x", "node02": "x"})
    assert list(found) == ["node01"]
    assert (found["node01"].outcome, found["node01"].touched, found["node01"].data) == (
        Outcome.ERROR,
        False,
        {DRAINED: True},
    )
    assert found["node01"].message == (
        "node01: jobs run on it - Expected: none within 0 s of draining it Actual: 7 (root, train), 12_3 (ann, sweep). "
        "Nothing was changed, and it stays drained so that it empties: wait and run again, or end 7 12_3."
    )
    assert scene.cluster.nodes["node01"].drained


def test_what_somebody_else_drained_keeps_its_reason(scene: Scene) -> None:
    wait_limit(scene, 0)
    scene.cluster.nodes["node01"] = THEIRS
    assert take_out(scene.ctx, {"node01": "x"}) == {}
    assert scene.cluster.nodes["node01"] == THEIRS


def test_a_node_that_cannot_be_drained_is_not_touched(scene: Scene) -> None:
    wait_limit(scene, 0)
    scene.cluster.silent = {"node01"}
    found = take_out(scene.ctx, {"node01": "x"})
    assert {node: (result.outcome, result.message, result.touched) for node, result in found.items()} == {
        "node01": (Outcome.ERROR, "node01: no answer.", False)
    }


def test_a_scheduler_that_falls_silent_is_asked_again() -> None:
    answers: list[Callable[[], list[Job]]] = [lambda: [TRAIN], _silent, list]

    class Restarting(Cluster):
        def jobs(self, node: str) -> list[Job]:
            del node
            return answers.pop(0)()

    told: list[str] = []
    assert wait_for_jobs(Restarting(), ["node01"], 60, lambda _node, text: told.append(text), poll_s=0.01) == {}
    assert told[-1] == "drained; waits, at most 60 s in all, for the end of node01: no answer."


def test_a_job_that_comes_back_for_ever_is_told_and_not_waited_for() -> None:
    class Tolerated(Cluster):
        def beside(self, node: str) -> list[Job]:
            return (
                [Job("kube-system/typha-b", "ReplicaSet/typha", "kube-system", "typha-b")] if node == "node01" else []
            )

    told: list[tuple[str, str]] = []
    assert wait_for_jobs(Tolerated(), ["node01", "node02"], 60, lambda *words: told.append(words), poll_s=0.01) == {}
    words = "drained; no longer waits for what the scheduler puts back on it: job kube-system/typha-b "
    assert told == [("node01", f"{words}(ReplicaSet/typha, typha-b)")]


def test_jobs_that_waiting_does_not_end_are_told_at_once_with_what_does() -> None:
    answers = [[TRAIN], []]

    class Dead(Cluster):
        def jobs(self, node: str) -> list[Job]:
            del node
            return answers.pop(0)

        def stuck(self, jobs: Sequence[Job]) -> str:
            return "Power it on." if jobs == [TRAIN] else ""

    told: list[str] = []
    assert wait_for_jobs(Dead(), ["node01"], 60, lambda _node, text: told.append(text), poll_s=0.01) == {}
    assert told[0].endswith("). Power it on.")


def _silent() -> list[Job]:
    raise SchedulerError("node01: no answer.")


def test_ctrl_c_ends_the_wait_at_once(scene: Scene) -> None:
    scene.cluster.running["node01"] = [TRAIN]

    def stop(_node: str, _text: str) -> None:
        process.STOP.set()

    try:
        with pytest.raises(Interrupted):
            wait_for_jobs(scene.cluster, ["node01"], 3600, stop, poll_s=3600)
    finally:
        process.STOP.clear()


def test_nothing_to_take_out_asks_nobody(scene: Scene) -> None:
    scene.cluster.silent = {"node01"}
    assert take_out(scene.ctx, {}) == {}


def test_reason_names_three_changes_and_counts_the_rest() -> None:
    assert changes_words("install", ["a", "b"]) == "install is about to change: a; b"
    assert changes_words("install", ["a", "b", "c", "d", "e"]) == "install is about to change: a; b; c and 2 more"
