"""Golden file docs/reference/findings.md: the text of every finding. `GOLDENS=rewrite pytest tests/golden` rewrites."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from rackready.gates.engine.registry import all_gates
from rackready.gates.judging import common_findings
from rackready.gates.judging.finding_kinds import FindingKind
from tests.gates.unshown import product_kinds

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "findings.md"
HEAD = """\
# Findings

Generated from the declarations beside the gates (`make goldens`). A finding keeps its code when its words change:
compare codes, not words. Codes are in the JSON of verdicts and reports, in the `type` of failures in JUnit, and beside
each finding of the HTML report. The measurement fills in `{...}`.
"""


def page() -> str:
    """Every kind of finding, by its code."""
    gates = all_gates()
    by_code: dict[str, list[str]] = {}
    for gate, kind in gates.items():
        for found in kind.findings:
            by_code.setdefault(found.code, []).append(gate)
    common = {found.code for found in common_findings.FINDINGS}
    return HEAD + "".join(
        "\n" + "\n".join(lines(found, common, by_code.get(code, []))) + "\n" for code, found in product_kinds().items()
    )


def lines(found: FindingKind, common: set[str], gates: list[str]) -> Iterator[str]:
    by = (
        "every gate"
        if found.code in common
        else ", ".join(f"`{gate}`" for gate in gates) or found.by or "what runs gates and concludes from them"
    )
    yield f"## {found.code}\n"
    yield f"{found.title}\n"
    yield f"{found.meaning}\n"
    yield f"- {found.outcome.value}, found by {by}"
    for step in found.steps or (found.next_step,):
        yield f"- next step: {step}"
    if found.runbook:
        yield f"- runbook: [{Path(found.runbook).stem}](../runbooks/{Path(found.runbook).name})"


def test_every_finding_reads_as_reviewed() -> None:
    if os.environ.get("GOLDENS") == "rewrite":
        PAGE.write_text(page(), encoding="utf-8")
    assert page() == PAGE.read_text(encoding="utf-8"), "run: make goldens, and read the difference"


def test_a_step_with_a_repair_is_a_whole_command() -> None:
    """`rackready repair` takes a node and a reason, and refuses a call without them."""
    steps = {step for kind in product_kinds().values() for step in (kind.next_step, *kind.steps)}
    named = [command for step in steps for command in re.findall(r"`rackready repair[^`]*`", step)]
    assert named
    assert [
        command for command in named if not re.fullmatch(r"`rackready repair \{\w+\} --reason '...'`", command)
    ] == []
