"""The fault matrix plays every fault once, in rounds without mutual effects. test_kill.py really plays some."""

from __future__ import annotations

import shutil
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest

from rackready.design.site import load_site
from rackready.gates.engine.registry import GateInputsError, all_gates, gate
from rackready.gates.engine.site_check import require_gates
from rackready.gates.engine.validate import gate_entries
from rackready.model.evidence import EvidenceRecord
from rackready.model.outcome import Finding, Outcome, Verdict
from rackready_sim.faults import FAULTS
from tests.integration.fault_matrix import LEFT_OUT, is_check, jobs, judging, kind, said_of, trials
from tests.integration.matrix_nodes import LOADS, shorten
from tests.integration.project import ROOT


def test_every_fault_that_names_a_gate_is_played_once() -> None:
    played = Counter(trial.fault.name for chunk in trials() for trial in chunk)
    assert played == Counter(fault.name for fault in FAULTS.values() if fault.caught_by)
    assert len(played) >= 45


def test_no_node_has_two_faults_in_a_round_and_no_two_faults_share_the_network() -> None:
    for chunk in trials():
        assert len({trial.node for trial in chunk}) == len(chunk)
        assert len(chunk) == 1 or all(trial.fault.caught_by.startswith(("node/", "bmc/")) for trial in chunk)


def test_rounds_mix_only_checks_that_read() -> None:
    for chunk in trials():
        gates = {trial.fault.caught_by for trial in chunk}
        assert len(gates) == 1 or all(map(is_check, gates))
    assert is_check("node/gpu/sanity/inventory")
    assert is_check("bmc/power/sanity/supplies")
    assert not is_check("bmc/log/sanity/events"), "it judges what is new since its last pass"
    assert not is_check("node/gpu/validation/dcgm-r1")


def test_racks_take_rounds_of_one_kind_and_together_all_of_them() -> None:
    rounds = trials()
    taken = jobs(rounds)
    assert [chunk for here in taken for chunk in here] == rounds
    assert all(len({kind(chunk) for chunk in here}) == 1 for here in taken)
    assert max(map(len, taken)) < len(rounds)


def test_every_gate_of_the_matrix_judges_healthy_nodes() -> None:
    caught_by = {fault.caught_by for fault in FAULTS.values() if fault.caught_by} - set(LEFT_OUT)
    assert set(judging(0)) == caught_by
    assert caught_by - set(judging(1)) == {"cluster/fabric/stress/incast", *LOADS}
    assert judging(5) == judging(0)


def test_the_site_of_the_matrix_asks_for_the_shortest_loads(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "inventories", tmp_path / "inventories")
    shorten(tmp_path / "inventories" / "sim" / "site.yml")
    site = load_site("sim", root=tmp_path)
    require_gates(site, "site.yml")
    assert {entry.id: entry.inputs for entry in gate_entries(site, list(LOADS))} == LOADS
    with pytest.raises(GateInputsError):
        gate("node/gpu/stress/burn", {"power_s": 29})


def test_faults_of_switches_go_to_a_switch_and_name_its_port() -> None:
    [[trial]] = trials(["port-slow"])
    assert (trial.target, trial.node, trial.params["port"]) == ("leaf01", "node01", "swp1")
    assert "node01 rail1" in trial.names


def record(outcome: Outcome, target: str, *nodes: str) -> EvidenceRecord:
    findings = (
        [] if outcome is Outcome.PASS else [Finding(where=target, what="x", expected="y", actual="z", next_step="n.")]
    )
    now = datetime(2026, 1, 1, tzinfo=UTC)
    return EvidenceRecord(
        id=f"{target}-{outcome}",
        campaign="c",
        gate=next(iter(all_gates())),
        target=target,
        nodes=list(nodes),
        fingerprints=[],
        verdict=Verdict(outcome=outcome, findings=findings),
        rackready_version="0",
        started=now,
        finished=now,
    )


def test_the_worst_that_was_said_of_a_node_counts() -> None:
    found = said_of(
        [
            record(Outcome.FAIL, "node01+node02/rail1", "node01", "node02"),
            record(Outcome.PASS, "node01", "node01"),
            record(Outcome.PASS, "n3", "n3"),
        ]
    )
    assert {node: said.outcome for (_, node), said in found.items()} == {
        "node01": "fail",
        "node02": "fail",
        "n3": "pass",
    }
    assert found[next(iter(all_gates())), "node01"].findings == ["node01+node02/rail1: x - Expected: y Actual: z. n."]
