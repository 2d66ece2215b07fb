"""The firmware gate with a declared baseline, and across identical nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from rackready.gates.base import FinishedRun
from rackready.gates.engine.registry import GateInputsError, gate
from rackready.model.outcome import Outcome, Verdict
from tests.gates.host.machine import Node, facts
from tests.gates.host.test_judgement import Change, Document, judge
from tests.gates.support import tells


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(tmp_path, monkeypatch)


def test_a_declared_baseline_counts_even_if_all_parts_agree(node: Node) -> None:
    verdict = judge(
        node,
        "group/host/validation/firmware",
        inputs={"baseline": {"NIC MT_0000000838": "28.44.1036", "NIC MT_9": "1"}},
    )
    assert len(verdict.findings) == 8
    assert tells(verdict)[0] == (
        "firmware-version",
        "node01 mlx5_0",
        "28.44.1036 (declared)",
        "28.43.2566",
        "kind=NIC MT_0000000838",
    )
    assert verdict.note == (
        "compared with the declared baseline; declared but not found: NIC MT_9; not judged, as there is only "
        "one: BIOS of DGXH100"
    )


def psids(*boards: str) -> Change:
    """Give the first compute NICs these PSIDs; the others keep theirs."""

    def change(found: Document) -> None:
        paths = [path for path in found["files"] if path.endswith("board_id")]
        for path, board in zip(paths, boards, strict=False):
            found["files"][path] = {path: board}

    return change


FIRMWARE, NIC = "group/host/validation/firmware", "NIC MT_0000000838"


@pytest.mark.parametrize("count", [8, 1], ids=["all", "one"])
def test_a_part_missing_in_the_declared_baseline_is_an_error(node: Node, count: int) -> None:
    inputs = {"baseline": {NIC: "28.43.2566", "NIC MT_9": "1"}}
    verdict = judge(node, FIRMWARE, psids(*["HPE0000000"] * count), inputs=inputs)
    finding = verdict.findings[0]
    assert (len(verdict.findings), verdict.outcome, verdict.measured, verdict.blamed) == (
        1,
        Outcome.ERROR,
        [],
        ["node01"],
    )
    assert (finding.where, finding.what, finding.expected) == (
        "node01 NIC HPE0000000",
        "NIC missing in the firmware baseline",
        f"{NIC} or NIC MT_9 (declared)",
    )
    assert finding.actual == ", ".join(
        f"{name} has 28.43.2566"
        for name in ("mlx5_0", "mlx5_3", "mlx5_4", "mlx5_5", "mlx5_6", "mlx5_9", "mlx5_10", "mlx5_11")[:count]
    )
    assert finding.next_step == (
        "Install a declared part, or also declare this kind of part (input `baseline`: 'NIC HPE0000000' and the "
        "wanted version)."
    )


def test_a_baseline_may_name_parts_that_a_node_does_not_have(node: Node) -> None:
    inputs = {"baseline": {NIC: "28.43.2566", "NIC HPE0000000": "28.43.2566", "VBIOS of NVIDIA H200": "96.00.D0.00.01"}}
    both = judge(
        node,
        FIRMWARE,
        psids("HPE0000000"),
        inputs={"baseline": {name: inputs["baseline"][name] for name in (NIC, "NIC HPE0000000")}},
    )
    assert (both.outcome, both.measured) == (Outcome.PASS, ["node01"])
    other = judge(node, FIRMWARE, inputs=inputs)
    assert [item[:2] for item in tells(other)] == [
        ("firmware-not-in-baseline", "node01 VBIOS of NVIDIA H100 80GB HBM3")
    ]


def test_a_declared_bios_counts_by_its_numbers(node: Node) -> None:
    """The package of a DGX H100 has 1.06.07 of the BIOS that calls itself 1.6.7."""
    found = judge(node, FIRMWARE, inputs={"baseline": {"BIOS of DGXH100": "1.06.07"}})
    assert (found.outcome, tells(found)) == (Outcome.PASS, [])


def test_a_baseline_that_names_no_kind_of_part_is_refused() -> None:
    with pytest.raises(GateInputsError) as error:
        gate(FIRMWARE, {"baseline": {"Nic MT_0000000838": "28.43.2566", NIC: "28.43.2566"}})
    assert str(error.value) == (
        f"inputs.baseline: gate {FIRMWARE} - Expected: names that begin with BIOS of, NIC, VBIOS of, drive; no part is "
        "called Nic MT_0000000838, so this would never be checked. "
        f"Correct it; `rackready gate show {FIRMWARE}` describes the inputs."
    )


def fleet(tmp_path: Path, patch: pytest.MonkeyPatch, faults: Mapping[str, str], lost: str = "") -> dict[str, Verdict]:
    """Return the firmware gate's verdict on each of three nodes, with faults by node; one may be out of reach."""
    names = ("node01", "node02", "node03")
    known, made, outputs = facts(*names), gate("group/host/validation/firmware"), {}
    run = made.plan(known, names)[0]
    for command in run.commands:
        one = Node(tmp_path / command.node, patch, command.node)
        if command.node in faults:
            one.inject("bios-version", version=faults[command.node])
        outputs[command.key] = replace(
            one.answer(command), **({"failure": "no answer"} if command.node == lost else {})
        )
    by_node = made.attribute(known, [FinishedRun(run, made.evaluate(known, run, outputs))])
    return {name: items[0] for name, items in by_node.items()}


def test_a_node_out_of_reach_is_an_error_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = fleet(tmp_path, monkeypatch, {"node02": "1.5.3"}, lost="node03")
    assert {name: verdict.outcome for name, verdict in found.items()} == {
        "node01": Outcome.FAIL,
        "node02": Outcome.FAIL,
        "node03": Outcome.ERROR,
    }
    assert tells(found["node01"]) == [
        ("firmware-no-majority", "node01 BIOS of DGXH100", "one version on alike parts", "1.5.3, 1.6.7")
    ]
    assert tells(found["node03"]) == [
        ("command-could-not-run", "node03", "a result", "no answer", "command=reading of firmware", "node=node03")
    ]


def test_the_majority_of_identical_nodes_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = fleet(tmp_path, monkeypatch, {"node01": "1.5.3", "node02": "1.5.3"})
    assert {name: verdict.outcome for name, verdict in found.items()} == {
        "node01": Outcome.PASS,
        "node02": Outcome.PASS,
        "node03": Outcome.FAIL,
    }
