"""Coverage: every part measured, left out by declaration, or said to be unmeasured."""

from __future__ import annotations

from rackready.gates.engine.registry import gate
from rackready.gates.judging import coverage
from rackready.model.outcome import Outcome, Verdict
from rackready.profiles import loader
from tests.gates.support import rack

NODE = rack().nodes["node01"]
GATES = [gate(entry.id) for entry in loader.gate_set("bringup").gates]
EVERYTHING = [part for parts in coverage.expected(NODE).values() for part in parts]


def passed(*parts: str) -> Verdict:
    return Verdict(outcome=Outcome.PASS, measured=list(parts))


def test_what_a_node_is_made_of() -> None:
    assert {kind: len(parts) for kind, parts in coverage.expected(NODE).items()} == {
        "node": 1,
        "gpu": 8,
        "nvlink": 144,
        "nic": 8,
        "rail": 8,
        "cable": 0,
    }


def test_the_bringup_set_measures_every_kind() -> None:
    assert set(coverage.expected(NODE)) == frozenset[str]().union(*(gate.covers for gate in GATES))


def test_everything_measured() -> None:
    seen = coverage.of_node(NODE, {"node/gpu/sanity/inventory": [passed(*EVERYTHING)]}, GATES, {})
    assert seen.unmeasured == []
    assert seen.measured["node01/gpu3"] == ["node/gpu/sanity/inventory"]
    assert coverage.verdict(seen).outcome is Outcome.PASS
    assert seen.counts(NODE)["nvlink"] == (144, 144)


def test_one_nic_that_no_gate_measured() -> None:
    rest = [part for part in EVERYTHING if part not in {"node01/mlx5_10", "node01/rail7"}]
    verdict = coverage.verdict(coverage.of_node(NODE, {"x": [passed(*rest)]}, GATES, {}))
    assert verdict.outcome is Outcome.ERROR
    assert str(verdict.findings[0]) == (
        "node01: not measured - Expected: every part measured by some gate "
        "Actual: 2 unmeasured: node01/mlx5_10, node01/rail7. "
        "The report shows which gate did not measure them. Run it, or skip it with a reason (site.yml "
        "gates.skip)."
    )


def test_a_declared_skip_is_shown_and_is_not_unmeasured() -> None:
    fabric = {gate_.id: "single node on the bench" for gate_ in GATES if gate_.covers & {"nic", "rail"}}
    inner = [part for part in EVERYTHING if "mlx5" not in part and "rail" not in part]
    seen = coverage.of_node(NODE, {"x": [passed(*inner)]}, GATES, fabric)
    assert seen.unmeasured == []
    assert len(seen.skipped) == 16
    assert "single node on the bench" in (coverage.verdict(seen).note or "")


def test_skipping_one_of_two_gates_leaves_parts_unmeasured() -> None:
    inner = [part for part in EVERYTHING if "mlx5" not in part and "rail" not in part]
    seen = coverage.of_node(
        NODE, {"x": [passed(*inner)]}, GATES, {"pair/fabric/performance/ib-write-bw": "no partner yet"}
    )
    assert len(seen.unmeasured) == 16


def test_nothing_measured_is_never_a_pass() -> None:
    assert coverage.verdict(coverage.of_node(NODE, {}, GATES, {})).outcome is Outcome.ERROR
    assert coverage.verdict(coverage.Coverage("node01", {}, [], {})).outcome is Outcome.ERROR
