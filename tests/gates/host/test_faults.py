"""Each host fault is caught by its gate, down to the part, and healthy nodes raise no alarm."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rackready.gates.base import FinishedRun
from rackready.gates.engine.registry import all_gates, gate
from rackready.model.outcome import Outcome
from rackready_sim.faults import host, optics
from rackready_sim.programs.hwsim import paths
from tests.gates.host.machine import Node, facts, judged
from tests.gates.support import document

FOUND: dict[str, list[str]] = document("host/findings.json")
"""Fault -> findings without their next step and the kernel log's time stamps."""
BY_NAME = {fault.name: fault for fault in (*host.FAULTS, *optics.FAULTS) if "host/" in fault.caught_by}
GATES = [name for name in all_gates() if "/host/" in name]


def rack(tmp_path: Path, patch: pytest.MonkeyPatch, gate_id: str) -> dict[str, Node]:
    names = ["node01", "node02", "node03"] if gate_id.startswith("group/") else ["node01"]
    return {name: Node(tmp_path / name, patch, name) for name in names}


def test_every_fault_has_its_row() -> None:
    assert set(FOUND) == set(BY_NAME)


@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_a_fault_is_caught_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    nodes = rack(tmp_path, monkeypatch, BY_NAME[name].caught_by)
    paths.ROOT = nodes["node01"].root
    nodes["node01"].inject(name)
    verdict = judged(BY_NAME[name].caught_by, nodes)
    assert verdict.outcome is Outcome.FAIL
    texts = [
        f"{item.where}: {item.what} - Expected: {item.expected} Actual: {item.actual}" for item in verdict.findings
    ]
    assert [re.sub(r"\[ +\d+\.\d+\] ", "", text) for text in texts] == FOUND[name]
    assert all(item.next_step for item in verdict.findings)
    assert "node01" not in verdict.measured


@pytest.mark.parametrize("gate_id", GATES)
def test_a_healthy_node_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gate_id: str) -> None:
    verdict = judged(gate_id, rack(tmp_path, monkeypatch, gate_id))
    assert [str(finding) for finding in verdict.findings] == []
    assert verdict.outcome is Outcome.PASS
    assert "node01" in verdict.measured


def test_the_gate_of_firmware_blames_only_the_node_that_drifted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = rack(tmp_path, monkeypatch, "group/host/validation/firmware")
    paths.ROOT = nodes["node01"].root
    nodes["node01"].inject("bios-version")
    verdict = judged("group/host/validation/firmware", nodes)
    found, known = gate("group/host/validation/firmware"), facts(*nodes)
    by_node = found.attribute(known, [FinishedRun(found.plan(known, list(nodes))[0], verdict)])
    assert {name: items[0].outcome for name, items in by_node.items()} == {
        "node01": Outcome.FAIL,
        "node02": Outcome.PASS,
        "node03": Outcome.PASS,
    }
