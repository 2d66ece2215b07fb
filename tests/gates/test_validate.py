"""The validate phase over a rack that answers from a table."""

from __future__ import annotations

import json
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from rackready.design.check_gates import today
from rackready.evidence.report import build, render
from rackready.evidence.store import EvidenceStore
from rackready.ledger.store import Ledger
from rackready.model.evidence import COVERAGE
from rackready.model.operations import DisabledGate
from rackready.model.outcome import Outcome
from rackready.model.site import DeclaredSkip
from rackready.paths import EnvPaths
from tests.gates.fake import answered
from tests.gates.phase_rack import ANSWERED, NODES, PAIR, RING, Rack, outcomes, play
from tests.gates.support import text


def test_a_healthy_rack_passes_with_everything_measured(tmp_path: Path) -> None:
    played = play(tmp_path, Rack())
    assert {node: result.message for node, result in played.results.items()} == dict.fromkeys(NODES, "")
    assert set(outcomes(played).values()) == {Outcome.PASS}
    assert played.results["node01"].data["coverage"] == {
        "node": [1, 1],
        "gpu": [8, 8],
        "nvlink": [144, 144],
        "nic": [8, 8],
        "rail": [8, 8],
        "cable": [8, 8],
    }
    conclusions = played.store.records(target="node02")
    assert {record.gate for record in conclusions} == {*ANSWERED, COVERAGE}
    assert all(record.fingerprints[0].gpus[0] == "node02-0" for record in conclusions)
    versions = {record.gate: record.tool_versions for record in conclusions}
    assert versions["node/gpu/validation/dcgm-r3"] == {"dcgm": "4.6.0", "driver": "580.173.02"}
    assert versions["node/gpu/performance/nccl-all-reduce"] == {"nccl-tests": "2.19.6", "nccl": "2.28.9"}


def test_one_bad_node_is_named_and_holds_back_no_other(tmp_path: Path) -> None:
    link = {"node03": {"inventory": answered(text("nvml/dgx_h100_gpu2_link4_inactive.json"))}}
    played = play(tmp_path, Rack(link, ring=("node01", "node02", "node04")))
    assert {node: outcome for node, outcome in outcomes(played).items() if outcome is not Outcome.PASS} == {
        "node03": Outcome.FAIL
    }
    bad = played.results["node03"]
    assert bad.message.startswith("node03 gpu2: NVLink down - Expected: 18 links active Actual: 17 (link 4 inactive).")
    assert bad.data["gates"]["node/gpu/sanity/versions"] == "pass", (
        "a failing check lets the other checks of its level run"
    )
    assert bad.data["gates"]["node/gpu/validation/dcgm-r3"] == "pass", (
        "one visit to the rack repairs all: it is measured on"
    )
    assert bad.data["gates"][PAIR] == "pass", "with a good node as its partner"
    assert bad.data["gates"][RING] == "not_run", "a bad node would spoil the run of all"


def test_faults_of_two_layers_are_told_in_one_run(tmp_path: Path) -> None:
    link = {"node03": {"inventory": answered(text("nvml/dgx_h100_gpu2_link4_inactive.json"))}}
    played = play(
        tmp_path, Rack(link, ring=("node01", "node02", "node04"), bad_links=frozenset({("node03", "mlx5_5")}))
    )
    assert {node: outcome for node, outcome in outcomes(played).items() if outcome is not Outcome.PASS} == {
        "node03": Outcome.FAIL
    }
    found = played.results["node03"].data["findings"]
    assert any(item.startswith("node03 gpu2: NVLink down") for item in found)
    assert any(item.startswith("node03 mlx5_5 (rail 4): link down") for item in found)


def test_a_node_with_wrong_software_is_put_under_no_load(tmp_path: Path) -> None:
    wrong = {
        "node03": {"versions": answered(text("versions/dgx_h100_healthy.json").replace("580.173.02", "580.65.06"))}
    }
    played = play(tmp_path, Rack(wrong, ring=("node01", "node02", "node04")))
    gates = played.results["node03"].data["gates"]
    assert {
        gates[name] for name in ("node/gpu/validation/dcgm-r3", "node/gpu/performance/nccl-all-reduce", PAIR, RING)
    } == {"not_run"}


def test_a_good_node_whose_partners_failed_is_measured_with_them(tmp_path: Path) -> None:
    inactive = answered(text("nvml/dgx_h100_gpu2_link4_inactive.json"))
    played = play(
        tmp_path, Rack({node: {"inventory": inactive} for node in NODES[1:]}), only=["node/gpu/sanity/inventory", PAIR]
    )
    assert outcomes(played) == {
        "node01": Outcome.PASS,
        "node02": Outcome.FAIL,
        "node03": Outcome.FAIL,
        "node04": Outcome.FAIL,
    }
    assert {result.data["gates"][PAIR] for result in played.results.values()} == {"pass"}


def test_a_good_node_gains_by_bad_partners_only(tmp_path: Path) -> None:
    inactive = answered(text("nvml/dgx_h100_gpu2_link4_inactive.json"))
    down = frozenset((node, "mlx5_5") for node in NODES[1:])
    played = play(tmp_path, Rack({node: {"inventory": inactive} for node in NODES[1:]}, bad_links=down))
    told = played.results["node01"]
    assert told.message == (
        f"node01: {PAIR} was not run - Expected: a measurement Actual: it needs 2 nodes, 1 of 4 can take part: "
        "node02 did not pass "
        "node/gpu/sanity/inventory, node03 did not pass node/gpu/sanity/inventory, node04 did not pass "
        "node/gpu/sanity/inventory. "
        "Repair node02, node03, node04, then run the same command again."
    )
    assert any(
        item.endswith(f"Fix what kept {PAIR}, {RING} from running: their own findings give the reason.")
        for item in told.data["findings"]
    ), "no skip is advised where partners failed"


def test_a_gpu_that_fell_off_the_bus_is_found_by_the_checks_and_nothing_passes_beside_it(tmp_path: Path) -> None:
    rack = Rack()
    found = json.loads(rack._fingerprint("node03", ()).stdout)
    found["gpus"][2] |= {"id": None, "vbios": None}
    inventory = json.loads(text("nvml/dgx_h100_healthy.json"))
    inventory["gpus"][2] = {"index": 2, "lost": "GPU is lost"}
    rack.broken = {"node03": {"fingerprint": answered(json.dumps(found)), "inventory": answered(json.dumps(inventory))}}
    rack.ring = ("node01", "node02", "node04")
    played = play(tmp_path, rack)
    assert {node: outcome for node, outcome in outcomes(played).items() if outcome is not Outcome.PASS} == {
        "node03": Outcome.FAIL
    }
    assert played.results["node03"].message.startswith(
        "node03 gpu2: GPU lost - Expected: a GPU that answers Actual: GPU is lost."
    )
    assert played.results["node03"].data["gates"]["node/gpu/validation/dcgm-r3"] == "not_run"
    only_versions = play(tmp_path / "again", rack, only=["node/gpu/sanity/versions"])
    assert str(only_versions.results["node03"].message) == (
        "node03 gpu2: identity not read - Expected: its serial Actual: NVML does not report it. "
        "Look for Xid errors in the kernel log (`rackready gate run node/gpu/sanity/xid`)."
    )
    assert only_versions.results["node03"].outcome is Outcome.ERROR


def test_a_slow_nic_is_told_from_its_partners(tmp_path: Path) -> None:
    played = play(
        tmp_path,
        Rack(bad_writes=frozenset({("node02", "mlx5_9")}), ring=("node01", "node02")),
        only=["node/gpu/sanity/inventory", PAIR],
    )
    assert outcomes(played) == {
        "node01": Outcome.PASS,
        "node02": Outcome.FAIL,
        "node03": Outcome.PASS,
        "node04": Outcome.PASS,
    }
    assert "node02's end of rail 6 is bad" in played.results["node02"].message


def test_a_pulled_cable_is_its_own_nodes_fault(tmp_path: Path) -> None:
    played = play(tmp_path, Rack(bad_links=frozenset({("node04", "mlx5_5")})), only=[PAIR])
    assert outcomes(played) == {
        "node01": Outcome.PASS,
        "node02": Outcome.PASS,
        "node03": Outcome.PASS,
        "node04": Outcome.FAIL,
    }
    assert played.results["node04"].message == (
        "node04 mlx5_5 (rail 4): link down - Expected: port ACTIVE Actual: port DOWN. "
        "Check the cable to leaf01 swp16 and its transceivers: docs/runbooks/link-down.md"
    )


def test_two_bad_ends_of_one_cable_run_are_each_told_their_own(tmp_path: Path) -> None:
    played = play(tmp_path, Rack(bad_links=frozenset({("node01", "mlx5_0"), ("node02", "mlx5_0")})), only=[PAIR])
    assert played.results["node01"].message.startswith("node01 mlx5_0 (rail 1): link down")
    assert played.results["node02"].message.startswith("node02 mlx5_0 (rail 1): link down")


def test_a_node_that_does_not_say_its_boot_has_no_fingerprint(tmp_path: Path) -> None:
    silent = {
        "node01": {
            "fingerprint": answered(
                '{"format": "rackready/fingerprint/v1", "kernel": "6.1", "driver": "580", "nics": [], "gpus": '
                '[{"index": 0, "id": "a"}], "complete": true}'
            )
        }
    }
    played = play(tmp_path, Rack(silent), nodes=["node01"], only=["node/gpu/sanity/inventory"])
    assert "no GPU, driver, kernel or boot id in it" in played.results["node01"].message


def test_an_unreachable_node_is_an_error_of_that_node(tmp_path: Path) -> None:
    played = play(
        tmp_path, Rack(dead=frozenset({"node02"}), ring=("node01", "node02")), only=["node/gpu/sanity/inventory"]
    )
    assert outcomes(played)["node02"] is Outcome.ERROR
    assert "check that node02 answers on SSH" in played.results["node02"].message
    assert outcomes(played)["node01"] is Outcome.PASS


def test_a_declared_skip_is_shown_and_its_parts_are_left_out(tmp_path: Path) -> None:
    skips = [DeclaredSkip(gate=gate, nodes=["node01"], reason="no partner on the bench") for gate in (PAIR, RING)]  # type: ignore[list-item]
    played = play(tmp_path, Rack(), nodes=["node01"], skips=skips)
    assert outcomes(played) == {"node01": Outcome.PASS}
    assert played.results["node01"].data["gates"][PAIR] == "skip"
    assert len(played.results["node01"].data["skipped"]) == 24
    assert played.store.records(gate=PAIR)[0].verdict.note == "no partner on the bench"


def off(gate: str, until: date) -> DisabledGate:
    return DisabledGate(gate=gate, until=until, by="storage team", reason="false alarms with DCGM 4.6.1")


def test_a_gate_that_is_switched_off_is_a_skip_everywhere_and_its_parts_are_left_out(tmp_path: Path) -> None:
    last = today() + timedelta(days=3)
    played = play(tmp_path, Rack(), disabled=[off(PAIR, last), off(RING, last)])
    said_of = f"switched off until {last} by storage team: false alarms with DCGM 4.6.1"
    assert set(outcomes(played).values()) == {Outcome.PASS}
    assert {played.results[node].data["gates"][PAIR] for node in NODES} == {"skip"}
    assert played.results["node02"].data["skipped"]["node02/rail1"] == f"{PAIR}: {said_of}; {RING}: {said_of}"
    assert played.store.records(gate=PAIR, target="node04")[0].verdict.note == said_of
    report = build(played.site, played.paths, "c1")
    assert [(skip["gate"], skip["until"], skip["by"], skip["nodes"]) for skip in report["declared_skips"]] == [
        (gate, str(last), "storage team", ["all"]) for gate in (PAIR, RING)
    ]
    assert said_of in render(report)


def test_a_kill_switch_that_is_past_lets_the_gate_run_and_is_told(tmp_path: Path) -> None:
    played = play(
        tmp_path,
        Rack(),
        nodes=["node01"],
        only=["node/gpu/sanity/inventory"],
        disabled=[off("node/gpu/sanity/inventory", date(2026, 1, 31))],
    )
    assert played.results["node01"].data["gates"] == {"node/gpu/sanity/inventory": "pass"}
    warning = (
        "gates.disabled[0]: the kill switch of node/gpu/sanity/inventory ended on 2026-01-31; the gate runs again. "
        "Remove the entry, or have storage team renew it with a new date and reason."
    )
    assert [event.text for event in played.ledger.events("c1") if event.level == "warn"] == [warning]
    report = build(played.site, played.paths, "c1")
    assert (report["declared_skips"], report["warnings"]) == ([], [warning])


def test_one_node_alone_cannot_pass_a_pair_gate(tmp_path: Path) -> None:
    played = play(tmp_path, Rack(), nodes=["node01"])
    assert outcomes(played) == {"node01": Outcome.ERROR}
    assert played.results["node01"].data["gates"][PAIR] == "not_run"
    assert any("it needs 2 nodes, 1 of 1 can take part" in text_ for text_ in played.results["node01"].data["findings"])


def test_partners_help_and_are_not_judged(tmp_path: Path) -> None:
    played = play(tmp_path, Rack(ring=("node01", "node02")), nodes=["node01"], partners=["node02"])
    assert outcomes(played) == {"node01": Outcome.PASS}
    assert played.store.records(target="node02") == []


def test_a_bad_node_takes_nothing_from_its_partner(tmp_path: Path) -> None:
    played = play(
        tmp_path, Rack(bad_writes=frozenset({("node01", "mlx5_9")})), nodes=["node01"], partners=["node02"], only=[PAIR]
    )
    assert outcomes(played) == {"node01": Outcome.FAIL}
    assert played.store.records(target="node02") == []


def test_only_what_is_due_is_run_and_coverage_is_over_both(tmp_path: Path) -> None:
    """After a boot of node01 its pair gate is due, the others count; node02 lacks only its inventory."""
    first = play(tmp_path, Rack(ring=("node01", "node02")), nodes=["node01", "node02"])
    records = {
        node: {record.gate: record.verdict for record in first.store.records(target=node)}
        for node in ("node01", "node02")
    }
    kept = {"node01": {gate: verdict for gate, verdict in records["node01"].items() if gate != PAIR}}
    kept["node02"] = {
        gate: verdict for gate, verdict in records["node02"].items() if gate != "node/gpu/sanity/inventory"
    }
    before = len(first.store.records())
    again = play(tmp_path, Rack(ring=("node01", "node02")), nodes=["node01", "node02"], kept=kept)
    assert outcomes(again) == {"node01": Outcome.PASS, "node02": Outcome.PASS}
    fresh = [
        (record.target, record.gate)
        for record in again.store.records()[before:]
        if record.target in {"node01", "node02"}
    ]
    written = [
        ("node01", COVERAGE),
        ("node01", PAIR),
        ("node01", PAIR),
        ("node02", COVERAGE),
        ("node02", "node/gpu/sanity/inventory"),
    ]
    assert sorted(fresh) == written, "what the pair gate measured, and again with what its fleet adds"
    assert again.results["node01"].data["coverage"] == first.results["node01"].data["coverage"]


def test_a_fault_that_shows_now_is_not_covered_by_what_was_kept(tmp_path: Path) -> None:
    first = play(tmp_path, Rack(ring=("node01", "node02")), nodes=["node01", "node02"])
    kept = {
        "node01": {
            record.gate: record.verdict
            for record in first.store.records(target="node01")
            if record.gate != "node/gpu/sanity/inventory"
        }
    }
    link = {"node01": {"inventory": answered(text("nvml/dgx_h100_gpu2_link4_inactive.json"))}}
    again = play(tmp_path, Rack(link), nodes=["node01"], kept=kept)
    assert outcomes(again) == {"node01": Outcome.FAIL}


def test_nothing_run_is_no_pass(tmp_path: Path) -> None:
    assert outcomes(play(tmp_path, Rack(), nodes=["node01"], only=[]))["node01"] is not Outcome.PASS


def test_evidence_and_progress_name_every_attempt(tmp_path: Path) -> None:
    flaky = {"node01": {"inventory": answered("")}}
    played = play(tmp_path, Rack(flaky), nodes=["node01"], only=["node/gpu/sanity/inventory"])
    assert [record.inputs["attempt"] for record in played.store.records(target="node01")] == [1, 2]
    texts = [event.text for event in played.ledger.events("c1")]
    assert any(line.startswith("node/gpu/sanity/inventory begins: Every GPU is there") for line in texts)
    assert any("(second attempt)" in line for line in texts)


@pytest.fixture
def reported(tmp_path: Path) -> dict[str, Any]:
    rack = Rack(
        {
            "node03": {
                "inventory": answered(
                    text("nvml/dgx_h100_gpu2_link4_inactive.json").replace("H100 80GB HBM3", "H100 <b>80GB</b>")
                )
            }
        },
        ring=("node01", "node02"),
    )
    skips = [DeclaredSkip(gate=RING, nodes=["node04"], reason="switch <port> of it is being replaced")]  # type: ignore[list-item]
    played = play(tmp_path, rack, skips=skips, only=["node/gpu/sanity/inventory", PAIR, RING])
    return build(played.site, played.paths, "c1")


def test_the_report_says_everything_that_was_found(reported: dict[str, Any]) -> None:
    html = render(reported)
    bad = next(node for node in reported["nodes"] if node["name"] == "node03")
    assert bad["outcome"] == "fail"
    texts = [finding["text"] for gate in bad["gates"] for finding in gate["findings"]]
    assert any("NVLink down - Expected: 18 links active Actual: 17 (link 4 inactive)" in line for line in texts)
    assert "NVLink down - Expected: 18 links active Actual: 17 (link 4 inactive)" in html
    assert "switch &lt;port&gt; of it is being replaced" in html
    assert json.dumps(reported)


def test_the_report_loads_nothing_and_escapes_everything(reported: dict[str, Any]) -> None:
    html = render(reported).replace('xmlns="http://www.w3.org/2000/svg"', "")  # a name, not an address
    assert "<b>80GB" not in html
    for word in ("http://", "https://", "<script", "src=", "@import", "url("):
        assert word not in html, word


def test_the_report_names_raw_output_by_hash(reported: dict[str, Any], tmp_path: Path) -> None:
    gate = next(
        gate
        for node in reported["nodes"]
        if node["name"] == "node01"
        for gate in node["gates"]
        if gate["gate"] == "node/gpu/sanity/inventory"
    )
    digest = gate["raw"][0]["stdout_sha256"]
    paths = EnvPaths(tmp_path, "sim")
    assert EvidenceStore.read_only(Ledger.read_only(paths.database), paths.raw).raw(digest) == text(
        "nvml/dgx_h100_healthy.json"
    )
