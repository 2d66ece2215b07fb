"""The check on a node against the simulated programs: it finds each fault of its gates that it looks for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rackready.design.site import load_site
from rackready.gates.nodecheck.judge import GATES, Check, ToolEnd
from rackready.gates.nodecheck.program import commands
from rackready_sim.faults import Fault, gpu, gpu_links
from rackready_sim.hardware import build_state
from tests.gates.gpu.simulated import node, run
from tests.gates.nodecheck.test_judge import GOOD, NODE, TABLE

NOT_LOOKED_FOR = {
    "nvlink-slow": "speed of a link",
    "nvlink-errors": "counters of a link",
    "mig-on": "another setting than persistence",
    "power-cap-low": "another setting than persistence",
    "display-active": "another setting than persistence",
    "compute-mode-prohibited": "another setting than persistence",
    "gpu-wrong-model": "the fault keeps the serial number, by which the check knows a GPU",
    "gpu-missing-after-power-cycle": "this test has no power cycle",
}
FAULTS = [fault for fault in (*gpu.FAULTS, *gpu_links.FAULTS) if fault.caught_by in GATES]
CHOSEN: dict[str, dict[str, Any]] = {"xid": {"gpu": 2, "code": 119}, "sxid": {"switch": 1, "code": 20034}}


def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *broken: tuple[str, dict[str, Any]]) -> list[str]:
    made = node(tmp_path, monkeypatch, *broken)
    serials = [str(one["serial"]) for one in build_state(load_site("sim"), made.name)["gpus"]]
    expected = {**NODE, "gpus": serials}
    outputs = dict(GOOD)
    for key, argv in commands(expected).items():
        if argv[0] in {"nvidia-smi", "journalctl"}:
            said = run(argv)
            outputs[key] = ToolEnd(said["rc"], said["out"] + said["err"])
    return [one.text() for one in Check(expected, TABLE).judge(outputs)]


def test_a_healthy_node_has_no_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert found(tmp_path, monkeypatch) == []


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Fault) -> None:
    params = {**({"gpu": 2} if "gpu" in fault.params else {}), **CHOSEN.get(fault.name, {})}
    assert bool(found(tmp_path, monkeypatch, (fault.name, params))) == (fault.name not in NOT_LOOKED_FOR)
