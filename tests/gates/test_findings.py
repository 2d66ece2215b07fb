"""What `gate explain` says: every finding that a gate's code can make, in words, and the bounds that are known before a run, as a run applies them."""

from __future__ import annotations

import re

import pytest

from rackready.gates.findings import findings
from rackready.gates.foreseen import foreseen
from rackready.gates.offline import Captured, evaluate, facts
from rackready.gates.registry import all_gates, gate
from rackready.model.outcome import Criterion
from tests.gates.support import FIXTURES

RING = "cluster/fabric/performance/nccl-all-reduce-ring"


def steps(gate_id: str) -> dict[str, list[str]]:
    """What a gate finds -> its next steps."""
    out: dict[str, list[str]] = {}
    for item in findings(all_gates()[gate_id]):
        out.setdefault(item["what"], []).append(item["next_step"])
    return out


def test_what_helper_modules_find_is_a_finding_of_the_gate() -> None:
    found = steps(RING)
    assert {"NCCL transport", "wrong results", "share of the traffic", "HCAs used by NCCL", "NVLink domains are unequal"} <= set(found)
    assert "ib_write_bw unreadable" not in found
    assert found["share of the traffic"] == ["Check this rail's link rate, PCIe width and switch port: docs/runbooks/rail-slow.md"]


def test_a_step_that_a_local_or_a_caller_names_is_said_in_words() -> None:
    assert steps(RING)["NVLink domains are unequal"] == ["Run it over domains of equal size: a rack at a time."], "a local"
    slow = "Which node is not told by this gate: look at the rails' shares and the pair gate's figures: docs/runbooks/nccl-slow.md"
    assert steps(RING)["{what} is slow"] == [slow], "handed in by the caller, out of a constant"
    assert (
        "Reset the GPU (`nvidia-smi -r`) or reboot, then run the gate again after repair is recorded."
        in steps("node/gpu/validation/dcgm-r1")["DCGM test {result.test}"]
    ), "out of a table"


def test_few_gates_leave_a_step_open() -> None:
    """Those that stay so take it from what they read (a vendor's catalogue, a table of limits)."""
    every = [(gate_id, item) for gate_id, kind in all_gates().items() for item in findings(kind)]
    open_ = {gate_id for gate_id, item in every if re.fullmatch(r"\{[^{}]*\}", item["next_step"])}
    assert len(open_) <= len(all_gates()) // 5, sorted(open_)
    assert {gate_id for gate_id, _ in every} == set(all_gates()), "every gate finds something"


@pytest.mark.parametrize(
    ("gate_id", "outputs"),
    [
        ("node/gpu/sanity/inventory", {"inventory": "nvml/dgx_h100_healthy.json"}),
        (
            "node/gpu/performance/nvbandwidth",
            {"before": "smi/dgx_h100_healthy.xml", "copy-0": "nvbandwidth/dgx_h100_healthy.json", "after": "smi/dgx_h100_healthy.xml"},
        ),
    ],
    ids=["inventory", "nvbandwidth"],
)
def test_bounds_that_are_foreseen_are_those_that_a_run_applies(gate_id: str, outputs: dict[str, str]) -> None:
    made = gate(gate_id, {"launches": 1} if "copy-0" in outputs else {})
    known = facts("dgx_h100")
    texts = {key: Captured((FIXTURES / name).read_text(encoding="utf-8"), seconds=60) for key, name in outputs.items()}
    verdict = evaluate(made, known, made.plan(known, list(known.nodes))[0], texts)
    applied = [item for item in verdict.criteria if item.label != "fleet" and item.metric != "gpus_reported"]  # the reading's own
    assert list(foreseen(made, known, list(known.nodes))) == applied != []


def bounds(gate_id: str, nodes: int, platform: str = "dgx_h100") -> list[tuple[str, float]]:
    known = facts(platform, nodes)
    found: tuple[Criterion, ...] = foreseen(gate(gate_id), known, list(known.nodes))
    return [(item.label, round(item.bound, 1)) for item in found]


def test_bounds_of_runs_over_several_nodes_are_computed_for_as_many() -> None:
    assert bounds(RING, 2) == [("ceiling", 408.0), ("reference", 368.0), ("floor", 312.8)]
    assert bounds(RING, 40) == [("ceiling", 408.0), ("reference", 368.0), ("floor", 278.1)]
    assert bounds("pair/fabric/performance/ib-write-bw", 2) == [("ceiling", 408.0), ("reference", 391.8), ("floor", 372.2)]
    assert bounds("pair/fabric/performance/ib-write-bw", 2, "r760xa_l4") == [], "no NIC, no bound"
    assert bounds("node/gpu/validation/dcgm-r1", 1) == [("identity", 8.0)]
    assert bounds("node/gpu/sanity/xid", 1) == []
