"""Gates of several nodes on a site with several schedulers: no program runs on nodes of two of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rackready.design.handover_of import handover_site
from rackready.drivers.remote import UnreachableError
from rackready.drivers.scheduler.kube_job import KubeJobs
from rackready.gates.base import REGISTRY, Command, Gate, GateFacts, Outputs, Run
from rackready.gates.engine import launch
from rackready.gates.engine.registry import all_gates
from rackready.gates.engine.site_check import launchers_of, require_gates
from rackready.gates.engine.site_facts import site_facts
from rackready.model.kubernetes import KubernetesHandover
from rackready.model.outcome import Outcome, Verdict
from rackready.model.problems import SiteInvalidError
from rackready.model.profile import GateSetEntry
from rackready.model.site import Site
from tests.gates.fake import answered
from tests.gates.stage import fingerprint_of, stage_of
from tests.unit.design.several_sites import BOTH, KUBERNETES, SLURM, part, several

GROUP = "group/trial/performance/apart"
NODES = ["node01", "node02", "node03", "node04"]
planned: list[tuple[tuple[str, ...], str, str]] = []


class Apart(Gate):
    """All nodes together."""

    covers = frozenset({"node"})
    min_nodes = 2

    def plan(self, facts: GateFacts, nodes: Sequence[str]) -> list[Run]:
        planned.append((tuple(nodes), facts.launcher, facts.cluster.context if facts.cluster else ""))
        return [Run("all", "all", tuple(nodes), (Command("one", nodes[0], ("measure",), 5),), launch_from=nodes[0])]

    def evaluate(self, facts: GateFacts, run: Run, outputs: Outputs) -> Verdict:
        del facts, outputs
        return Verdict(outcome=Outcome.PASS, measured=list(run.nodes))


@pytest.fixture(autouse=True)
def trial() -> Iterator[None]:
    planned.clear()
    before = dict(all_gates())
    type("TrialApart", (Apart,), {"id": GROUP, "__doc__": "All nodes together."})
    yield
    REGISTRY.clear()
    REGISTRY.update(before)


def measure(tmp_path: Path, site: Site, nodes: Sequence[str], partners: Sequence[str] = ()) -> dict[str, str]:
    replies = {"Print a node's identity": fingerprint_of, "measure": lambda *_: answered("1")}
    stage = stage_of(tmp_path, replies, [*nodes, *partners], site)
    found = stage.run(list(nodes), list(partners), [GateSetEntry(id=GROUP)], full_set=False)
    return {node: f"{result.outcome.value} {result.message}" for node, result in found.items()}


def test_nodes_are_measured_with_those_of_their_scheduler_by_its_launcher(tmp_path: Path) -> None:
    site = several(part("node[01,04]", SLURM, launcher="srun"), part("node[02-03]", KUBERNETES, launcher="mpijob"))
    found = measure(tmp_path, site, NODES)
    assert {text.split()[0] for text in found.values()} == {"pass"}
    assert planned == [(("node01", "node04"), "srun", ""), (("node02", "node03"), "mpijob", "gpu")]


def test_partners_are_those_of_the_same_scheduler(tmp_path: Path) -> None:
    measure(tmp_path, several(*BOTH), ["node01"], ["node03", "node02"])
    assert [nodes for nodes, _, _ in planned] == [("node01", "node02")]


def test_a_node_that_is_alone_in_its_part_is_not_silently_left_out(tmp_path: Path) -> None:
    replies = {"Print a node's identity": fingerprint_of, "measure": lambda *_: answered("1")}
    stage = stage_of(tmp_path, replies, NODES[:3], several(*BOTH))
    found = stage.run(NODES[:3], [], [GateSetEntry(id=GROUP)], full_set=False)
    assert [result.outcome for result in found.values()] == [Outcome.PASS, Outcome.PASS, Outcome.ERROR]
    (verdict,) = stage.state.verdicts["node03"][GROUP]
    assert (verdict.outcome, str(verdict.findings[0])) == (
        Outcome.NOT_RUN,
        (
            f"node03: {GROUP} was not run - Expected: a measurement Actual: it needs 2 nodes, 1 of 1 can take part; "
            "nodes of part kubernetes are measured with nodes of that part only. Deploy it together with more nodes, "
            "or declare the skip with its reason in site.yml (gates.skip)."
        ),
    )


def test_a_part_with_too_few_nodes_for_a_gate_is_refused_before_anything_runs() -> None:
    lone = (part("node[01-03]", SLURM), part("node04", KUBERNETES))
    with pytest.raises(SiteInvalidError) as caught:
        require_gates(several(*lone), "site.yml")
    told = [str(problem) for problem in caught.value.problems]
    assert (
        "handover.parts[1].nodes: gate pair/fabric/performance/ib-write-bw measures nodes of one scheduler together - "
        "Expected: at least 2 nodes in part kubernetes, or a declared skip Actual: 1: node04. Give the part more "
        "nodes, or skip the gate on these with the reason (gates.skip)."
    ) in told
    assert all(text.startswith("handover.parts[1].nodes: gate ") for text in told)
    skips = [
        {"gate": text.split()[2], "nodes": ["node04"], "reason": "the only node of Kubernetes here"} for text in told
    ]
    require_gates(several(*lone, gates={"skip": skips}), "site.yml")


def test_an_mpijob_needs_a_cluster_that_has_the_nodes_of_its_part() -> None:
    joins = KUBERNETES | {"join": {"command": ["join", "{taint}"]}}
    site = several(BOTH[0], part("node[03-04]", joins, launcher="mpijob"), gates=_pairs_only())
    with pytest.raises(SiteInvalidError) as caught:
        require_gates(site, "site.yml")
    assert [str(problem) for problem in caught.value.problems] == [
        (
            "handover.parts[1].launcher: mpijob on part kubernetes - Expected: nodes that are in the cluster while "
            "they are measured Actual: handover.join, which joins nodes that are certified already. Choose the "
            "launcher openmpi, or let others join the nodes, with the taint."
        )
    ]
    assert launchers_of(site) == ["openmpi", "mpijob"]


def _pairs_only() -> dict[str, Any]:
    """Return the skip of the gate that needs three nodes: the parts have two each."""
    reason = "incast needs two senders and a receiver; each part has two nodes"
    return {"skip": [{"gate": "cluster/fabric/stress/incast", "nodes": ["node[01-04]"], "reason": reason}]}


def test_facts_are_those_of_the_scheduler_where_all_nodes_have_one() -> None:
    site = several(part("node[01-02]", SLURM | {"validation_reservation": "check"}, launcher="srun"), BOTH[1])
    one = site_facts(site, ["node01", "node02"])
    assert (one.launcher, one.reservation, one.cluster) == ("srun", "check", None)
    other = site_facts(site, ["node03"])
    assert isinstance(other.cluster, KubernetesHandover)
    assert (other.launcher, other.reservation) == ("openmpi", "rackready")
    both = site_facts(site, NODES)
    assert (both.launcher, both.cluster) == ("openmpi", None)


def test_the_launcher_is_that_of_the_part_and_refuses_nodes_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    site = several(part("node[01-02]", SLURM, launcher="srun"), BOTH[1])
    asked: list[tuple[str, str]] = []

    @contextmanager
    def reserved(_slurm: object, nodes: list[str], prefix: str, _user: str) -> Iterator[str]:
        asked.append((prefix, "+".join(nodes)))
        yield "reservation"

    class Slurm:
        def step_options(self, gpus: dict[str, int]) -> tuple[str, ...]:
            asked.append(("options", " ".join(f"{node}:{count}" for node, count in gpus.items())))
            return ("--gres=gpu:8",)

    @contextmanager
    def connected(handover: Any, _paths: object) -> Iterator[Slurm]:  # noqa: ANN401 - the part's handover
        asked.append(("connect", str(handover.controller)))
        yield Slurm()

    monkeypatch.setattr(launch, "connect_slurm", connected)
    monkeypatch.setattr(launch, "reserved", reserved)
    nothing: Any = None
    start = launch.launcher(site, nothing, nothing, {})
    with start("node01", ["node02"]) as options:
        assert options == ("--gres=gpu:8",)
    assert asked == [("connect", "192.0.2.5"), ("options", "node01:8 node02:8"), ("rackready", "node01+node02")]
    with pytest.raises(UnreachableError) as caught, start("node01", ["node02", "node03"]):
        pass
    assert str(caught.value) == (
        "node01, node02, node03: nodes of one program - Expected: one scheduler Actual: slurm: node01, node02; "
        "kubernetes: node03. Nothing was started. This is a bug: report it."
    )


def test_jobs_in_a_cluster_are_those_of_the_part() -> None:
    from rackready.gates.engine.validate import jobs_of  # noqa: PLC0415 - beside what it is compared with

    site = several(*BOTH)
    assert jobs_of(handover_site(site, "node01")) is None
    assert isinstance(jobs_of(handover_site(site, "node03")), KubeJobs)
