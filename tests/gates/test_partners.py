"""What a bad run says of the end that it does not name."""

from __future__ import annotations

from rackready.gates.base import FinishedRun
from rackready.gates.engine.registry import gate
from rackready.gates.judging.merge import merged
from rackready.model.outcome import Finding, Outcome, Verdict
from tests.gates.support import outputs, rack
from tests.gates.test_ib_latency import FORTH3, WRITE, links, said


def test_a_node_whose_only_partner_is_bad_was_not_measured() -> None:
    """What was found on the other end is no fault of its own; what was found on itself stays."""
    known = rack(2)
    found = gate(WRITE)
    (run,) = found.plan(known, list(known.nodes))
    down = said() | {"link-second": links(mlx5_4="1: DOWN")}
    verdict = found.evaluate(known, run, outputs(run, down))
    by_node = found.attribute(known, [FinishedRun(run, verdict)])
    assert (by_node["node02"][0].outcome, by_node["node02"][0].findings[0].what) == (Outcome.FAIL, "link down")
    [other] = by_node["node01"]
    assert [str(finding) for finding in other.findings] == [
        (
            "node01: not measured - Expected: a partner with a good link Actual: its only partner node02 is bad. "
            "Repair node02, or run the gate with another partner."
        )
    ]
    assert (other.outcome, other.blamed, len(other.measured)) == (Outcome.ERROR, [], 28)
    mine = {"where": FORTH3, "node": "node01", "part": "mlx5_4"}
    both = verdict.model_copy(
        update={"findings": [*verdict.findings, *(one.model_copy(update=mine) for one in verdict.findings)]}
    )
    [own] = found.attribute(known, [FinishedRun(run, both)])["node01"]
    assert (own.outcome, [finding.where for finding in own.findings]) == (Outcome.FAIL, [FORTH3])


INCAST = "cluster/fabric/stress/incast"


def incast(**found: list[Finding]) -> dict[str, list[Verdict]]:
    """Return the verdicts of incast on rail 1 of three nodes. ``found``: receiver -> findings; none: a pass."""
    known = rack(3)
    made = gate(INCAST)
    done = []
    for run in made.plan(known, list(known.nodes)):
        if run.about["rail"] == "1":
            findings = found.get(run.about["receiver"], [])
            done.append(
                FinishedRun(run, Verdict(outcome=Outcome.FAIL if findings else Outcome.PASS, findings=findings))
            )
    return made.attribute(known, done)


def finding(where: str, code: str = "x", *nodes: str) -> Finding:
    return Finding(code=code, where=where, what="w", expected="e", actual="y", next_step="s", nodes=list(nodes))


def outcomes(by_node: dict[str, list[Verdict]]) -> dict[str, str]:
    return {node: merged(said).outcome.value for node, said in sorted(by_node.items())}


def test_incast_fails_the_nodes_that_it_names_and_not_all_that_took_part() -> None:
    alone = finding("node02 mlx5_0 (rail 1)", "incast-no-notifications")
    assert outcomes(incast(node02=[alone])) == {"node01": "pass", "node02": "fail", "node03": "pass"}
    by_node = incast(
        node01=[finding("leaf01 swp2 (to node03 rail 1)", "x", "node03"), finding("node03 mlx5_0 (rail 1)")]
    )
    assert outcomes(by_node) == {"node01": "error", "node02": "pass", "node03": "fail"}, (
        "node01 received with a bad sender"
    )
    assert [str(found) for said in by_node["node01"] for found in said.findings] == [
        (
            "node01 rail 1: not measured - Expected: a partner with a good link "
            "Actual: its only partner node03 is bad. "
            "Repair node03, or run the gate with another partner."
        )
    ]


def test_incast_whose_findings_name_nobody_is_everybodys() -> None:
    for found in (
        finding("leaf01", "incast-switch-counters-unreadable"),
        finding("node01 mlx5_0 (rail 1)", "incast-not-filled"),
    ):
        assert outcomes(incast(node01=[found])) == {"node01": "fail", "node02": "fail", "node03": "fail"}, found
    slow = finding("node01 mlx5_0 (rail 1)", "incast-not-all-wrote", "node02")
    assert outcomes(incast(node01=[slow])) == {"node01": "fail", "node02": "fail", "node03": "pass"}


def test_a_sender_that_received_nowhere_was_not_measured_beside_one_that_is_named() -> None:
    known = rack(3)
    made = gate(INCAST)
    run = next(run for run in made.plan(known, list(known.nodes)) if run.target == "rail1 into node01")
    by_node = made.attribute(
        known, [FinishedRun(run, Verdict(outcome=Outcome.FAIL, findings=[finding("node01 mlx5_0 (rail 1)")]))]
    )
    assert outcomes(by_node) == {"node01": "fail", "node02": "error", "node03": "error"}
