"""JUnit XML of a report for pipelines: one suite per node, one test case per gate.

It is made suite by suite, so that no site is too large.

Fail is a failure. Error and not_run are errors: an unmeasured gate is not a pass. A skip is skipped, with its reason.
Coverage is a case like a gate. A node that is set aside has the failure `state`, with its reason, and a campaign that
has no end an error of its own. Of a run over several nodes that was tried again after an error, only the last attempt
is a case. Other runs of one gate and target (waves of a cluster) are numbered from the second on: of two cases with one
name GitLab reads only the first (docs.gitlab.com/ci/testing/unit_test_reports).

The type of a failure or error is the code of its finding (several in their order), or the outcome when no finding has a
code.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from xml.etree import ElementTree as ET

from rackready.evidence.attempts import counting_runs
from rackready.evidence.faults import ASIDE
from rackready.evidence.report_source import unfinished
from rackready.model.evidence import COVERAGE
from rackready.model.outcome import CONTINUES, FLEET_PENDING

_ERRORS = frozenset({"error", "not_run"})
_CONTROL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 does not allow (section 2.2, Char)."""
_COUNTED = {"failure": "failures", "error": "errors", "skipped": "skipped"}
HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n'
FOOT = "</testsuites>\n"


@dataclass(slots=True)
class Totals:
    """Counts of a suite, or of all of them. ``time``: seconds."""

    tests: int = 0
    failures: int = 0
    errors: int = 0
    skipped: int = 0
    time: float = 0.0
    runs: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Gate and target -> the runs over several nodes that were counted so far."""

    def add(self, other: Totals) -> None:
        """Add the counts of another."""
        for name in ("tests", "failures", "errors", "skipped", "time"):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def count(self, case: ET.Element) -> None:
        """Add one test case."""
        self.tests += 1
        self.time += float(case.get("time", 0))
        for child in case:
            if name := _COUNTED.get(child.tag):
                setattr(self, name, getattr(self, name) + 1)

    def attributes(self) -> dict[str, str]:
        """Return the counts as XML attributes."""
        return {
            **{name: str(getattr(self, name)) for name in ("tests", "failures", "errors", "skipped")},
            "time": f"{self.time:.1f}",
        }


def junit(report: Mapping[str, Any]) -> str:
    """Return the XML of a report document (``rackready/report/v1``)."""
    own, totals = campaign_suite(report)
    suites = [own]
    for node in report["nodes"]:
        text, found = suite(node, report["generated"])
        suites.append(text)
        totals.add(found)
    if report["runs"]:
        found = Totals()
        cases = [run_case(run, found) for run in counting_runs(report["runs"])]
        suites += [runs_head(found, report["generated"]), *cases, SUITE_FOOT]
        totals.add(found)
    return "".join([HEAD, head(report, totals), *suites, FOOT])


def head(report: Mapping[str, Any], totals: Totals) -> str:
    """Return the opening tag of the root."""
    return _opened(
        "testsuites", {"name": f"rackready {report['site']} {report['campaign']['id']}", **totals.attributes()}, ""
    )


def suite(node: Mapping[str, Any], generated: str) -> tuple[str, Totals]:
    """Return the suite of a node, and its counts."""
    totals = Totals()
    cases = [_text(_case("node/state", _state(node), node["name"]), totals)] if node["state"] in ASIDE else []
    cases += [_text(_case(gate["gate"], gate, node["name"]), totals) for gate in node["gates"]]
    cases.append(_text(_case(COVERAGE, _coverage(node), node["name"]), totals))
    if node["result"] is not None:
        cases.append(
            _text(_case(f"campaign/{node['result']['phase']}", _campaign(node["result"]), node["name"]), totals)
        )
    return _suite_head(node["name"], totals, generated) + "".join(cases) + SUITE_FOOT, totals


SUITE_FOOT = "  </testsuite>\n"


def campaign_suite(report: Mapping[str, Any]) -> tuple[str, Totals]:
    """Return the suite of a campaign that has no end, and its counts; empty for one that has."""
    totals, status = Totals(), unfinished(report)
    if not status:
        return "", totals
    campaign = str(report["campaign"]["id"])
    text = f"campaign {campaign} - Expected: ended Actual: {status}. Run the same command: it goes on where it stopped."
    case = _text(_case("campaign/end", _entry("error", text), campaign), totals)
    return _suite_head("campaign", totals, str(report["generated"])) + case + SUITE_FOOT, totals


def run_case(run: Mapping[str, Any], totals: Totals) -> str:
    """Return the case of a run over several nodes, and count it."""
    key = (str(run["gate"]), str(run["target"]))
    totals.runs[key] += 1
    number = totals.runs[key]
    return _text(_case(run["gate"], run, run["target"], f" ({number})" if number > 1 else ""), totals)


def runs_head(totals: Totals, generated: str) -> str:
    """Return the opening tag of the suite of runs over several nodes, once all are counted."""
    return _suite_head("runs over several nodes", totals, generated)


def _suite_head(name: str, totals: Totals, generated: str) -> str:
    return _opened("testsuite", {"name": name, **totals.attributes(), "timestamp": generated}, "  ")


def _opened(tag: str, attributes: Mapping[str, str], indent: str) -> str:
    element = ET.Element(tag, {name: _clean(value) for name, value in attributes.items()})
    return f"{indent}{ET.tostring(element, encoding='unicode').removesuffix(' />')}>\n"


def _text(case: ET.Element, totals: Totals) -> str:
    totals.count(case)
    ET.indent(case, level=2)
    return f"    {ET.tostring(case, encoding='unicode')}\n"


def _state(node: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entry of a node that is set aside: no pass of a gate makes it good."""
    text = f"{node['name']}: {node['state']}" + (f": {node['reason']}" if node["reason"] else "")
    return _entry("fail", text, code=node["state"])


def _coverage(node: Mapping[str, Any]) -> dict[str, Any]:
    found = node["coverage"]
    unmeasured = ", ".join(found["unmeasured"])
    text = (
        f"{node['name']}: not measured: {unmeasured}" if unmeasured else f"{node['name']}: coverage {found['outcome']}"
    )
    note = "; ".join(sorted(set(found["skipped"].values()))) or None
    said = found.get("note") or text
    return _entry(found["outcome"], said if found["outcome"] != "pass" else "", note=note)


def _campaign(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the node's last result in the campaign as an entry."""
    return _entry(result["outcome"], "" if result["outcome"] in CONTINUES else result["message"] or result["outcome"])


def _entry(outcome: str, text: str, *, code: str = "", note: str | None = None) -> dict[str, Any]:
    """Return the entry of what no gate measured."""
    findings = [{"text": text, "code": code}] if text else []
    return {"outcome": outcome, "findings": findings, "note": note, "seconds": 0.0, "metrics": []}


def _case(gate: str, entry: Mapping[str, Any], target: str, number: str = "") -> ET.Element:
    """Return one test case. Its class is the gate without its last part, with dots, because viewers group by it.

    The target in its name, and the number behind it, tell runs apart.
    """
    group, _, name = gate.rpartition("/")
    case = ET.Element(
        "testcase",
        {
            "classname": group.replace("/", "."),
            "name": _clean(f"{name} [{target}]{number}"),
            "time": f"{entry['seconds']:.1f}",
        },
    )
    case.extend(_result(entry))
    output = "\n".join(_output(entry))
    if output:
        ET.SubElement(case, "system-out").text = _clean(output)
    return case


def _result(entry: Mapping[str, Any]) -> Iterator[ET.Element]:
    outcome = str(entry["outcome"])
    texts = [str(finding["text"]) for finding in entry["findings"]]
    codes = list(dict.fromkeys(str(finding["code"]) for finding in entry["findings"] if finding.get("code")))
    first = texts[0] if texts else str(entry.get("note") or outcome)
    if outcome == "skip":
        yield ET.Element("skipped", {"message": _clean(str(entry.get("note") or first))})
    elif outcome == "fail" or outcome in _ERRORS:
        found = ET.Element(
            "failure" if outcome == "fail" else "error", {"type": " ".join(codes) or outcome, "message": _clean(first)}
        )
        found.text = _clean("\n".join(texts))
        yield found
    elif outcome != "pass":
        yield ET.Element("error", {"type": "unknown", "message": _clean(f"outcome {outcome!r} is not known")})


def _output(entry: Mapping[str, Any]) -> Iterator[str]:
    for metric in entry.get("metrics", []):
        yield f"{metric['name']} on {metric['target']}: {metric['value']:g} {metric['unit']}"
    if entry.get("fleet_pending"):
        yield f"note: {FLEET_PENDING}"
    if entry.get("note") and entry["outcome"] == "pass":
        yield f"note: {entry['note']}"


def _clean(text: str) -> str:
    """Replace characters that XML cannot hold: tools print control characters."""
    return _CONTROL.sub("\ufffd", text)
