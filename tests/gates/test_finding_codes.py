"""Findings that are rare on good hardware, each by its code, place and values."""

from __future__ import annotations

import pytest

from rackready.gates.judging.judge import Judge
from rackready.gates.judging.merge import merged
from rackready.model.outcome import Outcome
from rackready_sim.bmc_state import entry
from tests.gates.gpu.test_smi import S, changed
from tests.gates.gpu.test_smi import judge as of_report
from tests.gates.gpu.test_xid import xid
from tests.gates.redfish_world import MANAGER, healthy, world
from tests.gates.support import Case, Said, judge, tells
from tests.gates.test_bmc_events import FAULTS, PASSED, SEL, after

CHANNEL = "<channel_repair_pending>No</channel_repair_pending>"
RECOVERY = "<gpu_recovery_action>None</gpu_recovery_action>"


@pytest.mark.parametrize(
    ("gate", "change", "outcome", "found"),
    [
        ("ecc", (CHANNEL, CHANNEL.replace("No", "Yes")), "fail", ("memory-channel-repair-pending", "No", "Yes")),
        (
            "ecc",
            (CHANNEL, CHANNEL.replace("No", "Perhaps")),
            "error",
            ("memory-repair-unknown-word", "Yes or No", "Perhaps", "repair=memory channel repair waits for a reset"),
        ),
        (
            "ecc",
            (CHANNEL, f"{CHANNEL}<unrepairable_memory>Yes</unrepairable_memory>"),
            "fail",
            ("memory-unrepairable", "No", "Yes"),
        ),
        ("recovery-action", (RECOVERY, ""), "error", ("gpu-recovery-not-reported", "None", "nothing")),
    ],
    ids=["channel", "word", "memory", "recovery"],
)
def test_what_a_report_of_nvidia_smi_rarely_says(
    gate: str, change: tuple[str, str], outcome: str, found: tuple[str, ...]
) -> None:
    verdict = of_report(f"{S}{gate}", changed(3, change))
    assert tells(verdict) == [(found[0], "node01 gpu3", *found[1:])]
    assert verdict.outcome is Outcome(outcome)


def test_a_recovery_action_that_the_kernel_log_does_not_name() -> None:
    verdict = judge("node/gpu/sanity/xid", Case("154", {"log": xid(154, "GPU recovery action changed")}, Outcome.ERROR))
    (found,) = verdict.findings
    assert (found.code, found.where, verdict.outcome) == ("xid-154-unreadable", "node01 gpu1", Outcome.ERROR)


def test_a_gate_that_judges_nothing_and_a_node_without_a_verdict_are_errors() -> None:
    for verdict, found in (
        (
            Judge().verdict("node01"),
            ("nothing-judged", "node01", "at least one measurement compared with a bound", "none"),
        ),
        (merged([]), ("no-verdict", "gate", "one", "none")),
    ):
        assert (tells(verdict), verdict.outcome) == ([found], Outcome.ERROR)


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ({}, ("bmc-not-asked", "an answer", "none", "what=fans")),
        (
            {"redfish": Said(exit_code=None, timed_out=True)},
            ("bmc-late", "an answer in time", "none after 1 s", "what=fans"),
        ),
        (
            {"redfish": Said(exit_code=None, failure="no route to host.")},
            ("bmc-not-reached", "an answer over Redfish", "no route to host", "what=fans", "node=node01"),
        ),
    ],
    ids=["not asked", "late", "not reached"],
)
def test_a_bmc_that_does_not_answer(said: dict[str, Said], found: tuple[str, str, str]) -> None:
    verdict = judge("bmc/cooling/sanity/fans", Case("BMC", said, Outcome.ERROR))
    assert tells(verdict) == [(found[0], "node01 BMC", *found[1:])]


@pytest.mark.parametrize(
    ("sensor", "message", "code"),
    [
        ("PSU1", "Power supply input lost", "bmc-log-power-event"),
        ("FAN3", "Fan 3 below its lower threshold", "bmc-log-fan-event"),
        ("TEMP_CPU0", "Temperature above its upper critical threshold", "bmc-log-temperature-event"),
        ("Chassis", "Somebody opened the lid", "bmc-log-event"),
    ],
    ids=["power", "fan", "temperature", "other"],
)
def test_what_an_entry_is_about_has_a_code_of_its_own(sensor: str, message: str, code: str) -> None:
    state = healthy()
    state["bmc"]["log"]["entries"].append(entry(PASSED, "Critical", sensor, message))
    (found,) = after(None, world(state)).findings
    assert (found.code, found.where, found.expected) == (code, "node01 log BMC SEL", "no such entry")


def test_a_bmc_that_does_not_tell_its_time_is_an_error() -> None:
    there = world(healthy())
    for address in (SEL, FAULTS, MANAGER):
        there[address].pop("DateTime", None)
    found = after(None, there)
    assert ([(item.code, item.where) for item in found.findings], found.outcome) == (
        [("bmc-clock-not-reported", "node01 BMC")],
        Outcome.ERROR,
    )
