"""Event logs of a BMC: only entries since the last pass count, and lost ones are an error."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rackready.gates.base import LastPass
from rackready.gates.bmc.events import Events
from rackready.model.outcome import Outcome, Verdict
from rackready_sim import faults
from rackready_sim.bmc_state import entry, hardware_error
from tests.gates.redfish_world import MANAGER, SYSTEM, World, broken, healthy, verdict, world
from tests.gates.support import rack

SEL, FAULTS = f"{MANAGER}/LogServices/SEL", f"{SYSTEM}/LogServices/FaultLog"
PASSED = datetime(2026, 6, 1, 12, 0, tzinfo=UTC)
DEALT = (
    "Read what else recorded that time (syslog, the BMC's other logs), then record with `rackready "
    "repair node01 --reason '...'` that it was dealt with."
)


def texts(found: Verdict) -> list[str]:
    return [str(finding) for finding in found.findings]


def clock(there: World, at: datetime) -> None:
    """Set the BMC's clock."""
    for address in (SEL, FAULTS, MANAGER):
        there[address]["DateTime"] = at.isoformat()


def after(passed: LastPass | None, there: World, **inputs: object) -> Verdict:
    """Return the gate's verdict when this was the last pass on the node."""
    known = dataclasses.replace(rack(), passed={(Events.id, "node01"): passed} if passed else {})
    return verdict(Events(inputs), there, known)


def last_pass() -> LastPass:
    """A pass on the healthy node, at PASSED by the BMC's clock."""
    there = world(healthy())
    clock(there, PASSED)
    found = after(None, there)
    assert (found.outcome, texts(found)) == (Outcome.PASS, [])
    assert found.note == "no earlier pass: every entry of the logs was judged"
    return LastPass(PASSED + timedelta(hours=5), tuple(found.metrics))


def with_entry(at: datetime | None, severity: str = "Critical") -> World:
    state = healthy()
    state["bmc"]["log"]["entries"].append(entry(at or PASSED, severity, "Memory", "Uncorrectable ECC error, DIMM 3"))
    there = world(state)
    if at is None:
        there[f"{SEL}/Entries/4"]["Created"] = "1970-01-01T00:00:20+00:00"
    return there


def test_an_entry_after_the_last_pass_is_dated_and_explained() -> None:
    found = after(last_pass(), with_entry(PASSED + timedelta(minutes=1)))
    assert (found.outcome, texts(found)) == (
        Outcome.FAIL,
        [
            (
                "node01 log BMC SEL: Critical memory error - Expected: no such entry since 2026-06-01 12:00:00 UTC "
                "Actual: Memory: Uncorrectable ECC error, DIMM 3 (2026-06-01T12:01:00+00:00). "
                "Reseat the DIMM that the entry names, run the memory test; "
                "if it comes back, replace the DIMM, then suspect the CPU's socket."
            )
        ],
    )


def test_an_entry_before_the_last_pass_does_not_count_again() -> None:
    """By the BMC's clock: ours showed five hours later."""
    found = after(last_pass(), with_entry(PASSED - timedelta(minutes=1)))
    assert (found.outcome, texts(found), found.note) == (Outcome.PASS, [], None)


def test_undated_entries_of_a_log_that_the_last_pass_did_not_see_count() -> None:
    seen = last_pass()
    of_other_log = LastPass(
        seen.at, tuple(item.model_copy(update={"target": item.target.replace("SEL", "Old")}) for item in seen.metrics)
    )
    assert after(seen, with_entry(PASSED - timedelta(days=1))).outcome is Outcome.PASS
    assert after(of_other_log, with_entry(None)).outcome is Outcome.FAIL


def test_an_overwrite_policy_that_redfish_does_not_have_is_not_taken_for_wrapping() -> None:
    there = world(healthy())
    there[SEL].update(OverWritePolicy="StopsSometimes", MaxNumberOfRecords=1)
    found = after(None, there)
    assert found.outcome is Outcome.ERROR
    assert texts(found)[0].startswith(
        "node01 log BMC SEL: log full - Expected: room for new entries (it holds 1 and overwrites none) Actual: "
    )


@pytest.mark.parametrize(
    ("log", "outcome", "said"),
    [
        ("Event", Outcome.PASS, []),
        (
            "IML",
            Outcome.FAIL,
            [
                (
                    "node01 log BMC IML: Warning event - Expected: no such entry Actual: "
                    "iLOEvents.3.7.ServerResetDetected (2026-06-01T12:00:00+00:00). Read the entry in "
                    "the vendor's guide and do what it says. Then record the fix with `rackready "
                    "repair node01 --reason '...'`: older entries no longer count."
                )
            ],
        ),
    ],
)
def test_an_ilos_log_of_alerts_that_it_sent_is_not_that_of_its_hardware(
    log: str, outcome: Outcome, said: list[str]
) -> None:
    """It has a warning at every restart; hardware events are in the IML."""
    there, here = world(healthy()), f"{MANAGER}/LogServices/{log}"
    there[f"{MANAGER}/LogServices"]["Members"].append({"@odata.id": here})
    there[here] = {**there[SEL], "@odata.id": here, "Id": log, "Name": log, "Entries": {"@odata.id": f"{here}/Entries"}}
    there[f"{here}/Entries"] = {"@odata.id": f"{here}/Entries", "Members": [{"@odata.id": f"{here}/Entries/1"}]}
    reset = {
        "Id": "1",
        "Name": "Event",
        "Severity": "Warning",
        "MessageId": "iLOEvents.3.7.ServerResetDetected",
        "Created": PASSED.isoformat(),
    }
    there[f"{here}/Entries/1"] = {"@odata.id": f"{here}/Entries/1", **reset}
    found = after(None, there)
    assert (found.outcome, texts(found)) == (outcome, said)


def test_an_entry_of_the_very_second_of_the_pass_counts() -> None:
    """A clock of whole seconds: the pass saw nothing bad, so the entry was written after it."""
    assert after(last_pass(), with_entry(PASSED)).outcome is Outcome.FAIL


TO_COME = (
    "Set the BMC's clock (NTP) or the input `since`, read the log by hand, then record with `rackready "
    "repair node01 --reason '...'` that it was dealt with."
)


def test_a_bmc_whose_clock_was_set_back_is_an_error() -> None:
    """New entries are dated before the last pass, and would never count."""
    there = with_entry(PASSED - timedelta(days=2))
    clock(there, PASSED - timedelta(days=2))
    found = after(last_pass(), there)
    wanted = "at most 2026-05-30 12:00:00 UTC, the BMC's clock Actual: 2026-06-01 12:00:00 UTC"
    assert texts(found)[0] == f"node01 BMC: entries count from a time in the future - Expected: {wanted}. {TO_COME}"
    assert found.outcome is Outcome.ERROR


def test_an_input_that_lies_ahead_of_the_bmcs_clock_is_an_error() -> None:
    there = with_entry(PASSED)
    clock(there, PASSED)
    found = after(None, there, since=PASSED + timedelta(seconds=1))
    wanted = "at most 2026-06-01 12:00:00 UTC, the BMC's clock Actual: 2026-06-01 12:00:01 UTC"
    assert texts(found) == [f"node01 BMC: entries count from a time in the future - Expected: {wanted}. {TO_COME}"]
    assert found.outcome is Outcome.ERROR
    assert after(None, there, since=PASSED).outcome is Outcome.FAIL, "at that very second the entry counts"


def test_without_a_pass_every_entry_counts() -> None:
    assert after(None, with_entry(PASSED - timedelta(days=100))).outcome is Outcome.FAIL


def test_a_declared_repair_stands_for_a_pass() -> None:
    assert after(LastPass(PASSED), with_entry(PASSED - timedelta(days=1))).outcome is Outcome.PASS
    assert after(LastPass(PASSED), with_entry(None)).outcome is Outcome.PASS
    assert after(LastPass(PASSED), with_entry(PASSED + timedelta(days=1))).outcome is Outcome.FAIL


def test_an_entry_without_a_time_counts_when_it_was_not_there_at_the_last_pass() -> None:
    assert after(last_pass(), with_entry(None)).outcome is Outcome.FAIL
    seen = after(LastPass(PASSED), with_entry(None))
    assert after(LastPass(PASSED, tuple(seen.metrics)), with_entry(None)).outcome is Outcome.PASS


@pytest.mark.parametrize(
    ("severity", "inputs", "outcome"),
    [
        ("Warning", {}, Outcome.FAIL),
        ("Warning", {"warnings": False}, Outcome.PASS),
        ("OK", {"warnings": False}, Outcome.FAIL),
    ],
)
def test_severities(severity: str, inputs: dict[str, object], outcome: Outcome) -> None:
    assert after(None, with_entry(PASSED, severity), **inputs).outcome is outcome


def called_ok(sensor: str, message: str, **fields: object) -> Verdict:
    """Return the gate's verdict on an entry of severity OK."""
    state = healthy()
    state["bmc"]["log"]["entries"].append(entry(PASSED, "OK", sensor, message))
    there = world(state)
    there[f"{SEL}/Entries/4"].update(fields)
    return after(None, there)


@pytest.mark.parametrize(
    ("sensor", "message", "kind", "step"),
    [
        (
            "Memory",
            "Uncorrectable ECC error asserted on DIMM_A1",
            "memory error",
            (
                "Reseat the DIMM that the entry names, run the memory test; "
                "if it comes back, replace the DIMM, then suspect the CPU's socket."
            ),
        ),
        (
            "Memory",
            "Uncorrectable ECC error, DIMM_A1 disabled",
            "memory error",
            (
                "Reseat the DIMM that the entry names, run the memory test; "
                "if it comes back, replace the DIMM, then suspect the CPU's socket."
            ),
        ),
        (
            "Leakage",
            "Leak detected asserted",
            "leak event",
            "Run bmc/cooling/sanity/leaks; find the leak before the node is used.",
        ),
        (
            "Processor",
            "CPU1 IERR asserted",
            "CPU error",
            "Save the BMC's crash dump, update BIOS and microcode; if it comes back, replace the CPU, then the board.",
        ),
    ],
)
def test_broken_hardware_counts_even_where_the_bmc_calls_it_ok(sensor: str, message: str, kind: str, step: str) -> None:
    found = called_ok(sensor, message)
    assert (found.outcome, texts(found)) == (
        Outcome.FAIL,
        [
            (
                f"node01 log BMC SEL: {kind} that the BMC calls OK - Expected: no such entry "
                f"Actual: {sensor}: {message} (2026-06-01T12:00:00+00:00). {step}"
            )
        ],
    )


@pytest.mark.parametrize(
    ("sensor", "message", "fields"),
    [
        ("Memory", "Uncorrectable ECC error, DIMM 3", {"EntryCode": "Deassert"}),
        ("Memory", "Uncorrectable ECC error, DIMM 3", {"Resolved": True}),
        ("Memory", "Uncorrectable ECC error deasserted", {}),
        ("Memory", "Correctable ECC error, DIMM 3", {}),
        ("Leakage", "No leak detected", {}),
        ("Processor", "CPU0 CATERR# monitoring enabled", {}),
        ("Memory", "Memory uncorrectable ECC error logging is disabled", {}),
        ("Temperature", "Lower Non-recoverable going high", {"EntryCode": "Assert"}),
        ("PowerUnit", "Soft-power control failure", {"EntryCode": "Assert"}),
    ],
)
def test_what_is_over_and_what_servers_log_as_ok_in_health_does_not_count(
    sensor: str, message: str, fields: dict[str, object]
) -> None:
    """The last two as BMCs of good trays log them."""
    found = called_ok(sensor, message, **fields)
    assert (found.outcome, texts(found)) == (Outcome.PASS, [])


def test_an_unknown_severity_is_an_error() -> None:
    found = after(None, with_entry(PASSED, "Grave"))
    assert (found.outcome, texts(found)) == (
        Outcome.ERROR,
        [
            (
                "node01 log BMC SEL: entry without a severity - Expected: OK, Warning or Critical "
                "Actual: Grave: Memory: Uncorrectable ECC error, DIMM 3. Update the BMC's firmware."
            )
        ],
    )


def with_record(severity: str, own: str | None = "OK") -> World:
    """A BMC whose FaultLog has one more record of a hardware error; ``own``: severity of the entry itself."""
    state = healthy()
    state["bmc"]["log"]["errors"].append(hardware_error(PASSED, "PCIe", severity))
    there = world(state)
    there[f"{FAULTS}/Entries/3"]["Severity"] = own
    return there


def test_members_that_come_embedded_without_a_severity_are_asked_for_by_themselves() -> None:
    there = world(healthy())
    listed = there[f"{FAULTS}/Entries"]["Members"]
    assert [("Severity" in member, "Message" in member, "CPER" in member) for member in listed] == [
        (False, False, True)
    ] * 2
    found = after(None, there)
    assert (found.outcome, texts(found)) == (Outcome.PASS, [])


def test_the_entry_counts_and_not_the_copy_in_the_collection() -> None:
    found = after(None, with_record("Corrected", own="Warning"))
    assert (found.outcome, texts(found)) == (
        Outcome.FAIL,
        [
            (
                "node01 log DGX FaultLog: Warning PCIe error - Expected: no such entry "
                "Actual: CPER: PCIe, NVIDIA CPER Error Section, Corrected (2026-06-01T12:00:00+00:00). "
                "Find the slot that the entry names; reseat the card or riser, check firmware; "
                "if it comes back, replace the card."
            )
        ],
    )


@pytest.mark.parametrize(
    ("severity", "what"), [("Fatal", "Critical PCIe error"), ("Recoverable", "Warning PCIe error")]
)
def test_a_bad_record_counts_although_its_entry_is_called_ok(severity: str, what: str) -> None:
    """As NVIDIA's BMCs name the entry of every record."""
    found = after(None, with_record(severity))
    assert found.outcome is Outcome.FAIL
    said = (
        f"node01 log DGX FaultLog: {what} - Expected: no such entry Actual: CPER: PCIe, NVIDIA CPER Error Section, "
        f"{severity} (2026-06-01T12:00:00+00:00). "
    )
    assert [text.startswith(said) for text in texts(found)] == [True]


@pytest.mark.parametrize("severity", ["Corrected", "Informational"])
def test_a_record_of_no_error_needs_no_severity_of_its_entry(severity: str) -> None:
    found = after(None, with_record(severity, own=None))
    assert (found.outcome, texts(found)) == (Outcome.PASS, [])


@pytest.mark.parametrize("own", ["OK", None])
def test_a_record_of_an_unknown_severity_is_an_error(own: str | None) -> None:
    found = after(None, with_record("Grave", own=own))
    assert (found.outcome, texts(found)) == (
        Outcome.ERROR,
        [
            (
                "node01 log DGX FaultLog: entry without a severity - Expected: OK, Warning or Critical "
                "Actual: CPER Grave: CPER: PCIe, NVIDIA CPER Error Section, Grave. Update the BMC's firmware."
            )
        ],
    )


def cleared(state: dict[str, Any]) -> None:
    faults.inject(state, "sel-cleared")


def wrapped(state: dict[str, Any]) -> None:
    faults.inject(state, "sel-wrapped")


def full(state: dict[str, Any]) -> None:
    faults.inject(state, "sel-full")


@pytest.mark.parametrize(
    ("change", "begins"),
    [
        (
            cleared,
            (
                "node01 log BMC SEL: log cleared since the last pass - Expected: the 3 entries of the "
                "last pass, or newer ones on top Actual: 1 entries, the oldest of "
            ),
        ),
        (
            wrapped,
            (
                "node01 log BMC SEL: log wrapped - Expected: an entry from before 2026-06-01 12:00:00 UTC "
                "Actual: the oldest is from "
            ),
        ),
        (
            full,
            (
                "node01 log BMC SEL: log full - Expected: room for new entries (it holds 3 and overwrites none) "
                "Actual: 3 entries. Save and clear it. "
            ),
        ),
    ],
)
def test_what_was_lost_since_the_last_pass_is_an_error(change: Callable[[dict[str, Any]], None], begins: str) -> None:
    state = healthy()
    change(state)
    found = after(last_pass(), world(state))
    assert found.outcome is Outcome.ERROR
    assert len(found.findings) == 1
    assert texts(found)[0].startswith(begins)
    assert texts(found)[0].endswith(DEALT)


def test_a_log_that_wrapped_in_the_second_of_the_last_pass_may_have_lost_an_entry() -> None:
    """As may an entry of that second: logs date theirs in seconds, and our own clock has fractions."""
    state = healthy()
    wrapped(state)
    there = world(state)
    for number in range(1, 6):
        there[f"{SEL}/Entries/{number}"]["Created"] = PASSED.isoformat()
    found = after(last_pass(), there)
    assert (found.outcome, [text.partition(". ")[0] for text in texts(found)]) == (
        Outcome.ERROR,
        [
            (
                "node01 log BMC SEL: log wrapped - Expected: an entry from before 2026-06-01 12:00:00 UTC "
                "Actual: the oldest is from 2026-06-01 12:00:00 UTC"
            )
        ],
    )
    by_our_clock = LastPass(PASSED + timedelta(seconds=0.4))
    assert after(by_our_clock, there).outcome is Outcome.ERROR
    assert after(by_our_clock, with_entry(PASSED)).outcome is Outcome.FAIL


def test_a_cleared_log_passes_again_once_a_repair_says_that_it_was_dealt_with() -> None:
    assert (
        after(LastPass(datetime.now(UTC) + timedelta(seconds=5)), world(broken("sel-cleared"))).outcome is Outcome.PASS
    )


def test_a_log_that_is_switched_off_is_an_error() -> None:
    there = world(healthy())
    there[SEL]["ServiceEnabled"] = False
    assert texts(after(None, there)) == [
        (
            "node01 log BMC SEL: log switched off - Expected: ServiceEnabled true Actual: false. Switch "
            "it on, so that new events are recorded."
        )
    ]


def test_no_log_at_all_is_an_error() -> None:
    there = world(healthy())
    del there[MANAGER]["LogServices"], there[SYSTEM]["LogServices"]
    assert texts(after(None, there)) == [
        (
            "node01 BMC: no event log - Expected: a log service with entries Actual: none. Update the "
            "BMC's firmware: without a log, past events are unknown."
        )
    ]


def test_logs_of_who_did_what_are_not_asked_for() -> None:
    there = world(healthy())
    for name in ("AuditLog", "Lclog", "PostCodes", "Dump"):
        there[f"{MANAGER}/LogServices"]["Members"].append({"@odata.id": f"{MANAGER}/LogServices/{name}"})
    there[f"{MANAGER}/LogServices"]["Members@odata.count"] += 4
    assert after(None, there).outcome is Outcome.PASS, "they are not there: asking for them would be an error"


def test_many_kinds_of_entries_are_counted_not_printed() -> None:
    state = healthy()
    state["bmc"]["log"]["entries"] += [
        entry(PASSED, "Critical", "System Event", f"Event {number}") for number in range(20)
    ]
    found = after(None, world(state))
    assert len(found.findings) == 13
    assert texts(found)[-1] == (
        "node01 log BMC SEL: further entries - Expected: none Actual: 8 further kinds of entries. "
        "Read the whole log in the raw output."
    )
