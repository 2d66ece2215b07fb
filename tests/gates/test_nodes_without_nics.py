"""Servers without compute NICs: the gates of rails launch nothing there, and say that there is nothing to judge."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rackready.gates.base import FinishedRun
from rackready.gates.engine.registry import gate
from rackready.gates.records.offline import facts
from rackready.model.outcome import Outcome, Verdict
from tests.gates.support import judge, rack
from tests.gates.test_ib_latency import CASES, READ, WRITE

BANDWIDTH = "pair/fabric/performance/ib-write-bw"
GATES = (WRITE, READ, BANDWIDTH, f"{BANDWIDTH}-host", "cluster/fabric/stress/incast")
PAIRS_OF_NCCL = "pair/fabric/performance/nccl-all-reduce-ring"
COLLECTIVES = (
    "cluster/fabric/performance/nccl-all-reduce-ring",
    PAIRS_OF_NCCL,
    "rack/fabric/performance/nccl-alltoall",
    "cluster/fabric/performance/nccl-scaling",
)


@pytest.mark.parametrize("gate_id", [*GATES, *COLLECTIVES])
def test_servers_without_compute_nics_have_nothing_to_judge(gate_id: str) -> None:
    known = facts("r760xa_l4", 3)
    found = gate(gate_id)
    (run,) = found.plan(known, list(known.nodes))
    assert (run.commands, run.nodes) == ((), ("node01", "node02", "node03"))
    verdict = found.evaluate(known, run, {})
    assert (verdict.outcome, verdict.note, verdict.measured) == (
        Outcome.PASS,
        "the platform has no compute NICs: nothing to judge",
        [],
    )
    done = [FinishedRun(run, verdict)]
    assert found.follow_up(known, done) == []
    assert found.attribute(known, done) == {node: [verdict] for node in known.nodes}


@pytest.mark.parametrize("gate_id", [*GATES, *COLLECTIVES])
def test_nodes_with_nics_are_measured_beside_them(gate_id: str) -> None:
    bare, whole = facts("r760xa_l4", 5), rack(5)
    known = replace(whole, nodes={**whole.nodes, "node02": bare.nodes["node02"], "node05": bare.nodes["node05"]})
    *runs, last = gate(gate_id).plan(known, list(known.nodes))
    assert {node for run in runs for node in run.nodes} == {"node01", "node03", "node04"}
    assert all(run.commands for run in runs)
    assert (last.nodes, last.commands) == (("node02", "node05"), ())


def test_two_nodes_with_nics_are_too_few_for_incast() -> None:
    bare, whole = facts("r760xa_l4", 3), rack(3)
    known = replace(whole, nodes={**whole.nodes, "node02": bare.nodes["node02"]})
    assert [run.nodes for run in gate("cluster/fabric/stress/incast").plan(known, list(known.nodes))] == [("node02",)]


@pytest.mark.parametrize("gate_id", GATES)
def test_a_node_with_nics_that_has_too_few_others_is_said_to_be_not_measured(gate_id: str) -> None:
    bare = facts("r760xa_l4", 3)
    known = replace(rack(3), nodes={**bare.nodes, "node02": rack(3).nodes["node02"]})
    found = gate(gate_id)
    done = [FinishedRun(run, found.evaluate(known, run, {})) for run in found.plan(known, list(known.nodes))]
    by_node = found.attribute(known, done)
    assert {node: [verdict.outcome for verdict in said] for node, said in by_node.items()} == {
        "node01": [Outcome.PASS],
        "node02": [Outcome.NOT_RUN],
        "node03": [Outcome.PASS],
    }
    least = 3 if gate_id.endswith("incast") else 2
    assert [str(finding) for finding in by_node["node02"][0].findings] == [
        (
            f"node02: {gate_id} was not run - Expected: a measurement "
            f"Actual: fewer than {least} of the nodes that can take part have a compute NIC on the same rail. "
            "Run it together with more such nodes, or declare the skip with its reason in site.yml (gates.skip)."
        )
    ]


def test_incast_is_tried_on_rails_that_enough_nodes_have() -> None:
    known = rack(4)
    fewer = {
        name: replace(node, nics=node.nics[:4]) if name in {"node03", "node04"} else node
        for name, node in known.nodes.items()
    }
    runs = gate("cluster/fabric/stress/incast").plan(replace(known, nodes=fewer), list(known.nodes))
    assert {run.about["rail"] for run in runs} == {"1", "2", "3", "4"}, (
        "two nodes have the others: one sender is no incast"
    )
    fewer["node03"] = known.nodes["node03"]
    runs = gate("cluster/fabric/stress/incast").plan(replace(known, nodes=fewer), list(known.nodes))
    assert {node for run in runs if run.about["rail"] == "8" for node in run.nodes} == {"node01", "node02", "node03"}


def test_a_node_without_compute_nics_is_no_partner() -> None:
    bare, whole = facts("r760xa_l4", 4), rack(4)
    known = replace(whole, nodes={**whole.nodes, "node02": bare.nodes["node02"]})
    found = gate(WRITE)
    runs = found.plan(known, list(known.nodes))
    assert [run.nodes for run in runs] == [("node01", "node03"), ("node01", "node04"), ("node02",)]
    nothing = found.evaluate(known, runs[2], {})
    done = [
        FinishedRun(runs[0], judge(WRITE, CASES[1])),
        FinishedRun(runs[1], Verdict(outcome=Outcome.ERROR)),
        FinishedRun(runs[2], nothing),
    ]
    assert found.follow_up(known, done) == [], "the one that passed has no NIC"


def test_a_node_without_compute_nics_is_not_said_to_lack_partners() -> None:
    found = gate("cluster/fabric/performance/nccl-all-reduce-ring")
    bare, whole = facts("r760xa_l4", 2), rack(2)
    assert found.attribute(bare, []) == {}
    assert list(found.attribute(replace(whole, nodes={**whole.nodes, "node02": bare.nodes["node02"]}), [])) == [
        "node01"
    ]


def test_a_pair_of_nccl_is_tried_again_with_a_partner_that_has_nics() -> None:
    bare, whole = facts("r760xa_l4", 5), rack(5)
    known = replace(whole, nodes={**whole.nodes, "node05": bare.nodes["node05"]})
    found = gate(PAIRS_OF_NCCL)
    one, two, last = found.plan(known, list(known.nodes))
    assert (one.nodes, two.nodes, last.nodes) == (("node01", "node02"), ("node03", "node04"), ("node05",))
    bad = Verdict(outcome=Outcome.FAIL)
    done = [FinishedRun(one, bad), FinishedRun(two, bad), FinishedRun(last, found.evaluate(known, last, {}))]
    assert found.follow_up(known, done) == [], "the one that passed has no NIC"
    assert found.attribute(known, done)["node05"] == [done[-1].verdict]


def test_nodes_without_a_rail_in_common_are_an_error() -> None:
    known = rack(2)
    one, two = known.nodes.values()
    known = replace(known, nodes={"node01": replace(one, nics=one.nics[:4]), "node02": replace(two, nics=two.nics[4:])})
    found = gate(WRITE)
    (run,) = found.plan(known, list(known.nodes))
    verdict = found.evaluate(known, run, {})
    assert [str(finding) for finding in verdict.findings] == [
        (
            "node01+node02: no rail in common - Expected: a rail that both nodes have Actual: none. "
            "Run the gate with two nodes of one platform: `rackready gate run`, twice `--node`."
        )
    ]
    assert verdict.outcome is Outcome.ERROR
