"""Hardware damage that kernel log, smartctl and counters report is found, and healthy hardware raises no alarm."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rackready.model.outcome import Outcome
from tests.gates.host.machine import Node
from tests.gates.host.test_judgement import LOG, WHERE, Change, Document, judge
from tests.gates.support import Told, tells


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(tmp_path, monkeypatch)


def logged(*lines: str) -> Change:
    return lambda found: found["commands"]["dmesg"].update(
        stdout="".join(f"[ 5000.1] {line}\n" for line in lines), lines=2000
    )


def event(severity: str, section: str, *more: str) -> tuple[str, ...]:
    """What the kernel prints of an error that the firmware reports."""
    words = (
        "Hardware error from APEI Generic Hardware Error Source: 5",
        f"event severity: {severity}",
        f" Error 0, type: {severity}",
        f"  {section}",
        *more,
    )
    return tuple(f"{{1}}[Hardware Error]: {word}" for word in words)


MEMORY_ERROR = "section_type: memory error"
BANK = "mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 7: {}"
TAKEN = "Memory failure: 0xcad1ff: recovery action for dirty LRU page: Recovered"


@pytest.mark.parametrize(
    ("lines", "last"),
    [
        (
            event("recoverable", MEMORY_ERROR, "  error_type: 3, multi-bit ECC"),
            "1 line, the last: [ 5000.1] {1}[Hardware Error]: event severity: recoverable",
        ),
        (
            event("fatal", "section_type: general processor error"),
            "1 line, the last: [ 5000.1] {1}[Hardware Error]: event severity: fatal",
        ),
        (
            (*event("recoverable", MEMORY_ERROR)[3:], "{1}[Hardware Error]:   error_type: 3, multi-bit ECC"),
            "1 line, the last: [ 5000.1] {1}[Hardware Error]:   error_type: 3, multi-bit ECC",
        ),
        ((BANK.format("bd80000000100134"),), f"1 line, the last: [ 5000.1] {BANK.format('bd80000000100134')}"),
        ((TAKEN,), f"1 line, the last: [ 5000.1] {TAKEN}"),
    ],
    ids=["recoverable", "fatal", "cut-off", "machine-check", "page"],
)
def test_an_uncorrected_error_is_found_in_whatever_words_the_kernel_has_for_it(
    node: Node, lines: tuple[str, ...], last: str
) -> None:
    verdict = judge(node, "node/host/sanity/memory-errors", logged(*lines))
    assert (verdict.outcome, tells(verdict)) == (
        Outcome.FAIL,
        [("machine-check", "node01", "none", last)],
    )


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
    note = (
        "uncorrected PCIe errors that the firmware reported: 1; they are not memory errors; "
        "node/host/stress/counter-deltas counts them under load"
    )
    assert (verdict.outcome, verdict.note) == (Outcome.PASS, note)
    fatal = judge(node, "node/host/sanity/memory-errors", logged(*event("fatal", "section_type: PCIe error")))
    assert (fatal.outcome, len(fatal.findings), fatal.note) == (Outcome.FAIL, 1, None)


def links(*lines: tuple[float, str]) -> Change:
    def change(found: Document) -> None:
        found["commands"]["dmesg"].update(stdout="".join(LOG.format(at=at, way=way) for at, way in lines))
        found["files"]["/proc/uptime"] = {"/proc/uptime": "86400.00 1.0"}

    return change


AWAY = "at most 30 s at a time, except 1800 s after boot"


@pytest.mark.parametrize(
    ("lines", "outcome", "finding"),
    [
        (
            ((20000, "down"), (20031, "up")),
            Outcome.FAIL,
            ("link-was-away", WHERE, AWAY, "31 s, from 20000 s after boot", "days=7"),
        ),
        (
            ((300, "down"), (2000, "up")),
            Outcome.FAIL,
            ("link-was-away", WHERE, AWAY, "1700 s, from 300 s after boot", "days=7"),
        ),
        (
            ((5000, "down"), (8600, "up"), (20000, "down"), (20002, "up")),
            Outcome.FAIL,
            ("link-was-away", WHERE, AWAY, "3600 s, from 5000 s after boot", "days=7"),
        ),
        (
            ((20000, "down"),),
            Outcome.ERROR,
            ("link-return-not-logged", WHERE, "Link up after each Link down", "Link down 20000 s after boot"),
        ),
    ],
    ids=["half-a-minute", "beyond-the-grace", "longest", "no-return"],
)
def test_a_link_that_was_away_is_no_good_link_however_long_ago(
    node: Node, lines: tuple[tuple[float, str], ...], outcome: Outcome, finding: Told
) -> None:
    verdict = judge(node, "node/host/sanity/links", links(*lines))
    assert (verdict.outcome, tells(verdict)) == (outcome, [finding])
    assert "node01/mlx5_0" not in verdict.measured


def test_an_outage_is_history_after_the_window(node: Node) -> None:
    """A switch that was restarted on purpose must not keep its nodes from passing until they boot."""
    lines = links((20000, "down"), (20200, "up"))
    assert judge(node, "node/host/sanity/links", lines, inputs={"outage_window_s": 66000}).outcome is Outcome.PASS
    assert judge(node, "node/host/sanity/links", lines, inputs={"outage_window_s": 67000}).outcome is Outcome.FAIL


def test_a_site_says_how_long_a_link_may_be_away(node: Node) -> None:
    lines = links((20000, "down"), (20600, "up"))
    assert judge(node, "node/host/sanity/links", lines, inputs={"max_outage_s": 900}).outcome is Outcome.PASS


@pytest.mark.parametrize(
    "lines",
    [((300, "down"), (1500, "up")), ((20000, "down"), (20030, "up")), ((9, "up"), (30, "up"))],
    ids=["boot", "short", "up"],
)
def test_links_that_wait_for_their_switch_at_boot_or_blink_long_ago_are_good(
    node: Node, lines: tuple[tuple[float, str], ...]
) -> None:
    assert judge(node, "node/host/sanity/links", links(*lines)).outcome is Outcome.PASS


DISKS = "node/host/sanity/disks"


def drive(change: Callable[[Document], object], exit_code: int | None = None, name: str = "/dev/nvme4") -> Change:
    """What smartctl says of one drive."""

    def apply(found: Document) -> None:
        tool = found["commands"][f"smart {name}"]
        said_ = json.loads(tool["stdout"])
        change(said_)
        tool.update(stdout=json.dumps(said_), **({} if exit_code is None else {"exit_code": exit_code}))

    return apply


def ata(*attributes: tuple[int, int], turns: int | None = None) -> Callable[[Document], object]:
    def change(said_: Document) -> None:
        del said_["nvme_smart_health_information_log"]
        said_.update({} if turns is None else {"rotation_rate": turns})
        said_["ata_smart_attributes"] = {
            "table": [{"id": number, "raw": {"value": value}} for number, value in attributes]
        }

    return change


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        (
            drive(lambda _said: None, 16 | 32),
            (
                "smart-warns",
                "every pre-failure attribute above its threshold",
                "one at or below it (exit 48; smartctl(8), exit status)",
            ),
        ),
        (
            drive(lambda _said: None, 128),
            (
                "smart-warns",
                "no self-test that failed",
                "one in the drive's log (exit 128; smartctl(8), exit status)",
            ),
        ),
        (drive(ata((5, 0), (197, 0), (198, 120))), ("drive-uncorrectable", "at most 0", "120")),
        (drive(ata((5, 0), (187, 55))), ("drive-uncorrectable", "at most 0", "55")),
        (drive(ata((5, 1), (197, 2))), ("drive-sectors-reallocated", "at most 0", "3")),
        (drive(ata((5, 1), (197, 2), turns=7200)), ("drive-sectors-reallocated", "at most 0", "3")),
        (drive(ata((5, 1), (187, 0), (197, 2), turns=0)), ("drive-sectors-reallocated", "at most 0", "2")),
        (drive(ata((5, 1), (9, 4000), turns=0)), ("drive-sectors-reallocated", "at most 0", "1")),
        (drive(ata((5, 4), (187, 1), turns=0)), ("drive-uncorrectable", "at most 0", "1")),
    ],
    ids=[
        "prefail",
        "self-test",
        "ata-198",
        "ata-187",
        "ata-5-197",
        "disk-5-197",
        "flash-197",
        "flash-5-alone",
        "flash-187",
    ],
)
def test_what_smartctl_and_the_drives_own_counts_warn_of_fails(node: Node, change: Change, finding: Told) -> None:
    verdict = judge(node, DISKS, change)
    assert [item[:1] + item[2:] for item in tells(verdict)] == [finding]
    assert verdict.findings[0].where.startswith("node01 /dev/nvme4 (SAMSUNG MZQL23T8HCLS-00A07 ")
    assert verdict.outcome is Outcome.FAIL


def test_a_capacity_that_is_not_that_of_its_blocks_is_an_error(node: Node) -> None:
    verdict = judge(node, DISKS, drive(lambda said_: said_["user_capacity"].update(bytes=1)))
    words = "a capacity of 1 bytes where it counts 7501476528 blocks of 512 (exit 0)"
    assert tells(verdict) == [
        ("drive-health-unreadable", "node01 /dev/nvme4", "smartctl's document", words, "name=/dev/nvme4")
    ]
    assert verdict.outcome is Outcome.ERROR


def test_blocks_of_flash_that_its_reserve_took_the_place_of_are_noted(node: Node) -> None:
    verdict = judge(node, DISKS, drive(ata((5, 3), (170, 0), (187, 0), (197, 0), (198, 0), turns=0)))
    assert (verdict.outcome, tells(verdict)) == (Outcome.PASS, [])
    assert "/dev/nvme4: 3 of its flash blocks were replaced from its reserve (attribute 5)" in (verdict.note or "")


def test_an_attribute_below_zero_is_an_error(node: Node) -> None:
    verdict = judge(node, DISKS, drive(ata((5, 3), (187, 0), (197, -3))))
    words = "attribute 197 is -3, which is not a count (exit 0)"
    assert tells(verdict) == [
        ("drive-health-unreadable", "node01 /dev/nvme4", "smartctl's document", words, "name=/dev/nvme4")
    ]


def test_an_ata_drive_that_reports_no_damage_attribute_is_an_error(node: Node) -> None:
    words = "none of the attributes 5, 187, 197 and 198, which tell of damage (exit 0)"
    for table in ((), ((9, 4000),)):
        verdict = judge(node, DISKS, drive(ata(*table)))
        assert tells(verdict) == [
            ("drive-health-unreadable", "node01 /dev/nvme4", "smartctl's document", words, "name=/dev/nvme4")
        ]
        assert verdict.outcome is Outcome.ERROR
    assert judge(node, DISKS, drive(ata((5, 0), (9, 4000)))).outcome is Outcome.PASS, (
        "many drives of flash have no pending sectors"
    )


@pytest.mark.parametrize(
    ("change", "note"),
    [
        (drive(lambda _said: None, 32), "/dev/nvme4: an attribute was at or below its threshold once"),
        (drive(lambda _said: None, 64), "/dev/nvme4: its error log has entries"),
        (
            drive(lambda said_: said_["nvme_smart_health_information_log"].update(critical_comp_time=500)),
            "/dev/nvme4: 500 minutes above its critical temperature so far",
        ),
        (drive(lambda said_: said_["nvme_smart_health_information_log"].pop("critical_comp_time")), None),
    ],
    ids=["threshold", "error-log", "hot", "no-limit"],
)
def test_what_a_drive_says_of_its_past_is_noted(node: Node, change: Change, note: str | None) -> None:
    verdict = judge(node, DISKS, change)
    assert (verdict.outcome, verdict.note) == (Outcome.PASS, note)


OPTICS = "node/host/validation/optics"
LIMITS = "(the module's own alarm thresholds, as mlxlink prints them)"


def port(section: str, *, every: bool = False, **values: object) -> Change:
    """Return mlxlink's output for mlx5_0, or for every port; names have _ between words, and no unit."""

    def change(found: Document) -> None:
        for key, tool in found["commands"].items():
            if key == "mlxlink-mlx5_0" or every:
                said_ = json.loads(tool["stdout"])
                part = said_["result"]["output"][section]
                for name, value in values.items():
                    part[next(field for field in part if field.split(" [")[0].replace(" ", "_") == name)] = value
                tool["stdout"] = json.dumps(said_)

    return change


def both(*changes: Change) -> Change:
    return lambda found: [change(found) for change in changes]


BAD_SIGNAL = port("Troubleshooting Info", Recommendation="Bad signal integrity")


@pytest.mark.parametrize(
    ("change", "outcome", "finding"),
    [
        (
            both(BAD_SIGNAL, port("Physical Counters and BER Info", Raw_Physical_BER="1E-6")),
            Outcome.FAIL,
            (
                "link-firmware-finds-fault",
                WHERE,
                "No issue was observed",
                "Bad signal integrity (raw bit error rate 1e-06)",
            ),
        ),
        (
            port("Troubleshooting Info", Recommendation="Cable is unsupported"),
            Outcome.FAIL,
            (
                "link-firmware-finds-fault",
                WHERE,
                "No issue was observed",
                "Cable is unsupported (raw bit error rate 5e-09)",
            ),
        ),
        *(
            (
                port("Troubleshooting Info", Recommendation=words),
                Outcome.ERROR,
                ("link-firmware-no-verdict", WHERE, "No issue was observed", words),
            )
            for words in ("Info not available", "Troubleshooting in process")
        ),
        (
            both(
                port("Module Info", every=True, Rx_Power_Current="1,1,1,1"),
                port("Module Info", Rx_Power_Current="-40,-40,-40,-40"),
            ),
            Outcome.ERROR,
            (
                "module-reads-dark",
                WHERE,
                "more than -40 dBm on a lane",
                "-40, -40, -40, -40 dBm",
                "what=received light",
            ),
        ),
        (
            port("Module Info", Voltage="2804.1 [2900..3700]"),
            Outcome.FAIL,
            (
                "module-reading-out-of-limits",
                WHERE,
                f"2900 to 3700 mV {LIMITS}",
                "2804.1 mV",
                "what=supply voltage of the module",
                "step=Reseat the module; if other modules of this node are outside their limits, replace the NIC.",
            ),
        ),
        (
            port("Module Info", Bias_Current="7.3,7.3,15.2,7.2 [2..15]"),
            Outcome.FAIL,
            (
                "module-reading-out-of-limits",
                f"{WHERE} lane 2",
                f"2 to 15 mA {LIMITS}",
                "15.2 mA",
                "what=laser current",
                "step=Replace the module: its laser is wearing out.",
            ),
        ),
    ],
    ids=["signal", "recommendation", "no-info", "in-process", "dark", "voltage", "bias"],
)
def test_what_the_firmware_and_the_module_find_fault_with(
    node: Node, change: Change, outcome: Outcome, finding: Told
) -> None:
    verdict = judge(node, OPTICS, change)
    assert (verdict.outcome, tells(verdict)) == (outcome, [finding])
    assert "node01/mlx5_0" not in verdict.measured


def test_dark_modules_that_give_no_limits_do_not_pass(node: Node) -> None:
    verdict = judge(node, OPTICS, port("Module Info", every=True, Rx_Power_Current="-40,-40,-40,-40"))
    assert (verdict.outcome, len(verdict.findings)) == (Outcome.ERROR, 8)
    lit = judge(node, OPTICS, port("Module Info", every=True, Rx_Power_Current="1,1,1,1 [0..0]"))
    assert (lit.outcome, lit.note) == (
        Outcome.PASS,
        "a module has no limits for some readings: those are not judged",
    )


def test_a_bad_signal_with_next_to_no_errors_before_correction_is_ignored(node: Node) -> None:
    assert (
        judge(node, OPTICS, both(BAD_SIGNAL, port("Physical Counters and BER Info", Raw_Physical_BER="4E-8"))).outcome
        is Outcome.PASS
    )
