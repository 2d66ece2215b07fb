"""Pairs of RDMA writes: who is measured with whom, and which end is bad."""

from __future__ import annotations

from rackready.gates.base import FinishedRun
from rackready.gates.engine.pairs import rounds
from rackready.gates.engine.registry import gate
from rackready.gates.engine.schedule import batches
from rackready.model.outcome import Finding, Outcome, Verdict
from tests.gates.support import rack

GATE = "pair/fabric/performance/ib-write-bw"
SLOW = Finding(
    where="node01 mlx5_0",
    what="RDMA write is slow",
    expected="at least 372.2 Gb/s",
    actual="187.4 Gb/s",
    next_step="Check its cable.",
)


def test_every_node_is_in_a_pair() -> None:
    assert rounds(["a"]) == []
    assert rounds(["a", "b"]) == [[("a", "b")]]
    assert rounds(["a", "b", "c"]) == [[("a", "b")], [("a", "c")]]
    for count in range(2, 9):
        nodes = [f"node{number:02}" for number in range(count)]
        pairs = [pair for pairing in rounds(nodes) for pair in pairing]
        assert {node for pair in pairs for node in pair} == set(nodes)


def measured(nodes: int, bad: dict[tuple[str, int], set[str]]) -> tuple[dict[str, list[Outcome]], list[str]]:
    """Play the gate with NICs that are bad: (node, rail) -> partners with which it fails (empty: with all)."""
    known = rack(nodes)
    found = gate(GATE)

    def play(run_list: list) -> list[FinishedRun]:  # type: ignore[type-arg]
        out = []
        for run in run_list:
            first, second, rail = run.about["first"], run.about["second"], int(run.about["rail"])
            fails = any(
                (node, rail) in bad and (not bad[node, rail] or other in bad[node, rail])
                for node, other in ((first, second), (second, first))
            )
            finding = [SLOW] if fails else []
            parts = [] if fails else [f"{first}/rail{rail}", f"{second}/rail{rail}"]
            out.append(
                FinishedRun(
                    run, Verdict(outcome=Outcome.FAIL if fails else Outcome.PASS, findings=finding, measured=parts)
                )
            )
        return out

    done = play(found.plan(known, list(known.nodes)))
    again = found.follow_up(known, done)
    by_node = found.attribute(known, done + play(again))
    return {node: sorted({verdict.outcome for verdict in verdicts}) for node, verdicts in by_node.items()}, [
        run.target for run in again
    ]


def test_a_bad_nic_is_told_from_its_partner_by_a_third() -> None:
    outcomes, again = measured(4, {("node03", 5): set()})
    assert again == ["node03+node01/rail5", "node04+node02/rail5"]
    assert outcomes == {
        "node01": [Outcome.PASS],
        "node02": [Outcome.PASS],
        "node03": [Outcome.FAIL, Outcome.PASS],
        "node04": [Outcome.PASS],
    }


def test_two_nodes_alone_are_both_suspects() -> None:
    outcomes, again = measured(2, {("node02", 1): set()})
    assert again == []
    assert outcomes == {"node01": [Outcome.FAIL, Outcome.PASS], "node02": [Outcome.FAIL, Outcome.PASS]}


def test_a_fault_of_a_pair_only_is_said_of_both() -> None:
    outcomes, _ = measured(4, {("node01", 2): {"node02"}})
    assert outcomes["node01"] == [Outcome.FAIL, Outcome.PASS]
    assert outcomes["node02"] == [Outcome.FAIL, Outcome.PASS]
    assert outcomes["node03"] == [Outcome.PASS]


def test_a_failed_run_is_never_measured_again_as_it_was() -> None:
    _, again = measured(6, {("node01", 1): set(), ("node05", 3): set()})
    assert not {"node01+node02/rail1", "node02+node01/rail1", "node05+node06/rail3"} & set(again)


def test_no_run_shares_a_nic_with_another_of_its_batch() -> None:
    known = rack(5)
    for batch in batches(gate(GATE).plan(known, list(known.nodes)), 16):
        claims = [claim for run in batch for claim in run.claims]
        assert len(claims) == len(set(claims))
        assert len(batch) <= 16
