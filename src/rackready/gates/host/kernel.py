"""The gate on kernel settings for jobs: command line, huge pages, locked memory for RDMA, swap."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import Field, Strict

from rackready.design.facts import NodeFacts
from rackready.gates import base
from rackready.gates.host import reading
from rackready.gates.host.reading import AGAIN, Answers, HostGate, Tool, WantedValues
from rackready.gates.judging.finding_kinds import ErrorKind, FailKind
from rackready.gates.judging.judge import Judge
from rackready.ondevice import reboot_reasons

CMDLINE = "/proc/cmdline"
HUGE = "/sys/kernel/mm/hugepages/hugepages-*kB/nr_hugepages"
MEMLOCK = Tool("prlimit", ("prlimit", "--memlock", "--raw", "--noheadings", "--output=SOFT,HARD"), "util-linux")
SWAPS = Tool("swapon", ("swapon", "--show=NAME", "--noheadings", "--raw"), "mount")
_SIZES = {"k": 1, "m": 1024, "g": 1024 * 1024}
_DEFAULT_KB = 2048
"""Size of huge pages on x86 and arm64 (4 KiB pages) if the command line names none."""


CMDLINE_NOT_REPORTED = ErrorKind(
    "kernel-cmdline-not-reported",
    "kernel command line not reported",
    meaning="The kernel's command line cannot be read.",
    next_step=AGAIN,
)
SWAP = FailKind(
    "swap-on",
    "swap",
    meaning="Swap is on: memory of a job may be moved to a drive, which slows the job down.",
    next_step="Run `swapoff -a` and remove swap from /etc/fstab, or allow it in the gate set (`swap: true`).",
)
CMDLINE_WORD = FailKind(
    "kernel-cmdline",
    "kernel command line",
    meaning="A word that the site wants is not on the kernel command line, or a later word of its name replaces it.",
    next_step="Add it to `base_kernel_options` and run install, which also takes it out of GRUB_CMDLINE_LINUX_DEFAULT; "
    "or correct GRUB_CMDLINE_LINUX on the node and run `update-grub`. Then reboot it.",
)
HUGE_PAGES_NOT_REPORTED = ErrorKind(
    "huge-pages-not-reported",
    "huge pages of {size} kB not reported",
    meaning="The kernel does not report how many huge pages of this size there are.",
    next_step="Check that the processor and the kernel offer this size.",
)
HUGE_PAGES = FailKind(
    "huge-pages",
    "huge pages of {size} kB",
    meaning="The kernel has reserved fewer huge pages than the site wants.",
    next_step="Memory was too fragmented or too small: reserve them on the kernel command line (`base_kernel_options`) "
    "and reboot, or at each boot (`base_huge_pages`), and check that no memory module is missing.",
)
PRLIMIT_UNREADABLE = ErrorKind(
    "memlock-unreadable",
    "prlimit's output is not understood",
    meaning="prlimit printed something other than limits.",
    next_step=AGAIN,
)
MEMLOCK_LIMITED = FailKind(
    "memlock-limited",
    "locked memory (memlock)",
    meaning="Programs may lock only a part of the memory, so RDMA fails with large buffers.",
    next_step="Run install again (it writes /etc/security/limits.d), then log in again: RDMA needs locked memory for "
    "its buffers.",
)

FINDINGS = (
    CMDLINE_NOT_REPORTED,
    SWAP,
    CMDLINE_WORD,
    HUGE_PAGES_NOT_REPORTED,
    HUGE_PAGES,
    PRLIMIT_UNREADABLE,
    MEMLOCK_LIMITED,
)


def asked_for(cmdline: str) -> dict[int, int]:
    """Return page size in kB -> pages that a command line reserves (hugepagesz=, hugepages=, default_hugepagesz=)."""
    out: dict[int, int] = {}
    default = size = _DEFAULT_KB
    for word in cmdline.split():
        name, mark, value = word.partition("=")
        if name == "default_hugepagesz" and mark:
            default = size = _kilobytes(value)
        elif name == "hugepagesz" and mark:
            size = _kilobytes(value)
        elif name == "hugepages" and value.isdigit():
            out[size] = int(value)
            size = default
    return out


def _kilobytes(text: str) -> int:
    match = re.fullmatch(r"(\d+)([KkMmGg])", text)
    return int(match[1]) * _SIZES[match[2].lower()] if match else _DEFAULT_KB


class KernelSettings(HostGate):
    """The kernel runs with the wanted command line, huge pages, unlimited locked memory, and without swap."""

    id = "node/host/sanity/kernel-settings"
    findings = (*reading.FINDINGS, *FINDINGS)
    looks = True
    what = "kernel settings"

    class Inputs(base.Inputs):
        """Settings that the site wants beyond those of the running kernel."""

        cmdline: tuple[str, ...] = Field(
            (), description="words that the kernel command line must have, e.g. numa_balancing=disable"
        )
        hugepages: dict[
            Annotated[int, Strict(strict=False), Field(ge=1, le=1 << 24)], Annotated[int, Field(ge=0, le=10**9)]
        ] = Field(
            {},
            description="page size in kB -> lowest number of huge pages, beside those that the command line reserves",
        )
        swap: bool = Field(
            default=False,
            description="swap may be on; source of the default: Kubernetes (kubelet does not start with swap by "
            "default)",
        )

    inputs: Inputs

    def wanted(self, facts: NodeFacts) -> WantedValues:  # noqa: ARG002 - the same on every node
        """Return command line, huge pages, limits and swap."""
        return WantedValues((MEMLOCK, SWAPS), (CMDLINE, HUGE))

    def judge_node(self, judge: Judge, facts: NodeFacts, found: Answers) -> None:
        """Compare each setting with the wanted one."""
        node = facts.node.name
        cmdline = found.one(CMDLINE)
        if not cmdline:
            judge.error(node, CMDLINE_NOT_REPORTED, CMDLINE, "nothing")
        else:
            self._cmdline(judge, node, cmdline)
            self._huge(judge, node, cmdline, found)
        self._memlock(judge, node, found)
        swaps = found.text("swapon")
        if swaps is not None:
            judge.judged += 1
            if swaps.split() and not self.inputs.swap:
                judge.fail(node, SWAP, "none", ", ".join(swaps.split()))

    def _cmdline(self, judge: Judge, node: str, cmdline: str) -> None:
        judge.judged += len(self.inputs.cmdline)
        for word, same in reboot_reasons.lacking(cmdline.split(), list(self.inputs.cmdline)):
            judge.fail(node, CMDLINE_WORD, word, " ".join(same) or "not there")

    def _huge(self, judge: Judge, node: str, cmdline: str, found: Answers) -> None:
        judge.judged += 1
        least = asked_for(cmdline)
        for size, count in self.inputs.hugepages.items():
            least[size] = max(count, least.get(size, 0))
        have = {int(path.split("hugepages-")[1].split("kB")[0]): text for path, text in found.matching(HUGE).items()}
        for size, count in sorted(least.items()):
            text = have.get(size, "")
            if not text.isdigit():
                judge.error(node, HUGE_PAGES_NOT_REPORTED, f"at least {count}", text or "nothing", size=size)
                continue
            judge.metric(f"hugepages_{size}kb", node, int(text), "1")
            if int(text) < count:
                judge.fail(node, HUGE_PAGES, f"at least {count}", text, size=size)

    @staticmethod
    def _memlock(judge: Judge, node: str, found: Answers) -> None:
        text = found.text("prlimit")
        if text is None:
            return
        values = text.split()
        if len(values) != 2 or any(value != "unlimited" and not value.isdigit() for value in values):  # noqa: PLR2004 - soft and hard
            judge.error(node, PRLIMIT_UNREADABLE, "soft and hard limit", text.strip()[:60] or "nothing")
            return
        judge.judged += 1
        if values != ["unlimited", "unlimited"]:
            judge.fail(node, MEMLOCK_LIMITED, "unlimited", f"soft {values[0]}, hard {values[1]} (bytes)")
