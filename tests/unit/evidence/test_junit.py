"""JUnit XML: a case per gate and node, outcomes as they are, correct counts, the structure that readers expect."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree as ET

import pytest

from rackready.evidence.junit import junit
from rackready.model.evidence import COVERAGE

CHILDREN = {
    "testsuites": {"testsuite"},
    "testsuite": {"testcase"},
    "testcase": {"failure", "error", "skipped", "system-out"},
}
"""The part of the JUnit schema that we write (Jenkins' xunit plugin, Ant's junitreport): element -> its children."""
COUNTS = ("tests", "failures", "errors", "skipped")
REQUIRED = {
    "testsuites": {"name", *COUNTS, "time"},
    "testsuite": {"name", *COUNTS, "time", "timestamp"},
    "testcase": {"classname", "name", "time"},
    "failure": {"type", "message"},
    "error": {"type", "message"},
    "skipped": {"message"},
    "system-out": set(),
}


def entry(gate: str, outcome: str, *texts: str, note: str | None = None, target: str = "node01") -> dict[str, Any]:
    metrics = [{"name": "busbw", "target": target, "value": 476.25, "unit": "GB/s"}]
    return {
        "gate": gate,
        "target": target,
        "outcome": outcome,
        "findings": [{"text": text} for text in texts],
        "note": note,
        "seconds": 2.5,
        "metrics": metrics,
    }


def node(name: str, *gates: dict[str, Any], coverage: str = "pass", unmeasured: tuple[str, ...] = ()) -> dict[str, Any]:
    return {
        "name": name,
        "state": "ready",
        "reason": "",
        "gates": list(gates),
        "coverage": {"outcome": coverage, "unmeasured": list(unmeasured), "skipped": {}},
        "result": None,
    }


def report(*nodes: dict[str, Any], runs: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    return {
        "site": "sim",
        "campaign": {"id": "c1"},
        "generated": "2026-11-22T07:00:00+00:00",
        "nodes": list(nodes),
        "runs": list(runs),
    }


def checked(document: dict[str, Any]) -> ET.Element:
    """Parse it and compare every element with the schema: children, attributes, and counts of what it holds."""
    root = ET.fromstring(junit(document))  # noqa: S314 - the text is our own
    assert root.tag == "testsuites"
    for element in root.iter():
        assert set(element.attrib) == REQUIRED[element.tag], element.tag
        assert {child.tag for child in element} <= CHILDREN.get(element.tag, set()), element.tag
        if element.tag == "testcase":
            assert len([child for child in element if child.tag != "system-out"]) <= 1
        if element.tag in {"testsuites", "testsuite"}:
            cases = list(element.iter("testcase"))
            found = {"tests": len(cases)} | {
                name: len(list(element.iter(tag))) for name, tag in (("failures", "failure"), ("errors", "error"))
            }
            assert {name: int(element.attrib[name]) for name in COUNTS} == {
                **found,
                "skipped": len(list(element.iter("skipped"))),
            }
            assert float(element.attrib["time"]) == pytest.approx(sum(float(case.attrib["time"]) for case in cases))
    return root


def results(root: ET.Element) -> dict[str, tuple[str, str]]:
    """Case -> (element, message)."""
    out = {}
    for case in root.iter("testcase"):
        kinds = [child for child in case if child.tag != "system-out"]
        out[f"{case.attrib['classname']}.{case.attrib['name']}"] = (
            (kinds[0].tag, kinds[0].attrib["message"]) if kinds else ("passed", "")
        )
    return out


def test_every_outcome_is_what_it_is() -> None:
    gates = [
        entry("node/gpu/sanity/inventory", "pass"),
        entry(
            "node/gpu/sanity/versions", "fail", "node01: driver - Expected: 580 Actual: 570. Install.", "node01: second"
        ),
        entry("node/gpu/validation/dcgm-r1", "error", "node01: DCGM did not end"),
        entry("node/gpu/validation/dcgm-r3", "not_run", "node01: dcgm-r3 was not run"),
        entry(
            "pair/fabric/performance/ib-write-bw",
            "skip",
            note="switched off until 2026-12-01 by storage team: false alarms",
        ),
    ]
    root = checked(report(node("node01", *gates)))
    assert results(root) == {
        "node.gpu.sanity.inventory [node01]": ("passed", ""),
        "node.gpu.sanity.versions [node01]": ("failure", "node01: driver - Expected: 580 Actual: 570. Install."),
        "node.gpu.validation.dcgm-r1 [node01]": ("error", "node01: DCGM did not end"),
        "node.gpu.validation.dcgm-r3 [node01]": ("error", "node01: dcgm-r3 was not run"),
        "pair.fabric.performance.ib-write-bw [node01]": (
            "skipped",
            "switched off until 2026-12-01 by storage team: false alarms",
        ),
        "node.all.sanity.coverage [node01]": ("passed", ""),
    }
    failure = next(root.iter("failure"))
    assert failure.text == "node01: driver - Expected: 580 Actual: 570. Install.\nnode01: second"
    assert [error.attrib["type"] for error in root.iter("error")] == ["error", "not_run"]
    assert "busbw on node01: 476.25 GB/s" in (next(root.iter("system-out")).text or "")


def test_the_type_is_the_codes_of_what_was_found() -> None:
    bad = entry(
        "node/gpu/sanity/nvlink",
        "fail",
        "node01 gpu2: NVLink down",
        "node01 gpu3: NVLink down",
        "node01 gpu3 nvlink4: NVLink speed",
    )
    for finding, code in zip(bad["findings"], ("nvlink-inactive", "nvlink-inactive", "nvlink-speed"), strict=True):
        finding["code"] = code
    assert [failure.attrib["type"] for failure in checked(report(node("node01", bad))).iter("failure")] == [
        "nvlink-inactive nvlink-speed"
    ]


def test_one_case_a_gate_and_node() -> None:
    ids = ["node/gpu/sanity/inventory", "node/gpu/sanity/versions"]
    root = checked(
        report(*(node(name, *(entry(gate, "pass", target=name) for gate in ids)) for name in ("node01", "node02")))
    )
    assert [suite.attrib["name"] for suite in root] == ["node01", "node02"]
    assert len({(case.attrib["classname"], case.attrib["name"]) for case in root.iter("testcase")}) == 2 * (
        len(ids) + 1
    )


def test_what_was_not_measured_is_an_error() -> None:
    root = checked(
        report(
            node("node01", coverage="error", unmeasured=("node01/gpu3", "node01/rail2")),
            node("node02", coverage="not_run"),
        )
    )
    assert results(root) == {
        f"{COVERAGE.replace('/', '.').replace('.coverage', '')}.coverage [node01]": (
            "error",
            "node01: not measured: node01/gpu3, node01/rail2",
        ),
        "node.all.sanity.coverage [node02]": ("error", "node02: coverage not_run"),
    }


def test_runs_over_several_nodes_have_a_suite_of_their_own() -> None:
    run = entry("pair/fabric/performance/ib-write-bw", "fail", "node01 mlx5_0: slow", target="node01+node02/rail1")
    run["nodes"] = ["node01", "node02"]
    root = checked(report(node("node01"), runs=(run,)))
    assert results(root)["pair.fabric.performance.ib-write-bw [node01+node02/rail1]"] == (
        "failure",
        "node01 mlx5_0: slow",
    )


def test_an_outcome_that_nobody_knows_is_no_pass() -> None:
    assert results(checked(report(node("node01", entry("node/gpu/sanity/inventory", "perhaps")))))[
        "node.gpu.sanity.inventory [node01]"
    ] == (
        "error",
        "outcome 'perhaps' is not known",
    )


def test_what_tools_print_cannot_break_the_file() -> None:
    hostile = 'node01: \x1b[31mbad\x00 <&> "quoted" ]]> \ud800 end'
    root = checked(report(node("node01", entry("node/gpu/sanity/inventory", "fail", hostile))))
    assert next(root.iter("failure")).attrib["message"] == 'node01: \ufffd[31mbad\ufffd <&> "quoted" ]]> \ufffd end'


def test_a_node_that_is_set_aside_fails_though_its_gates_passed() -> None:
    away = node("node02", entry("node/gpu/sanity/inventory", "pass")) | {
        "state": "quarantined",
        "reason": "rail 3 down",
    }
    root = checked(report(node("node01"), away))
    assert results(root)["node.state [node02]"] == ("failure", "node02: quarantined: rail 3 down")
    assert (root.attrib["tests"], root.attrib["failures"]) == ("4", "1")


def test_a_campaign_without_an_end_is_an_error() -> None:
    found = report(node("node01"))
    found["campaign"]["status"] = "running"
    root = checked(found)
    assert results(root)["campaign.end [c1]"] == (
        "error",
        "campaign c1 - Expected: ended Actual: running. Run the same command: it goes on where it stopped.",
    )
    assert root.attrib["errors"] == "1"
    found["campaign"]["status"] = "finished"
    assert checked(found).attrib["errors"] == "0"


def test_of_a_run_that_was_tried_again_only_the_last_attempt_is_a_case() -> None:
    gate, target = "pair/fabric/performance/ib-write-bw", "node01+node02/rail1"
    first, second, other = (
        entry(gate, outcome, *texts, target=target) | {"inputs": {"run": run}, "nodes": ["node02", "node01"]}
        for outcome, texts, run in (("error", ("no answer",), "a"), ("pass", (), "a"), ("pass", (), "b"))
    )
    root = checked(report(node("node01"), runs=(first, second)))
    assert (root.attrib["tests"], root.attrib["errors"]) == ("2", "0")
    root = checked(report(node("node01"), runs=(first, other)))
    assert (root.attrib["tests"], root.attrib["errors"]) == ("3", "1"), "another run of that target is no attempt"
