"""A wave as a campaign: its site, and the kinds of what went wrong in it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from rackready.campaign.controller import Finished
from rackready.campaign.summary import NodeSummary
from rackready.campaign.upgrade import moves
from rackready.evidence.store import EvidenceStore
from rackready.model.outcome import Outcome

RECORD = SimpleNamespace(
    gate="node/gpu/sanity/ecc",
    verdict=SimpleNamespace(outcome=Outcome.FAIL, findings=[SimpleNamespace(code="ecc-uncorrectable")]),
)
GOOD = SimpleNamespace(gate="node/gpu/sanity/xid", verdict=SimpleNamespace(outcome=Outcome.PASS, findings=[]))


def store(*records: Any) -> EvidenceStore:
    return cast("EvidenceStore", SimpleNamespace(records=lambda **_: list(records)))


def kinds(result: dict[str, Any], found: EvidenceStore, *, findings: list[Any] | None = None) -> list[str]:
    row = NodeSummary("node01", "x", result["phase"], result["outcome"], changed=False, reason="", findings=findings)
    made = moves._result(row, Finished("c1", {"node01": result}, resumed=False), found)
    return list(made["kinds"])


@pytest.mark.parametrize(
    ("result", "found", "findings", "expected"),
    [
        ({"phase": "handover", "outcome": "pass"}, store(RECORD), None, []),
        (
            {"phase": "validate", "outcome": "fail"},
            store(RECORD, GOOD),
            None,
            ["node/gpu/sanity/ecc ecc-uncorrectable"],
        ),
        ({"phase": "validate", "outcome": "fail"}, store(), ["node01: in words"], ["validate fail"]),
        ({"phase": "provision", "outcome": "fail"}, store(), [{"code": "part-missing"}], ["provision part-missing"]),
        (
            {"phase": "install", "outcome": "fail", "broken": ["nvidia_driver : change | Load it"]},
            store(),
            None,
            ["install nvidia_driver : change | Load it"],
        ),
        ({"phase": "install", "outcome": "error"}, store(), None, ["install error"]),
    ],
    ids=["good", "a gate", "words only", "codes of a phase", "a task", "nothing known"],
)
def test_kinds_are_codes_and_never_words(
    result: dict[str, Any], found: EvidenceStore, findings: list[Any] | None, expected: list[str]
) -> None:
    assert kinds(result, found, findings=findings) == expected
