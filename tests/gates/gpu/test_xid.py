"""Xids and SXids of a kernel log against the vendor's catalogue, word for word."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from rackready.format_error import FormatError
from rackready.gates.engine.registry import gate
from rackready.gates.formats import kernel_log
from rackready.gates.gpu import recovery
from rackready.gates.records.offline import facts
from rackready.model.finding_kinds import KINDS
from rackready.model.outcome import Outcome, Verdict
from rackready.profiles import loader
from tests.gates.captured import evaluate
from tests.gates.support import Case, Said, check, judge, text

GATE = "node/gpu/sanity/xid"
NOISE = text("kernel/dgx_h100_noise.txt")


def with_line(line: str) -> Said:
    return Said(f"{NOISE}2026-11-21T07:00:00+0000 node01 kernel: {line}\n")


def xid(code: int, words: str, pci: str = "0000:43:00") -> Said:
    return with_line(f"NVRM: Xid (PCI:{pci}): {code}, {words}")


NOW = Said("1795253400\n")
"""2026-11-21T09:30:00+00:00."""
CASES = [
    Case("noise, an application's Xids and a non-fatal SXid", {"log": Said(NOISE)}, Outcome.PASS),
    Case(
        "a GPU fell off the bus, dmesg -T",
        {"log": Said(text("kernel/dgx_h100_gpu4_fallen.txt"))},
        Outcome.FAIL,
        (
            (
                "xid",
                "node01 gpu4",
                "none since boot",
                "1 time at Sat Nov 21 09:12:44 2026: pid='<unknown>', name=<unknown>, GPU has fallen off the bus",
                "code=79",
                "name=GPU has fallen off the bus",
                (
                    "step=Vendor's action RESTART_BM: power the node off and on; if it happens again: "
                    "CONTACT_SUPPORT: docs/runbooks/gpu.md."
                ),
            ),
            ("xid-154", "node01 gpu4", "None", "Node Reboot Required, 1 time at Sat Nov 21 09:12:44 2026", "step=2"),
        ),
    ),
    Case(
        "a double bit error",
        {"log": xid(48, "pid='<unknown>', name=<unknown>, DBE (double bit error) ECC Error")},
        Outcome.FAIL,
        (
            (
                "xid",
                "node01 gpu1",
                "none since boot",
                "1 time at 2026-11-21T07:00:00+0000: pid='<unknown>', name=<unknown>, DBE (double bit error) ECC Error",
                "code=48",
                "name=Double Bit ECC Error",
                (
                    "step=Vendor's action WORKFLOW_XID_48: reset the GPU; run the field diagnostic if "
                    "the SRAM threshold flag is set (gate node/gpu/sanity/ecc); if it happens again: "
                    "WORKFLOW_XID_48: docs/runbooks/gpu.md."
                ),
            ),
        ),
    ),
    Case(
        "a contained error",
        {"log": xid(94, "pid=1234, name=python3, Contained ECC error")},
        Outcome.FAIL,
        (
            (
                "xid",
                "node01 gpu1",
                "none since boot",
                "1 time at 2026-11-21T07:00:00+0000: pid=1234, name=python3, Contained ECC error",
                "code=94",
                "name=Contained memory error",
                (
                    "step=Vendor's action RESTART_APP: restart the application, and reset the GPU when "
                    "convenient: docs/runbooks/gpu.md."
                ),
            ),
        ),
    ),
    Case(
        "a code that the catalogue does not have",
        {"log": xid(251, "something new")},
        Outcome.FAIL,
        (
            (
                "xid",
                "node01 gpu1",
                "none since boot",
                "1 time at 2026-11-21T07:00:00+0000: something new",
                "code=251",
                "name=not in the vendor's catalogue",
                (
                    "step=Vendor's action CONTACT_SUPPORT: open a support case with nvidia-bug-report: "
                    "docs/runbooks/gpu.md."
                ),
            ),
        ),
    ),
    Case(
        "a code without an action",
        {"log": xid(167, "PCIe fatal timeout")},
        Outcome.FAIL,
        (
            (
                "xid",
                "node01 gpu1",
                "none since boot",
                "1 time at 2026-11-21T07:00:00+0000: PCIe fatal timeout",
                "code=167",
                "name=PCIE_FATAL_TIMEOUT",
                (
                    "step=The vendor's catalogue names no action: open a support case with "
                    "nvidia-bug-report: docs/runbooks/gpu.md."
                ),
            ),
        ),
    ),
    Case(
        "a fatal SXid",
        {"log": with_line("nvidia-nvswitch1: SXid (PCI:0000:08:00.0): 20034, Fatal, Link 62 LTSSM Fault Up")},
        Outcome.FAIL,
        (
            (
                "sxid-fatal",
                "node01 nvswitch1",
                "none since boot",
                "1 time at 2026-11-21T07:00:00+0000: Fatal, Link 62 LTSSM Fault Up",
                "code=20034",
                "name=LTSSM Fault Up",
            ),
        ),
    ),
    Case(
        "an SXid that the guide does not have",
        {"log": with_line("nvidia-nvswitch1: SXid (PCI:0000:08:00.0): 20999, Non-fatal, Link 2 something")},
        Outcome.ERROR,
        (
            (
                "sxid-unknown",
                "node01 nvswitch1",
                "none since boot",
                "1 time at 2026-11-21T07:00:00+0000: Non-fatal, Link 2 something",
                "code=20999",
                "name=not in the vendor's guide",
            ),
        ),
    ),
    Case(
        "a form that is not known",
        {"log": with_line("NVRM: Xid (invalid): some error")},
        Outcome.ERROR,
        (
            (
                "xid-unknown-form",
                "node01",
                "a known form",
                "2026-11-21T07:00:00+0000 node01 kernel: NVRM: Xid (invalid): some error",
            ),
        ),
    ),
    Case(
        "a journal that was rotated",
        {"log": Said("\n".join(NOISE.splitlines()[-3:]))},
        Outcome.ERROR,
        (
            (
                "kernel-log-not-from-boot",
                "node01",
                "the line with which the kernel starts or the driver is loaded ('NVRM: loading NVIDIA UNIX')",
                "3 lines without it",
            ),
        ),
    ),
    Case(
        "no rights",
        {"log": Said("-- No entries --\n", exit_code=0)},
        Outcome.ERROR,
        (
            (
                "kernel-log-unreadable",
                "node01",
                "the kernel's messages since boot",
                "no line of a kernel log, but '-- No entries --' (exit code 0)",
            ),
        ),
    ),
    Case(
        "only what came after a recorded reset counts",
        {"log": xid(79, "GPU has fallen off the bus."), "clock": NOW},
        Outcome.PASS,
        (),
        {"since": "2026-11-21T08:00:00+00:00"},
    ),
    Case(
        "a time without a zone is UTC",
        {"log": xid(79, "GPU has fallen off the bus."), "clock": NOW},
        Outcome.PASS,
        (),
        {"since": "2026-11-21T09:30:00"},
    ),
    Case(
        "from a time to come on no event would count",
        {"log": xid(79, "GPU has fallen off the bus."), "clock": NOW},
        Outcome.ERROR,
        (
            (
                "xid-since-ahead",
                "node01",
                "at most 2026-11-21T09:30:00+00:00, the node's clock",
                "2026-11-21T09:30:01+00:00",
            ),
        ),
        {"since": "2026-11-21T09:30:01+00:00"},
    ),
    Case(
        "a clock that was not read",
        {"log": xid(79, "GPU has fallen off the bus.")},
        Outcome.ERROR,
        (("command-not-run", "node01", "an output", "none", "command=reading of the node's clock"),),
        {"since": "2026-11-21T08:00:00+00:00"},
    ),
    Case(
        "a clock that is none",
        {
            "log": xid(79, "GPU has fallen off the bus."),
            "clock": Said("bash: date: command not found\n", exit_code=127),
        },
        Outcome.ERROR,
        (("xid-clock-unreadable", "node01", "seconds since 1970", "'bash: date: command not found' (exit code 127)"),),
        {"since": "2026-11-21T08:00:00+00:00"},
    ),
    Case(
        "a clock of another age",
        {"log": xid(79, "GPU has fallen off the bus."), "clock": Said("9" * 18)},
        Outcome.ERROR,
        (("xid-clock-unreadable", "node01", "seconds since 1970", "'999999999999999999' (exit code 0)"),),
        {"since": "2026-11-21T08:00:00+00:00"},
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_verdict(case: Case) -> None:
    check(GATE, case)


def test_harmless_events_are_noted_with_the_vendors_action() -> None:
    assert judge(GATE, CASES[0]).note == (
        "node01 gpu2: Xid 31 (GPU memory page fault) 1 time at 2026-11-21T05:30:15+0000, vendor's action RESTART_APP; "
        "node01 gpu2: Xid 45 (Preemptive cleanup, due to previous errors) 1 time at "
        "2026-11-21T05:30:16+0000, vendor's action WORKFLOW_XID_45; "
        "node01 nvswitch3: SXid 22013 (Minion Link DLREQ interrupt) 3 times, last at "
        "2026-11-21T04:10:52+0000, non-fatal"
    )


def nvlink5(driver: str) -> Verdict:
    known = facts("gb200_nvl72", 1)
    known = replace(known, nodes={name: replace(node, driver=driver) for name, node in known.nodes.items()})
    found = gate(GATE)
    return evaluate(found, known, found.plan(known, ["node01"])[0], {"log": text("kernel/gb200_nvlink5.txt")}, 0)


def test_nvlink5_errors_are_decoded_by_the_vendors_rows() -> None:
    said = [str(finding) for finding in nvlink5("580.173.02").findings]
    assert [line.split(" - ")[0] for line in said] == [
        "node01 GPU at 0008:01:00: Xid 144 (NVLINK: SAW Error)",
        "node01 GPU at 0008:01:00: Xid 154 (GPU recovery action changed)",
        "node01 GPU at 0009:01:00: Xid 149 (NVLINK: NETIR Error)",
    ]
    assert "Vendor's action RESET_GPU" in said[0]
    assert "is in no row of the vendor's decode table" in said[2]


def test_the_decode_depends_on_the_driver_branch() -> None:
    """Before R575 the interrupt information lies elsewhere: what was harmless (145, ignored) is in no row then."""
    assert "Xid 145" not in " ".join(str(finding) for finding in nvlink5("580.173.02").findings)
    assert "Xid 145" in " ".join(str(finding) for finding in nvlink5("570.133.20").findings)


def test_the_last_recovery_action_counts() -> None:
    lines = "\n".join(
        f"[{at}.000000] NVRM: Xid (PCI:0000:43:00): 154, GPU recovery action changed from {change}"
        for at, change in (
            (40, "0x0 (None) to 0x1 (GPU Reset Required)"),
            (90, "0x1 (GPU Reset Required) to 0x0 (None)"),
        )
    )
    assert (
        judge(
            GATE, Case("over", {"log": Said(f"[    1.0] NVRM: loading NVIDIA UNIX\n{lines}\n")}, Outcome.PASS)
        ).outcome
        is Outcome.PASS
    )


@pytest.mark.parametrize(
    ("code", "word", "step"),
    [
        (1, "GPU Reset Required", 1),
        (1, "PF FLR", 1),
        (2, "OS Reboot", 2),
        (5, "Recover IMEX Domain", 5),
        (6, "Bus Reset", 6),
    ],
)
def test_xid_154_and_nvidia_smi_ask_for_the_same(code: int, word: str, step: int) -> None:
    said = xid(154, f"GPU recovery action changed from 0x0 (None) to 0x{code} ({word})")
    finding = ("xid-154", "node01 gpu1", "None", f"{word}, 1 time at 2026-11-21T07:00:00+0000", f"step={step}")
    check(GATE, Case(word, {"log": said}, Outcome.FAIL, (finding,)))
    assert recovery.ACTIONS[word] == KINDS["xid-154"].steps[step - 1]


def test_a_recovery_action_of_another_word_is_an_error() -> None:
    said = xid(154, "GPU recovery action changed from 0x0 (None) to 0x9 (Exorcise)")
    finding = ("xid-154-unknown-action", "node01 gpu1", "None", "Exorcise, 1 time at 2026-11-21T07:00:00+0000")
    check(GATE, Case("another word", {"log": said}, Outcome.ERROR, (finding,)))


FALLEN = text("kernel/dgx_h100_gpu4_fallen.txt")
GONE = (
    "Vendor's action RESTART_BM: power the node off and on; if it happens again: CONTACT_SUPPORT: docs/runbooks/gpu.md."
)


@pytest.mark.parametrize(
    ("lines", "where", "said"),
    [
        (
            ["NVRM: GPU 0000:43:00.0: GPU has fallen off the bus."],
            "node01 gpu1",
            "1 time at 2026-11-21T07:00:00+0000: GPU 0000:43:00.0: GPU has fallen off the bus",
        ),
        (
            [
                "NVRM: The NVIDIA GPU 0000:43:00.0",
                "NVRM: (PCI ID: 10de:2330) installed in this system has",
                "NVRM: fallen off the bus and is not responding to commands.",
            ],
            "node01 gpu1",
            "1 time at 2026-11-21T07:00:00+0000: fallen off the bus and is not responding to commands",
        ),
        (
            ["NVRM: fallen off the bus and is not responding to commands."] * 2,
            "node01",
            ("2 times, last at 2026-11-21T07:00:00+0000: fallen off the bus and is not responding to commands"),
        ),
    ],
    ids=["one line", "three lines", "no GPU named"],
)
def test_a_gpu_that_fell_off_the_bus_without_an_xid_fails(lines: list[str], where: str, said: str) -> None:
    log = Said(f"{NOISE}{''.join(f'2026-11-21T07:00:00+0000 node01 kernel: {line}{chr(10)}' for line in lines)}")
    if where == "node01":
        log = Said(
            log.stdout.replace(
                "NVRM: GPU at PCI:0000:1b:00: GPU-00000000-0000-0000-0000-000000000000", "NVRM: something"
            )
        )
    wanted = ("gpu-fallen-off-bus", where, "no such line since boot", said, f"step={GONE}")
    check(GATE, Case("fallen", {"log": log}, Outcome.FAIL, (wanted,)))
    past = Case("dealt with", {"log": log, "clock": NOW}, Outcome.PASS, (), {"since": "2026-11-21T08:00:00+00:00"})
    assert judge(GATE, past).outcome is Outcome.PASS


@pytest.mark.parametrize(
    ("log", "actual"),
    [
        (
            "2019-03-04T05:06:07+0000 node01 kernel: NVRM: loading NVIDIA UNIX x86_64 Kernel Module  418.87.00\n",
            "1 line",
        ),
        ("2019-03-04T05:06:07+0000 node01 kernel: Linux version 4.15.0-45-generic (buildd@lcy01)\n", "1 line"),
        (f"{NOISE.splitlines()[0]}\n{NOISE.splitlines()[2]}\n", "2 lines without it"),
    ],
    ids=["the driver alone", "the kernel alone", "no driver"],
)
def test_an_excerpt_of_a_log_is_an_error(log: str, actual: str) -> None:
    finding = (
        "kernel-log-excerpt",
        "node01",
        "the driver's first line ('NVRM: loading NVIDIA UNIX') and what came after it",
        actual,
    )
    check(GATE, Case("excerpt", {"log": Said(log)}, Outcome.ERROR, (finding,)))


@pytest.mark.parametrize(
    "said",
    [
        FALLEN.replace("Xid", "\x1b[01;31m\x1b[KXid\x1b[m\x1b[K"),
        re.sub(r"(?m)^(\[.*?\] )([^:\n]+: )", "\x1b[32m\\1\x1b[0m\x1b[33m\\2\x1b[0m", FALLEN),
    ],
    ids=["grep --color=always", "dmesg --color=always"],
)
def test_colours_change_nothing(said: str) -> None:
    assert said != FALLEN
    assert kernel_log.parse(said) == kernel_log.parse(FALLEN)


@pytest.mark.parametrize(
    "form",
    [
        "NVRM:  Xid",
        "NVRM:\u00a0Xid",
        "NVRM: \x00Xid",
        "NVRM: X\u200bid",
        "NVRM: X\x1bid",
        "N\x00VRM: Xid",
        "NVRM: GPU0 Xid",
        "nvrm: XID",
        "NVRM:\x0bXid",
        "\uff38id",
    ],
    ids=ascii,
)
def test_an_xid_in_another_form_is_no_pass(form: str) -> None:
    """Nobody sees the difference; what was not understood is never counted as none."""
    line = next(line for line in FALLEN.split("\n") if "): 79," in line).replace("NVRM: Xid", form)
    verdict = judge(GATE, Case("another form", {"log": Said(f"{NOISE}{line}\n")}, Outcome.ERROR))
    assert [(finding.what, finding.actual) for finding in verdict.findings] == [
        ("kernel log has an Xid in an unknown form", line)
    ]


@pytest.mark.parametrize(
    "line",
    [
        "NVRM: _kgspLogXid119: **** GSP Timeout ****",
        "RPC: reply xid 0x2c0b8e3e",
        "NVRM: GPU at PCI:0000:43:00: GPU-9c1f",
    ],
)
def test_words_that_only_look_like_an_xid_are_noise(line: str) -> None:
    assert judge(GATE, Case("noise", {"log": with_line(line)}, Outcome.PASS)).outcome is Outcome.PASS


@pytest.mark.parametrize(
    ("form", "words"),
    [("", ""), (" GPU-I:05", "GPU instance 5: "), (" GPU-I:01 GPU-CI:02", "GPU instance 1, compute instance 2: ")],
)
def test_the_three_forms_of_the_driver(form: str, words: str) -> None:
    """NVIDIA/open-gpu-kernel-modules, src/nvidia/src/kernel/gpu/rc/kernel_rc.c, krcReportXid_IMPL."""
    log = xid(94, "pid=7, name=python3, Contained", f"0000:43:00{form}")
    verdict = judge(GATE, Case("form", {"log": log}, Outcome.FAIL))
    assert [(one.where, one.actual) for one in verdict.findings] == [
        ("node01 gpu1", f"1 time at 2026-11-21T07:00:00+0000: {words}pid=7, name=python3, Contained")
    ]


def test_a_text_that_is_no_log_is_refused() -> None:
    with pytest.raises(FormatError, match=r"^empty output$"):
        kernel_log.parse(" \n")
    with pytest.raises(FormatError, match=r"^no line of a kernel log, but 'Permission denied'$"):
        kernel_log.parse("Permission denied\n")


def test_the_catalogue_is_whole() -> None:
    """Buckets as the vendor's sheet counts them: 14 resets, 94 decode rows, 92 SXids."""
    known = loader.xids()
    assert sorted(code for code, entry in known.xids.items() if entry.action == "RESET_GPU") == [
        46,
        62,
        64,
        95,
        109,
        110,
        119,
        120,
        136,
        140,
        143,
        155,
        156,
        158,
    ]
    assert [code for code, entry in known.xids.items() if entry.action == "RESTART_BM"] == [79]
    assert (len(known.nvlink5), len(known.sxids)) == (94, 92)
