"""Who may be handed over: a table of evidence and what it means."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

import pytest
from pydantic import ValidationError

from rackready.handover.policy import Decision, decide
from rackready.model.evidence import EvidenceRecord
from rackready.model.operations import DisabledGate, Gates
from rackready.model.outcome import Finding, Outcome
from rackready.model.profile import GateSetEntry
from rackready.model.site import DeclaredSkip
from rackready.profiles import loader
from tests.unit.handover.evidence import ENTRIES, NOW, T0, fingerprint, good, record

VERSIONS, DCGM, EXTRA = (entry.id for entry in ENTRIES)
BAD = [
    Finding(where="node01 gpu2", what="NVLink down", expected="18 links", actual="17", next_step="Reseat the board.")
]


def changed(**records: EvidenceRecord | None) -> dict[str, EvidenceRecord]:
    names = {"versions": VERSIONS, "dcgm": DCGM, "extra": EXTRA}
    out = {**good(), **{names[key]: value for key, value in records.items() if value is not None}}
    return {
        gate: value
        for gate, value in out.items()
        if gate not in {names[key] for key, value in records.items() if value is None}
    }


@pytest.mark.parametrize(
    ("records", "skips", "refusals"),
    [
        (changed(), {}, ()),
        (changed(extra=None), {}, ()),
        (changed(extra=record(EXTRA, Outcome.FAIL)), {}, ()),
        (
            changed(dcgm=None),
            {},
            (
                (
                    f"node01: {DCGM} - Expected: pass, measured on the node as it is now Actual: no such evidence. "
                    "Run `rackready validate`."
                ),
            ),
        ),
        (
            changed(dcgm=record(DCGM, Outcome.FAIL, findings=BAD)),
            {},
            (
                (
                    f"node01: {DCGM} - Expected: pass Actual: fail. node01 gpu2: NVLink down - Expected: 18 links "
                    "Actual: 17. Reseat the board."
                ),
            ),
        ),
        (
            changed(dcgm=record(DCGM, Outcome.ERROR)),
            {},
            (f"node01: {DCGM} - Expected: pass Actual: error. Run `rackready validate`.",),
        ),
        (
            changed(dcgm=record(DCGM, Outcome.NOT_RUN)),
            {},
            (f"node01: {DCGM} - Expected: pass Actual: not_run. Run `rackready validate`.",),
        ),
        (
            changed(dcgm=record(DCGM, Outcome.SKIP)),
            {},
            (
                (
                    f"node01: {DCGM} - Expected: pass Actual: skipped, but the site declares no such skip. "
                    "Declare it with a reason (gates.skip), or measure."
                ),
            ),
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
    decision = decide("node01", ENTRIES, records, skips, NOW)
    assert decision.refusals == refusals
    assert decision.allowed is not bool(refusals)


def test_a_declared_skip_is_shown_with_its_reason() -> None:
    decision = decide(
        "node01", ENTRIES, changed(dcgm=record(DCGM, Outcome.SKIP)), {DCGM: "burnt in by the vendor"}, NOW
    )
    assert decision.skips == {DCGM: "burnt in by the vendor"}
    assert DCGM not in decision.passed


def test_an_advisory_gate_that_failed_is_shown() -> None:
    decision = decide("node01", ENTRIES, changed(extra=record(EXTRA, Outcome.FAIL)), {}, NOW)
    assert decision.advisory == (f"node01: {EXTRA} - Expected: pass Actual: fail. Run `rackready validate`.",)


def test_evidence_older_than_the_last_change_does_not_count() -> None:
    decision = decide("node01", ENTRIES, good(), {}, replace(NOW, changed=T0.timestamp() + 1))
    assert (
        decision.refusals[0]
        == f"node01: {VERSIONS} - Expected: measured after the node's last change Actual: measured before it. "
        "Run `rackready validate`."
    )


def test_evidence_from_before_the_last_change_does_not_count_whatever_the_clock_said() -> None:
    """It was written while the clock was hours ahead; the node was repaired after the clock was set back."""
    ahead = changed(dcgm=record(DCGM, minutes=480))
    later = replace(NOW, at=NOW.at + 86_400, changed=T0.timestamp() - 60, before=ahead[DCGM].id)
    decision = decide("node01", ENTRIES, ahead, {}, later)
    said = "Expected: measured after the node's last change Actual: measured before it. Run `rackready validate`."
    assert decision.objections[DCGM] == f"node01: {DCGM} - {said}"
    assert decide("node01", ENTRIES, ahead, {}, replace(later, before="")).allowed


def test_evidence_from_the_future_does_not_count() -> None:
    assert decide("node01", ENTRIES, changed(dcgm=record(DCGM, minutes=64)), {}, NOW).allowed, "clocks differ a little"
    decision = decide("node01", ENTRIES, changed(dcgm=record(DCGM, minutes=480)), {}, NOW)
    assert decision.refusals[0] == (
        f"node01: {DCGM} - Expected: measured in the past Actual: measured at 2026-11-21 20:00 UTC, and this machine's "
        "clock says 2026-11-21 13:00 UTC. Check the clocks of the controller and its workers (`timedatectl`). "
        "Run `rackready validate`."
    )
    failed = decide("node01", ENTRIES, changed(dcgm=record(DCGM, Outcome.FAIL, minutes=480, findings=BAD)), {}, NOW)
    assert "NVLink down" in failed.refusals[0], "a fault is a fault"


def test_a_change_from_the_future_is_named_with_the_way_on() -> None:
    decision = decide("node01", ENTRIES, good(), {}, replace(NOW, changed=T0.timestamp() + 8 * 3600))
    assert decision.refusals[0] == (
        f"node01: {VERSIONS} - Expected: measured after the node's last change Actual: that change is recorded at "
        "2026-11-21 20:00 UTC, and this machine's clock says 2026-11-21 13:00 UTC. Check the clocks of the controller "
        "and its workers (`timedatectl`). If they are right now, begin anew: "
        "`rackready repair node01 --reason 'the clock was ahead'`."
    )


@pytest.mark.parametrize("records", [{}, {VERSIONS: record(VERSIONS, Outcome.SKIP), DCGM: record(DCGM, Outcome.SKIP)}])
def test_nothing_measured_opens_no_door(records: dict[str, EvidenceRecord]) -> None:
    decision = decide(
        "node01", ENTRIES[:2], records, {VERSIONS: "declared for the test", DCGM: "declared for the test"}, NOW
    )
    assert (
        decision.refusals[-1]
        == "node01: nothing was measured - Expected: at least one required gate passed Actual: none. "
        "Run `rackready validate`."
    )


def test_skips_are_those_of_the_node() -> None:
    skips = [
        DeclaredSkip(gate=DCGM, nodes=["node01"], reason="burnt in by the vendor"),
        DeclaredSkip(gate=VERSIONS, nodes=["node02"], reason="another reason"),
    ]
    assert Gates(set="bringup", skip=skips).skipped("node01", date(2026, 1, 1)) == {DCGM: "burnt in by the vendor"}


def test_a_kill_switch_is_a_skip_of_every_node_until_its_last_day() -> None:
    off = DisabledGate(gate=DCGM, until=date(2026, 3, 1), by="storage team", reason="false alarms with DCGM 4.6.1")
    gates = Gates(set="bringup", disabled=[off])
    said = {DCGM: "switched off until 2026-03-01 by storage team: false alarms with DCGM 4.6.1"}
    assert [gates.skipped(node, date(2026, 3, 1)) for node in ("node01", "node02")] == [said, said]
    assert gates.skipped("node01", date(2026, 3, 2)) == {}
    decision = decide(
        "node01", ENTRIES, changed(dcgm=record(DCGM, Outcome.SKIP)), gates.skipped("node01", date(2026, 3, 2)), NOW
    )
    assert decision.refusals == (
        (
            f"node01: {DCGM} - Expected: pass Actual: skipped, but the site declares no such skip. "
            "Declare it with a reason (gates.skip), or measure."
        ),
    )


def of_dcgm(
    *,
    made: EvidenceRecord | None = None,
    boot_id: str = "b1",
    hours: float = 1,
    skips: dict[str, str] | None = None,
    **rules: object,
) -> Decision:
    entry = GateSetEntry.model_validate({"id": DCGM, **rules})
    records = {VERSIONS: record(VERSIONS), DCGM: made or record(DCGM)}
    return decide(
        "node01",
        [ENTRIES[0], entry],
        records,
        skips or {},
        replace(NOW, at=T0.timestamp() + hours * 3600, boot_id=boot_id),
    )


@pytest.mark.parametrize(
    "rules", [{}, {"after_boot": True}, {"max_age_hours": 24}, {"after_boot": True, "max_age_hours": 24}]
)
def test_evidence_of_this_boot_and_young_enough_counts(rules: dict[str, object]) -> None:
    decision = of_dcgm(hours=24, **rules)
    assert decision.refusals == ()
    assert decision.counting == {VERSIONS, DCGM}


def test_a_reboot_voids_what_the_gate_set_says_and_nothing_else() -> None:
    assert of_dcgm(boot_id="b2").refusals == ()
    decision = of_dcgm(boot_id="b2", after_boot=True)
    assert decision.refusals == (
        (
            f"node01: {DCGM} - Expected: measured since the node's last boot Actual: measured before it. "
            "Run `rackready validate`."
        ),
    )
    assert decision.counting == {VERSIONS}


def test_a_record_that_does_not_say_its_boot_is_not_of_this_one() -> None:
    older = record(DCGM).model_copy(update={"fingerprints": [fingerprint(boot_id="")]})
    assert "Expected: measured since the node's last boot" in of_dcgm(made=older, after_boot=True).refusals[0]
    assert of_dcgm(made=older).refusals == ()


def test_the_boot_of_a_partner_says_nothing_of_this_node() -> None:
    pair = record(DCGM).model_copy(update={"fingerprints": [fingerprint(), fingerprint(node="node02", boot_id="b9")]})
    assert of_dcgm(made=pair, after_boot=True).refusals == ()


def test_aged_evidence_does_not_count() -> None:
    assert of_dcgm(hours=800).refusals == ()
    decision = of_dcgm(hours=800.2, max_age_hours=720)
    assert decision.refusals == (
        f"node01: {DCGM} - Expected: measured within the last 720 h Actual: 801 h ago. Run `rackready validate`.",
    )
    assert of_dcgm(hours=800, max_age_hours=800).refusals == ()


def test_a_fail_stays_a_fail_whatever_its_boot_and_age() -> None:
    decision = of_dcgm(
        made=record(DCGM, Outcome.FAIL, findings=BAD), boot_id="b2", hours=9000, after_boot=True, max_age_hours=24
    )
    assert decision.refusals == (
        (
            f"node01: {DCGM} - Expected: pass Actual: fail. node01 gpu2: NVLink down - Expected: 18 links Actual: 17. "
            "Reseat the board."
        ),
    )


def test_a_declared_skip_does_not_age() -> None:
    skips = {DCGM: "burnt in by the vendor"}
    assert (
        of_dcgm(
            made=record(DCGM, Outcome.SKIP), boot_id="b2", hours=9000, skips=skips, after_boot=True, max_age_hours=24
        ).refusals
        == ()
    )


def test_the_bringup_set_says_of_every_gate_how_long_it_counts() -> None:
    gates = {entry.id: entry for entry in loader.gate_set("bringup").gates}
    assert all(entry.max_age_hours for entry in gates.values())
    assert gates["node/gpu/sanity/inventory"].after_boot, "a boot is when a GPU fails to come back"
    assert not gates[DCGM].after_boot, "it looks for worn hardware, which a boot does not make"
    assert not gates["cluster/fabric/performance/nccl-all-reduce-ring"].after_boot


@pytest.mark.parametrize("hours", [0, -1])
def test_evidence_cannot_be_too_old_at_once(hours: float) -> None:
    with pytest.raises(ValidationError, match="greater than 0"):
        GateSetEntry(id=DCGM, max_age_hours=hours)


@pytest.mark.parametrize(("look", "load", "counts"), [(0, 5, False), (6, 5, True), (0, None, True)])
def test_a_look_counts_only_after_the_last_load(look: int, load: int | None, *, counts: bool) -> None:
    records = {VERSIONS: record(VERSIONS, minutes=look)}
    if load is not None:
        records[DCGM] = record(DCGM, minutes=load)
    entry = [ENTRIES[0]]
    found = decide("node01", entry, records, {}, replace(NOW, at=T0.timestamp() + 600, campaign="c1"))
    words = (
        f"node01: {VERSIONS} - Expected: looked at after the node was last loaded Actual: looked at before it. "
        "Run `rackready validate`."
    )
    assert found.refusals[:1] == (() if counts else (words,))
    assert decide("node01", entry, records, {}, NOW).allowed, "a dry run looks at nothing"


def test_a_load_that_did_not_run_is_none() -> None:
    records = {VERSIONS: record(VERSIONS), DCGM: record(DCGM, Outcome.SKIP, minutes=5)}
    moment = replace(NOW, at=T0.timestamp() + 600, campaign="c1")
    assert decide("node01", [ENTRIES[0]], records, {}, moment).allowed


def test_a_declared_skip_counts_also_from_before_a_load() -> None:
    records = {VERSIONS: record(VERSIONS, Outcome.SKIP), DCGM: record(DCGM, minutes=5)}
    moment = replace(NOW, at=T0.timestamp() + 600, campaign="c1")
    assert decide("node01", ENTRIES[:2], records, {VERSIONS: "no such part"}, moment).allowed
