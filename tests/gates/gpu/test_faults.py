"""Each GPU fault is caught by its gate, down to the part, and a healthy node passes, on the simulated programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rackready.gates.engine.registry import all_gates
from rackready.model.outcome import Outcome
from rackready_sim.faults import Fault, gpu, gpu_links
from tests.gates.gpu.simulated import node

OTHERS = {
    "node/gpu/sanity/inventory",
    "node/gpu/sanity/versions",
    "node/gpu/performance/nccl-all-reduce",
    "node/gpu/performance/gemm-torch",
    "node/gpu/validation/container-run",
}
"""Gates of other test files: they ask a real NVML library, mpirun, PyTorch or a container runtime."""
GATES = [
    name
    for name, kind in all_gates().items()
    if name.startswith("node/gpu/")
    and name not in OTHERS
    and kind.__module__.startswith(("rackready.gates.gpu", "rackready.gates.gpu.dcgm"))
]
CHOSEN: dict[str, dict[str, Any]] = {
    "xid": {"gpu": 2, "code": 119},
    "dcgm-fail": {"gpu": 2, "test": "memory"},
    "sxid": {"switch": 1, "code": 20034},
}
FAULTS = [fault for fault in (*gpu.FAULTS, *gpu_links.FAULTS) if fault.caught_by in GATES]
WHERE = {
    "sxid": "node01 nvswitch1",
    "fabric-manager-stuck": "node01 gpu0",
    "persistence-off": "node01 gpu0",
    "container-toolkit-broken": "node01",
    "cdi-stale": "node01",
    "clocks-locked-low-all": "node01 gpu0",
    "nvlink-slow": "node01 gpu2 nvlink0",
    "nvlink-errors": "node01 gpu2 nvlink0",
    "gpu-lost": "node01 gpu2",
}


@pytest.mark.parametrize("gate_id", GATES)
def test_a_healthy_node_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gate_id: str) -> None:
    verdict = node(tmp_path, monkeypatch).judge(gate_id)
    assert [str(finding) for finding in verdict.findings] == []
    assert verdict.outcome is Outcome.PASS
    assert verdict.measured


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_caught_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Fault) -> None:
    params = {**({"gpu": 2} if "gpu" in fault.params else {}), **CHOSEN.get(fault.name, {})}
    verdict = node(tmp_path, monkeypatch, (fault.name, params)).judge(fault.caught_by)
    assert verdict.outcome is Outcome.FAIL, [str(finding) for finding in verdict.findings]
    assert WHERE.get(fault.name, "node01 gpu2") in {finding.where for finding in verdict.findings}
    named = {finding.where for finding in verdict.findings}
    if fault.name not in {"persistence-off", "fabric-manager-stuck", "clocks-locked-low-all", "affinity-swapped"}:
        assert len(named) == 1, named
    assert "node01/gpu2" not in verdict.measured or fault.name in {"sxid", "nvlink-slow"}


@pytest.mark.parametrize("code", [48, 64, 74, 79, 94, 95, 119, 154])
def test_xids_that_ask_for_an_action_are_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    verdict = node(tmp_path, monkeypatch, ("xid", {"gpu": 5, "code": code})).judge("node/gpu/sanity/xid")
    assert verdict.outcome is Outcome.FAIL
    assert {finding.where for finding in verdict.findings} == {"node01 gpu5"}
    assert verdict.findings[0].what.startswith(f"Xid {code} (")


@pytest.mark.parametrize("code", [13, 31, 63])
def test_xids_of_applications_are_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    verdict = node(tmp_path, monkeypatch, ("xid", {"gpu": 5, "code": code})).judge("node/gpu/sanity/xid")
    assert verdict.outcome is Outcome.PASS
    assert f"gpu5: Xid {code} (" in (verdict.note or "")


@pytest.mark.parametrize("percent", [3, 5, 10])
def test_silent_slowness_is_not_seen_by_dcgm_but_by_siblings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, percent: int
) -> None:
    slow = node(tmp_path, monkeypatch, (f"gemm-slow-{percent}", {"gpu": 6}))
    assert slow.judge("node/gpu/validation/dcgm-r3").outcome is Outcome.PASS
    verdict = slow.judge("node/gpu/performance/gemm")
    assert {finding.where for finding in verdict.findings} == {"node01 gpu6"}


def test_a_gpu_all_of_whose_links_are_inactive_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = [("nvlink-down", {"gpu": 2, "link": link}) for link in range(18)]
    verdict = node(tmp_path, monkeypatch, *broken).judge("node/gpu/sanity/nvlink")
    said = "NVML: Unable to retrieve NVLink information as all links are inActive"
    assert [(item.where, item.what, item.actual) for item in verdict.findings] == [
        ("node01 gpu2", "no NVLink active", said)
    ]
    assert (verdict.outcome, len(verdict.measured)) == (Outcome.FAIL, 7 * 18)
