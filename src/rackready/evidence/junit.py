"""JUnit XML of a report document, for pipelines that read nothing else: one suite a node, one test case a gate.

Fail is a failure. Error and not_run are errors: what was not measured is no pass. A skip is skipped, with its reason. Coverage is a case like a gate.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from xml.etree import ElementTree as ET

COVERAGE = "node/all/sanity/coverage"
_ERRORS = frozenset({"error", "not_run"})
_CONTROL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 does not allow (section 2.2, Char)."""


def junit(report: Mapping[str, Any]) -> str:
    """Return the XML of a report document (``rackready/report/v1``)."""
    suites = [_suite(node, report) for node in report["nodes"]]
    runs = [_case(run["gate"], run, run["target"]) for run in report["runs"]]
    if runs:
        suites.append(_of_cases("runs over several nodes", runs, str(report["generated"])))
    root = ET.Element("testsuites", {"name": _clean(f"rackready {report['site']} {report['campaign']['id']}"), **_totals(suites)})
    root.extend(suites)
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _suite(node: Mapping[str, Any], report: Mapping[str, Any]) -> ET.Element:
    cases = [_case(gate["gate"], gate, node["name"]) for gate in node["gates"]]
    cases.append(_case(COVERAGE, _coverage(node), node["name"]))
    return _of_cases(node["name"], cases, str(report["generated"]))


def _coverage(node: Mapping[str, Any]) -> dict[str, Any]:
    found = node["coverage"]
    unmeasured = ", ".join(found["unmeasured"])
    text = f"{node['name']}: not measured: {unmeasured}" if unmeasured else f"{node['name']}: coverage {found['outcome']}"
    note = "; ".join(sorted(set(found["skipped"].values()))) or None
    return {"outcome": found["outcome"], "findings": [{"text": text}] if found["outcome"] != "pass" else [], "note": note, "seconds": 0.0, "metrics": []}


def _of_cases(name: str, cases: list[ET.Element], stamp: str) -> ET.Element:
    kinds = Counter(child.tag for case in cases for child in case if child.tag != "system-out")
    seconds = sum(float(case.get("time", 0)) for case in cases)
    counts = {"tests": len(cases), "failures": kinds["failure"], "errors": kinds["error"], "skipped": kinds["skipped"]}
    suite = ET.Element("testsuite", {"name": _clean(name), **{key: str(value) for key, value in counts.items()}, "time": f"{seconds:.1f}", "timestamp": stamp})
    suite.extend(cases)
    return suite


def _totals(suites: Iterable[ET.Element]) -> dict[str, str]:
    suites = list(suites)
    out = {name: str(sum(int(suite.get(name, 0)) for suite in suites)) for name in ("tests", "failures", "errors", "skipped")}
    return {**out, "time": f"{sum(float(suite.get('time', 0)) for suite in suites):.1f}"}


def _case(gate: str, entry: Mapping[str, Any], target: str) -> ET.Element:
    """Return one test case: class is the gate without its last part, with dots, as viewers group them; the target tells runs apart."""
    group, _, name = gate.rpartition("/")
    case = ET.Element("testcase", {"classname": group.replace("/", "."), "name": _clean(f"{name} [{target}]"), "time": f"{entry['seconds']:.1f}"})
    case.extend(_result(entry))
    said = "\n".join(_said(entry))
    if said:
        ET.SubElement(case, "system-out").text = _clean(said)
    return case


def _result(entry: Mapping[str, Any]) -> Iterator[ET.Element]:
    outcome = str(entry["outcome"])
    texts = [str(finding["text"]) for finding in entry["findings"]]
    first = texts[0] if texts else str(entry.get("note") or outcome)
    if outcome == "skip":
        yield ET.Element("skipped", {"message": _clean(str(entry.get("note") or first))})
    elif outcome == "fail" or outcome in _ERRORS:
        found = ET.Element("failure" if outcome == "fail" else "error", {"type": outcome, "message": _clean(first)})
        found.text = _clean("\n".join(texts))
        yield found
    elif outcome != "pass":
        yield ET.Element("error", {"type": "unknown", "message": _clean(f"outcome {outcome!r} is not known")})


def _said(entry: Mapping[str, Any]) -> Iterator[str]:
    for metric in entry.get("metrics", []):
        yield f"{metric['name']} on {metric['target']}: {metric['value']:g} {metric['unit']}"
    if entry.get("note") and entry["outcome"] == "pass":
        yield f"note: {entry['note']}"


def _clean(text: str) -> str:
    """Replace what XML cannot hold: tools print control characters."""
    return _CONTROL.sub("\ufffd", text)
