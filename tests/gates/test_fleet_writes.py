"""RDMA writes compared with their fleet: a NIC that is slow above the floor is found.

Every direction from NIC to NIC is one unit.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from rackready.drivers.remote import Answer
from rackready.gates.engine.validate import Stage
from rackready.gates.judging.pair_fleet import acquitted
from rackready.model.evidence import EvidenceRecord
from rackready.model.outcome import Outcome
from rackready.model.phase import NodeResult
from rackready.model.profile import GateSetEntry
from tests.gates.fake import answered
from tests.gates.stage import fingerprint_of, site_with, stage_of
from tests.gates.support import port, ports, wrote
from tests.gates.test_ib_write_bw import WROTE

PAIR = "pair/fabric/performance/ib-write-bw"
NODES = ["node01", "node02", "node03", "node04"]
HEALTHY = 391.27


class Ports:
    """Answers for every port and every write; ``slow``: (writing node, device) -> Gb/s."""

    def __init__(self, slow: dict[tuple[str, str], float]) -> None:
        self.slow = slow
        self.read: Counter[str] = Counter()
        self.lock = threading.Lock()

    def link(self, node: str, argv: Sequence[str]) -> Answer:
        device = argv[2]
        with self.lock:
            self.read[f"{node} {device}"] += 1
            sent = self.read[f"{node} {device}"] // 2 * WROTE
        return answered(ports({device: port(sent)}))

    def write(self, node: str, argv: Sequence[str]) -> Answer:
        rate = self.slow.get((node, argv[4]), HEALTHY)
        return answered(
            wrote(argv)
            .replace("391.39", f"{rate:.2f}")
            .replace("391.27", f"{rate:.2f}")
            .replace("0.005830", f"{rate * 1e3 / 8 / (1 << 23):.6f}")
        )


def measure(
    tmp_path: Path, nodes: Sequence[str], slow: dict[tuple[str, str], float], gate: str = PAIR
) -> tuple[Stage, dict[str, NodeResult]]:
    ports = Ports(slow)
    replies = {"Print a node's identity": fingerprint_of, "Print link state": ports.link, "ib_write_bw": ports.write}
    stage = stage_of(tmp_path, replies, nodes, site_with(len(nodes)))
    return stage, stage.run(list(nodes), [], [GateSetEntry(id=gate, max_age_hours=24)], full_set=False)


def newest(stage: Stage, node: str) -> EvidenceRecord:
    return stage.state.recorder.store.records(target=node, gate=PAIR)[-1]


def test_a_healthy_site_passes_and_says_what_it_was_held_against(tmp_path: Path) -> None:
    stage, results = measure(tmp_path, NODES, {})
    assert {result.outcome for result in results.values()} == {Outcome.PASS}
    record = newest(stage, "node01")
    assert record.inputs["fleet"] == {"bw_average": 32}, "two pairs, eight rails, both directions"
    fleet = record.verdict.criteria[-1]
    assert (fleet.label, fleet.metric, fleet.inputs["M"], fleet.inputs["median"]) == (
        "fleet",
        "bw_average",
        32,
        HEALTHY,
    )


UNTOLD = (
    "One pair does not show which of its two NICs is slow: measure each with another partner (`rackready "
    "gate run`, twice `--node`), and compare both cables, PCIe widths and the errors of both ports with "
    "those of a good rail"
)
ONE_END = (
    "Its partner is good with others: compare this node's cable, PCIe width and port errors with those of a good rail"
)
AGAIN = f"repair, then run {PAIR} again: docs/runbooks/fleet-outlier.md"


def found(stage: Stage, node: str) -> list[str]:
    return [str(finding) for finding in newest(stage, node).verdict.findings]


def test_a_nic_that_is_slow_above_the_floor_is_found_and_its_partners_are_acquitted(tmp_path: Path) -> None:
    """375 Gb/s is above the floor of 372.2, and 4.2 % below all others; node03 writes so to any partner."""
    stage, results = measure(tmp_path, NODES, {("node03", "mlx5_4"): 375.0})
    assert [node for node, result in results.items() if result.outcome is not Outcome.PASS] == ["node03"]
    says = (
        "bw_average falls behind its fleet - Expected: at least 377.8 Gb/s (median of 36 identical units 391.3) "
        "Actual: 375 Gb/s"
    )
    assert found(stage, "node03") == [
        f"node03 mlx5_4 -> {other} mlx5_4 (rail 3): {says}. {ONE_END}, {AGAIN}" for other in ("node01", "node04")
    ]
    assert newest(stage, "node03").verdict.measured == [], "a slow run proves nothing of its ends"
    assert newest(stage, "node04").verdict.criteria[-1].label == "fleet"
    assert "node04/mlx5_4" in newest(stage, "node04").verdict.measured, "it was measured with a third partner"


def test_of_two_nodes_none_is_told_and_the_pair_is_named(tmp_path: Path) -> None:
    stage, _ = measure(tmp_path, NODES[:2], {("node01", "mlx5_4"): 375.0})
    says = (
        "bw_average falls behind its fleet - Expected: at least 378.6 Gb/s (median of 16 identical units 391.3) "
        "Actual: 375 Gb/s"
    )
    for node in ("node01", "node02"):
        assert found(stage, node) == [f"node01 mlx5_4 -> node02 mlx5_4 (rail 3): {says}. {UNTOLD}, {AGAIN}"]


def direction(one: str, other: str, rail: int = 3) -> str:
    return f"{one} mlx5_4 -> {other} mlx5_4 (rail {rail})"


def compared(*pairs: tuple[str, str]) -> dict[str, list[str]]:
    """Both directions of these pairs."""
    return {direction(*ends): list(ends) for pair in pairs for ends in (pair, pair[::-1])}


@pytest.mark.parametrize(
    ("pairs", "slow", "innocent"),
    [
        ([("a", "b"), ("b", "c")], {direction("a", "b")}, {(direction("a", "b"), "b")}),
        (
            [("a", "b"), ("b", "c"), ("a", "d")],
            {direction("a", "b"), direction("d", "a")},
            {(direction("a", "b"), "b")},
        ),
        ([("a", "b"), ("b", "c"), ("a", "d")], {direction("b", "a")}, set()),
        ([("a", "b"), ("c", "d")], {direction("b", "a")}, set()),
        ([("a", "b"), ("b", "c")], {direction("a", "b"), direction("c", "b")}, set()),
    ],
    ids=[
        "right with another",
        "slow with both",
        "both are right with others: the path",
        "no third partner",
        "slow with two: it is the one",
    ],
)
def test_who_is_acquitted(pairs: list[tuple[str, str]], slow: set[str], innocent: set[tuple[str, str]]) -> None:
    assert acquitted(compared(*pairs), slow) == innocent


def test_another_rail_acquits_nobody() -> None:
    assert acquitted(compared(("a", "b")) | {direction("b", "c", 4): ["b", "c"]}, {direction("a", "b")}) == frozenset()


@pytest.mark.parametrize("rate", [390.0, 386.0, 380.0])
def test_what_is_within_the_noise_of_one_launch_is_not_called_slow(tmp_path: Path, rate: float) -> None:
    _, results = measure(tmp_path, NODES, {("node03", "mlx5_4"): rate})
    assert {result.outcome for result in results.values()} == {Outcome.PASS}


def test_what_fails_below_the_floor_is_no_part_of_the_fleet(tmp_path: Path) -> None:
    stage, results = measure(tmp_path, NODES, {("node03", "mlx5_4"): 200.0})
    assert [node for node, result in results.items() if result.outcome is not Outcome.PASS] == ["node03"], (
        "a third partner acquits node04"
    )
    assert "RDMA write is slow" in (results["node03"].message or "")
    record = newest(stage, "node01")
    assert record.inputs["fleet"] == {"bw_average": 18}, (
        "node01 with node02 on eight rails, and node04 with its third partner on one"
    )
    assert not any("node03" in metric.target for metric in record.verdict.metrics)


@pytest.mark.parametrize(("count", "bad"), [(3, "node02"), (5, "node05")])
def test_a_pair_that_was_measured_twice_is_still_one_pair(tmp_path: Path, count: int, bad: str) -> None:
    """In a site with an odd number of nodes a third partner may be one that was measured already."""
    nodes = [f"node{number:02d}" for number in range(1, count + 1)]
    _, results = measure(tmp_path, nodes, {(bad, "mlx5_4"): 375.0})
    assert [node for node, result in results.items() if result.outcome is Outcome.FAIL] == [bad]


@pytest.mark.parametrize(("repaired", "outcome"), [(True, Outcome.PASS), (False, Outcome.FAIL)])
def test_a_repaired_node_is_judged_by_what_it_does_now(tmp_path: Path, repaired: bool, outcome: Outcome) -> None:  # noqa: FBT001 - a case
    """Its partner's record holds the earlier figure; the direction is one unit, and was measured again."""
    slow = {("node01", "mlx5_4"): 375.0}
    ports = Ports(slow)
    replies = {"Print a node's identity": fingerprint_of, "Print link state": ports.link, "ib_write_bw": ports.write}
    entry = GateSetEntry(id=PAIR, max_age_hours=24)
    first = stage_of(tmp_path, replies, NODES, site_with(4))
    assert first.run(NODES, [], [entry], full_set=False)["node01"].outcome is Outcome.FAIL
    if repaired:
        slow.clear()
    first.state.recorder.ledger.raise_epoch("node01", "repaired: cable")
    again = stage_of(tmp_path, replies, NODES, site_with(4), campaign="c2")
    assert again.run(["node01"], NODES[1:], [entry], full_set=False)["node01"].outcome is outcome
