"""Damage that hosts tell of in many words (kernel log, smartctl, counters): each is found, and what healthy hardware says raises no alarm."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackready.model.outcome import Outcome
from tests.gates.host.machine import Node
from tests.gates.host.test_judgement import Change, judge, said


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(tmp_path, monkeypatch)


def logged(*lines: str) -> Change:
    return lambda found: found["commands"]["dmesg"].update(stdout="".join(f"[ 5000.1] {line}\n" for line in lines), lines=2000)


def event(severity: str, section: str, *more: str) -> tuple[str, ...]:
    """What the kernel prints of an error that the firmware reports."""
    words = ("Hardware error from APEI Generic Hardware Error Source: 5", f"event severity: {severity}", f" Error 0, type: {severity}", f"  {section}", *more)
    return tuple(f"{{1}}[Hardware Error]: {word}" for word in words)


MEMORY_ERROR = "section_type: memory error"
BANK = "mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 7: {}"
TAKEN = "Memory failure: 0xcad1ff: recovery action for dirty LRU page: Recovered"


@pytest.mark.parametrize(
    ("lines", "last"),
    [
        (event("recoverable", MEMORY_ERROR, "  error_type: 3, multi-bit ECC"), "1 line, the last: [ 5000.1] {1}[Hardware Error]: event severity: recoverable"),
        (event("fatal", "section_type: general processor error"), "1 line, the last: [ 5000.1] {1}[Hardware Error]: event severity: fatal"),
        (
            (*event("recoverable", MEMORY_ERROR)[3:], "{1}[Hardware Error]:   error_type: 3, multi-bit ECC"),
            "1 line, the last: [ 5000.1] {1}[Hardware Error]:   error_type: 3, multi-bit ECC",
        ),
        ((BANK.format("bd80000000100134"),), f"1 line, the last: [ 5000.1] {BANK.format('bd80000000100134')}"),
        ((TAKEN,), f"1 line, the last: [ 5000.1] {TAKEN}"),
    ],
    ids=["recoverable", "fatal", "cut-off", "machine-check", "page"],
)
def test_an_uncorrected_error_is_found_in_whatever_words_the_kernel_has_for_it(node: Node, lines: tuple[str, ...], last: str) -> None:
    verdict = judge(node, "node/host/sanity/memory-errors", logged(*lines))
    assert (verdict.outcome, said(verdict)) == (Outcome.FAIL, [("node01", "machine check in the kernel log", "none", last)])


@pytest.mark.parametrize(
    "lines",
    [
        event("corrected", MEMORY_ERROR, "  error_type: 2, single-bit ECC"),
        event("corrected", MEMORY_ERROR, "  error_type: 3, multi-bit ECC"),
        ("mce: [Hardware Error]: Machine check events logged", BANK.format("8c00004000010090")),
        ("Memory failure: soft offline: 0xcad1ff: page migrated",),
    ],
    ids=["corrected", "chipkill", "machine-check", "soft-offline"],
)
def test_corrected_errors_in_the_log_are_the_counters_business(node: Node, lines: tuple[str, ...]) -> None:
    assert judge(node, "node/host/sanity/memory-errors", logged(*lines)).outcome is Outcome.PASS


def test_an_uncorrected_error_of_pcie_is_noted_not_blamed_on_memory(node: Node) -> None:
    verdict = judge(node, "node/host/sanity/memory-errors", logged(*event("recoverable", "section_type: PCIe error")))
    note = "uncorrected PCIe errors that the firmware reported: 1; not of memory, node/host/stress/counter-deltas counts them under load"
    assert (verdict.outcome, verdict.note) == (Outcome.PASS, note)
    fatal = judge(node, "node/host/sanity/memory-errors", logged(*event("fatal", "section_type: PCIe error")))
    assert (fatal.outcome, len(fatal.findings), fatal.note) == (Outcome.FAIL, 1, None)
