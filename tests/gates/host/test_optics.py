"""The optics gate never passes ports with missing or partial readings, or of two kinds without a majority."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from rackready.model.outcome import Outcome
from tests.gates.host.machine import Node
from tests.gates.host.test_judgement import WHERE, Change, judge
from tests.gates.support import tells, told

OPTICS, PART, FEC = "node/host/validation/optics", "MMA4Z00-NS400", "Standard_RS-FEC - (544,514)"
WATCHED = ("Temperature [C]", "Voltage [mV]", "Bias Current [mA]", "Rx Power Current [dBm]", "Tx Power Current [dBm]")
SILENT = dict.fromkeys(WATCHED, "N/A")
DAC = {
    "Cable Type": "Passive copper cable",
    "Cable Technology": "Copper cable unequalized",
    "Digital Diagnostic Monitoring": "No",
}
AOC = {"Cable Type": "Active cable (active copper / optics)", "Digital Diagnostic Monitoring": "No"}
HALF = 4


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(tmp_path, monkeypatch)


def ports(section: str, count: int, values: Mapping[str, str]) -> Change:
    """Change what mlxlink says of the first ports."""

    def change(found: dict[str, dict[str, dict[str, str]]]) -> None:
        for key in [key for key in found["commands"] if key.startswith("mlxlink-")][:count]:
            tool = found["commands"][key]
            said_ = json.loads(tool["stdout"])
            said_["result"]["output"][section].update(values)
            tool["stdout"] = json.dumps(said_)

    return change


@pytest.mark.parametrize(
    ("code", "change", "expected", "actual"),
    [
        (
            "module-part-no-majority",
            ports("Module Info", HALF, {"Vendor Part Number": "MMS4X00"}),
            "one part on most of the node's 8 ports, or the right ones declared",
            "MMS4X00 (MMA4Z00-NS400 on 4, MMS4X00 on 4)",
        ),
        (
            "fec-no-majority",
            ports("Operational Info", HALF, {"FEC": "No FEC"}),
            "one on most of the node's 8 ports",
            f"No FEC (No FEC on 4, {FEC} on 4)",
        ),
    ],
    ids=["part", "fec"],
)
def test_ports_without_a_majority_to_follow_fail(
    node: Node, code: str, change: Change, expected: str, actual: str
) -> None:
    verdict = judge(node, OPTICS, change)
    assert (verdict.outcome, len(verdict.findings), verdict.measured) == (Outcome.FAIL, 8, [])
    assert tells(verdict)[0] == (code, WHERE, expected, actual)


def test_parts_that_are_declared_need_no_majority_and_have_error_correction_of_their_own(node: Node) -> None:
    def change(found: dict[str, dict[str, dict[str, str]]]) -> None:
        ports("Module Info", HALF, {"Vendor Part Number": "MCP4Y10-N001", **DAC, **SILENT})(found)
        ports("Operational Info", HALF, {"FEC": "Interleaved_Low_Latency_RS-FEC - (272,257)"})(found)

    def one_without(found: dict[str, dict[str, dict[str, str]]]) -> None:
        change(found)
        ports("Operational Info", 1, {"FEC": "No FEC"})(found)

    inputs = {"parts": [PART, "MCP4Y10-N001"]}
    assert judge(node, OPTICS, change, inputs=inputs).outcome is Outcome.PASS
    expected = "Interleaved_Low_Latency_RS-FEC - (272,257), as 3 of the node's 4 ports with MCP4Y10-N001 have"
    assert tells(judge(node, OPTICS, one_without, inputs=inputs)) == [("fec-other", WHERE, expected, "No FEC")]


def test_optical_modules_of_which_none_reports_anything_are_errors(node: Node) -> None:
    verdict = judge(node, OPTICS, ports("Module Info", 8, SILENT))
    assert (verdict.outcome, len(verdict.findings), verdict.measured) == (Outcome.ERROR, 8 * len(WATCHED), [])
    assert told(verdict.findings[0]) == (
        "module-no-readings",
        WHERE,
        "a reading: the module is optical, not copper, so it has sensors",
        "nothing",
        "what=module temperature",
    )


def test_copper_has_nothing_to_report_and_an_optical_cable_without_sensors_is_noted(node: Node) -> None:
    copper = judge(node, OPTICS, ports("Module Info", 8, {**DAC, **SILENT}))
    assert (copper.outcome, copper.note, len(copper.measured)) == (Outcome.PASS, None, 9)
    cable = judge(node, OPTICS, ports("Module Info", 8, {**AOC, **SILENT}))
    note = "an optical cable has no sensors (digital diagnostic monitoring): its light and temperature are not judged"
    assert (cable.outcome, cable.note) == (Outcome.PASS, note)


@pytest.mark.parametrize("count", [1, 8])
def test_light_that_is_told_of_some_lanes_only_is_an_error(node: Node, count: int) -> None:
    verdict = judge(node, OPTICS, ports("Module Info", count, {"Rx Power Current [dBm]": "1.2,1.1 [-8.5..5]"}))
    assert (verdict.outcome, len(verdict.findings)) == (Outcome.ERROR, count)
    assert tells(verdict)[0] == ("module-lanes-missing", WHERE, "4 lanes", "2", "what=received light")
