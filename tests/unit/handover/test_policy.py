"""Who may be handed over: a table of evidence and what it means."""

from __future__ import annotations

import pytest

from rackready.handover.policy import decide, declared_skips
from rackready.model.evidence import EvidenceRecord
from rackready.model.outcome import Finding, Outcome
from rackready.model.site import DeclaredSkip
from tests.unit.handover.evidence import ENTRIES, T0, good, record

VERSIONS, DCGM, EXTRA = (entry.id for entry in ENTRIES)
BAD = [Finding(where="node01 gpu2", what="NVLink down", expected="18 links", actual="17", next_step="Reseat the board.")]


def changed(**records: EvidenceRecord | None) -> dict[str, EvidenceRecord]:
    names = {"versions": VERSIONS, "dcgm": DCGM, "extra": EXTRA}
    out = {**good(), **{names[key]: value for key, value in records.items() if value is not None}}
    return {gate: value for gate, value in out.items() if gate not in {names[key] for key, value in records.items() if value is None}}


@pytest.mark.parametrize(
    ("records", "skips", "refusals"),
    [
        (changed(), {}, ()),
        (changed(extra=None), {}, ()),
        (changed(extra=record(EXTRA, Outcome.FAIL)), {}, ()),
        (
            changed(dcgm=None),
            {},
            (f"node01: {DCGM} - Expected: pass, measured on the node as it is now Actual: no such evidence. Run `rackready validate`.",),
        ),
        (
            changed(dcgm=record(DCGM, Outcome.FAIL, findings=BAD)),
            {},
            (f"node01: {DCGM} - Expected: pass Actual: fail. node01 gpu2: NVLink down - Expected: 18 links Actual: 17. Reseat the board.",),
        ),
        (changed(dcgm=record(DCGM, Outcome.ERROR)), {}, (f"node01: {DCGM} - Expected: pass Actual: error. Run `rackready validate`.",)),
        (changed(dcgm=record(DCGM, Outcome.NOT_RUN)), {}, (f"node01: {DCGM} - Expected: pass Actual: not_run. Run `rackready validate`.",)),
        (
            changed(dcgm=record(DCGM, Outcome.SKIP)),
            {},
            (f"node01: {DCGM} - Expected: pass Actual: skipped, but the site declares no such skip. Declare it with a reason (gates.skip), or measure.",),
        ),
        (changed(dcgm=record(DCGM, Outcome.SKIP)), {DCGM: "burnt in by the vendor"}, ()),
        (
            changed(dcgm=record(DCGM, Outcome.FAIL)),
            {DCGM: "burnt in by the vendor"},
            (f"node01: {DCGM} - Expected: pass Actual: fail. Run `rackready validate`.",),
        ),
    ],
)
def test_table(records: dict[str, EvidenceRecord], skips: dict[str, str], refusals: tuple[str, ...]) -> None:
    decision = decide("node01", ENTRIES, records, skips)
    assert decision.refusals == refusals
    assert decision.allowed is not bool(refusals)


def test_a_declared_skip_is_shown_with_its_reason() -> None:
    decision = decide("node01", ENTRIES, changed(dcgm=record(DCGM, Outcome.SKIP)), {DCGM: "burnt in by the vendor"})
    assert decision.skips == {DCGM: "burnt in by the vendor"}
    assert DCGM not in decision.passed


def test_an_advisory_gate_that_failed_is_shown() -> None:
    decision = decide("node01", ENTRIES, changed(extra=record(EXTRA, Outcome.FAIL)), {})
    assert decision.advisory == (f"node01: {EXTRA} - Expected: pass Actual: fail. Run `rackready validate`.",)


def test_evidence_older_than_the_last_change_does_not_count() -> None:
    decision = decide("node01", ENTRIES, good(), {}, not_before=T0.timestamp() + 1)
    assert decision.refusals[0] == f"node01: {VERSIONS} - Expected: measured after the node's last change Actual: measured before it. Run `rackready validate`."


@pytest.mark.parametrize("records", [{}, {VERSIONS: record(VERSIONS, Outcome.SKIP), DCGM: record(DCGM, Outcome.SKIP)}])
def test_nothing_measured_opens_no_door(records: dict[str, EvidenceRecord]) -> None:
    decision = decide("node01", ENTRIES[:2], records, {VERSIONS: "declared for the test", DCGM: "declared for the test"})
    assert decision.refusals[-1] == "node01: nothing was measured - Expected: at least one required gate passed Actual: none. Run `rackready validate`."


def test_skips_are_those_of_the_node() -> None:
    skips = [DeclaredSkip(gate=DCGM, nodes=["node01"], reason="burnt in by the vendor"), DeclaredSkip(gate=VERSIONS, nodes=["node02"], reason="another reason")]
    assert declared_skips(skips, "node01") == {DCGM: "burnt in by the vendor"}
