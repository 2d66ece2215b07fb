"""Damage that hosts tell of in many words (kernel log, smartctl, counters): each is found, and what healthy hardware says raises no alarm."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackready.model.outcome import Outcome
from tests.gates.host.machine import Node
from tests.gates.host.test_judgement import LOG, WHERE, Change, Document, judge, said


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


def links(*lines: tuple[float, str]) -> Change:
    def change(found: Document) -> None:
        found["commands"]["dmesg"].update(stdout="".join(LOG.format(at=at, way=way) for at, way in lines))
        found["files"]["/proc/uptime"] = {"/proc/uptime": "86400.00 1.0"}

    return change


AWAY = "at most 30 s at a time, 1800 s after boot apart"


@pytest.mark.parametrize(
    ("lines", "outcome", "finding"),
    [
        (((20000, "down"), (20031, "up")), Outcome.FAIL, (WHERE, "link was away", AWAY, "31 s, from 20000 s after boot on")),
        (((300, "down"), (2000, "up")), Outcome.FAIL, (WHERE, "link was away", AWAY, "1700 s, from 300 s after boot on")),
        (
            ((5000, "down"), (8600, "up"), (20000, "down"), (20002, "up")),
            Outcome.FAIL,
            (WHERE, "link was away", AWAY, "3600 s, from 5000 s after boot on"),
        ),
        (
            ((20000, "down"),),
            Outcome.ERROR,
            (WHERE, "link's return not in the kernel log", "Link up after each Link down", "Link down 20000 s after boot"),
        ),
    ],
    ids=["half-a-minute", "beyond-the-grace", "longest", "no-return"],
)
def test_a_link_that_was_away_is_no_good_link_however_long_ago(
    node: Node, lines: tuple[tuple[float, str], ...], outcome: Outcome, finding: tuple[str, str, str, str]
) -> None:
    verdict = judge(node, "node/host/sanity/links", links(*lines))
    assert (verdict.outcome, said(verdict)) == (outcome, [finding])
    assert "node01/mlx5_0" not in verdict.measured


def test_a_site_says_how_long_a_link_may_be_away(node: Node) -> None:
    lines = links((20000, "down"), (20600, "up"))
    assert judge(node, "node/host/sanity/links", lines, inputs={"max_outage_s": 900}).outcome is Outcome.PASS


@pytest.mark.parametrize("lines", [((300, "down"), (1500, "up")), ((20000, "down"), (20030, "up")), ((9, "up"), (30, "up"))], ids=["boot", "short", "up"])
def test_links_that_wait_for_their_switch_at_boot_or_blink_long_ago_are_good(node: Node, lines: tuple[tuple[float, str], ...]) -> None:
    assert judge(node, "node/host/sanity/links", links(*lines)).outcome is Outcome.PASS
