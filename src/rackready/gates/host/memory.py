"""Gates on memory: number, size and speed of the modules, and their errors."""

from __future__ import annotations

import math
import re
from collections import Counter

from rackready.design.facts import NodeFacts
from rackready.format_error import FormatError
from rackready.gates.formats import dmidecode
from rackready.gates.host import reading
from rackready.gates.host.reading import AGAIN, Answers, HostGate, Limit, Tool, WantedValues
from rackready.gates.judging.finding_kinds import ErrorKind, FailKind
from rackready.gates.judging.judge import Judge
from rackready.model.outcome import Op
from rackready.model.place import Place

MODULES = Tool("dmidecode", ("dmidecode", "--type", "memory"), "dmidecode")


DMI_UNREADABLE = ErrorKind(
    "memory-dmidecode-unreadable",
    "dmidecode's output is not understood",
    meaning="dmidecode printed something other than memory modules.",
    next_step=AGAIN,
)
MODULES_NOT_JUDGED = ErrorKind(
    "memory-modules-not-judged",
    "number of memory modules cannot be judged",
    meaning="The platform profile has no number of memory modules.",
    next_step="Add `host` to the platform profile, with its source.",
)
MODULE_COUNT = FailKind(
    "memory-modules",
    "memory modules",
    meaning="The node has another number of memory modules than its platform.",
    next_step="Reseat the module in that slot and run the gate again. "
    "If the module is still missing, replace it, then suspect the slot or the processor's memory channel.",
)
MEMORY_SIZE = FailKind(
    "memory-size",
    "memory",
    meaning="The node has another amount of memory than its platform.",
    next_step="Reseat the module in that slot and run the gate again. "
    "If the module is still missing, replace it, then suspect the slot or the processor's memory channel.",
)
SPEED_NOT_REPORTED = ErrorKind(
    "memory-speed-not-reported",
    "speed of memory modules not reported",
    meaning="Some memory modules do not report their speed, but others do.",
    next_step=AGAIN,
)
MODULES_DIFFER = FailKind(
    "memory-modules-differ",
    "{what} of memory modules",
    meaning="The memory modules differ in size or speed, which slows the memory.",
    next_step="Reseat the odd module, or replace it by one like the others: one slow module slows its whole channel.",
)
NO_EDAC = ErrorKind(
    "memory-errors-not-counted",
    "memory error counters not reported",
    meaning="No driver counts memory errors, so they would not be seen.",
    next_step="Load the platform's driver (`modprobe i10nm_edac`, `amd64_edac` or `ghes_edac`).",
)
EDAC_UNREADABLE = ErrorKind(
    "memory-errors-unreadable",
    "memory error counters not understood",
    meaning="The counters of memory errors are not whole numbers.",
    next_step=AGAIN,
)
MACHINE_CHECK = FailKind(
    "machine-check",
    "machine check in the kernel log",
    meaning="The processor reported a hardware error.",
    next_step="Decode it (`ras-mc-ctl --errors`, the BMC's event log), and replace the part that it names.",
)
CORRECTED = FailKind(
    "memory-errors-corrected",
    "corrected memory errors",
    meaning="More memory errors were corrected than is normal: a module is wearing out.",
    next_step="Reseat the module; if the count grows again, replace it.",
)
UNCORRECTED = FailKind(
    "memory-errors-uncorrected",
    "uncorrected memory errors",
    meaning="Memory lost data: a module must be replaced.",
    next_step="Replace the module.",
)

FINDINGS = (
    DMI_UNREADABLE,
    MODULES_NOT_JUDGED,
    MODULE_COUNT,
    MEMORY_SIZE,
    SPEED_NOT_REPORTED,
    MODULES_DIFFER,
    NO_EDAC,
    EDAC_UNREADABLE,
    MACHINE_CHECK,
    CORRECTED,
    UNCORRECTED,
)


class MemoryModules(HostGate):
    """Every memory module is there, all are alike, and run at one speed."""

    id = "node/host/sanity/memory-modules"
    findings = (
        *reading.FINDINGS,
        DMI_UNREADABLE,
        MODULES_NOT_JUDGED,
        MODULE_COUNT,
        MEMORY_SIZE,
        SPEED_NOT_REPORTED,
        MODULES_DIFFER,
    )
    looks = True
    what = "memory modules"

    def wanted(self, facts: NodeFacts) -> WantedValues:  # noqa: ARG002 - the same on every node
        """Return the BIOS's list of modules."""
        return WantedValues((MODULES,))

    def judge_node(self, judge: Judge, facts: NodeFacts, found: Answers) -> None:
        """Compare the modules with the platform profile and with each other."""
        text = found.text("dmidecode")
        if text is None:
            return
        try:
            slots = dmidecode.memory(text)
        except FormatError as error:
            judge.error(found.node, DMI_UNREADABLE, "its Memory Device structures", error)
            return
        filled = [slot for slot in slots if slot.size_gib]
        self._count(judge, facts, slots, filled)
        self._alike(judge, facts.node.name, filled)

    @staticmethod
    def _count(judge: Judge, facts: NodeFacts, slots: list[dmidecode.Module], filled: list[dmidecode.Module]) -> None:
        node, parts = facts.node.name, facts.platform.host
        total = sum(slot.size_gib for slot in filled)
        judge.metric("memory", node, total, "GiB")
        if parts is None:
            judge.judged += 1
            judge.error(node, MODULES_NOT_JUDGED, "a number in the platform profile", "none")
            return
        empty = ", ".join(slot.locator for slot in slots if not slot.size_gib)
        if parts.dimms:
            judge.count("memory_modules", node, len(filled), parts.dimms, parts.source)
            judge.judged += 1
            if len(filled) != parts.dimms:
                judge.fail(
                    node,
                    MODULE_COUNT,
                    f"{parts.dimms} modules",
                    f"{len(filled)} (none in {empty})" if empty else str(len(filled)),
                )
        limit = Limit("memory", Op.GE, parts.memory_gib, "GiB", parts.source, "identity")
        if not limit.holds(judge, node, total):
            judge.fail(node, MEMORY_SIZE, f"{parts.memory_gib} GiB", f"{total:g} GiB")

    @staticmethod
    def _alike(judge: Judge, node: str, filled: list[dmidecode.Module]) -> None:
        judge.judged += 1
        silent = [slot.locator for slot in filled if slot.speed is None]
        if 0 < len(silent) < len(filled):  # the firmware of virtual machines reports none at all
            judge.error(
                node, SPEED_NOT_REPORTED, "a speed of every module, as most have", f"none of {', '.join(silent)}"
            )
        for what, unit, values in (
            ("size", "GiB", {slot.locator: slot.size_gib for slot in filled}),
            ("speed", "MT/s", {slot.locator: slot.speed for slot in filled if slot.speed is not None}),
        ):
            counted = Counter(values.values()).most_common()
            if len(counted) > 1:
                usual = counted[0][0]
                odd = ", ".join(
                    f"{locator} {value:g} {unit}"
                    for locator, value in values.items()
                    if value != usual and value is not None
                )
                judge.fail(node, MODULES_DIFFER, f"{usual:g} {unit} everywhere, as most have", odd, what=what)


COUNTS = "/sys/devices/system/edac/mc/mc*/[cu]e_count"
AGE = "/sys/devices/system/edac/mc/mc*/seconds_since_reset"
DIMM_COUNTS = "/sys/devices/system/edac/mc/mc*/dimm*/dimm_[cu]e_count"
DIMM_LABELS = "/sys/devices/system/edac/mc/mc*/dimm*/dimm_label"
LOG = Tool(
    "dmesg",
    ("dmesg",),
    "util-linux",
    keep=r"Hardware Error|CMCI storm|EDAC .*\b(UE|CE)\b|Machine [Cc]heck|Memory failure: ",
)
_FATAL = ("CMCI storm", "Uncorrected", "uncorrected", "Fatal", "fatal", "Processor context corrupt", " UE ")
_BANK = re.compile(r"Machine Check(?: Exception)?: [0-9a-f]+ Bank \d+: (?P<status>[0-9a-f]{16})$")
"""What the kernel prints about a bank (arch/x86/kernel/cpu/mce/core.c): the global status, and the bank's."""
_UNCORRECTED_BIT = 1 << 61
"""UC of a bank's status.

Sources: Intel software developer's manual, volume 3B, IA32_MCi_STATUS; AMD programmer's manual, volume 2, MCi_STATUS.
"""
_POISONED = re.compile(r"Memory failure: 0x[0-9a-f]+: recovery action ")
"""The kernel took a page with an uncorrected error away (mm/memory-failure.c).

Its message differs if it only moved a page away in time.
"""
_EVENT = re.compile(r"\{(?P<number>\d+)\}\[Hardware Error\]:\s+(?P<words>.*)$")
"""A line of an event from the firmware: all lines of one event have its number (drivers/acpi/apei/ghes.c)."""
_LOST = re.compile(
    r"(?:severity|type): (?:recoverable|fatal)$|error_type: \d+, (?:multi-bit ECC|multi-symbol chipkill ECC|scrub "
    r"uncorrected error)"
)
_HEALED = re.compile(r"severity: (?:corrected|info)$")
_PCIE = "section_type: PCIe error"
"""These words are from drivers/firmware/efi/cper.c.

Recoverable is uncorrected (UEFI specification, appendix N: error severity 0, "also called non-fatal uncorrected").
"""
_DAY_S = 86400
CE_PER_DAY = 10
CE_SOURCE = "mcelog, default of [dimm] ce-error-threshold: 10 / 24h"
UE_SOURCE = "mcelog, default of [dimm] uc-error-threshold: 1 / 24h"


class MemoryErrors(HostGate):
    """No memory module had uncorrected errors or too many corrected ones, and no fatal machine check was logged."""

    id = "node/host/sanity/memory-errors"
    findings = (*reading.FINDINGS, NO_EDAC, EDAC_UNREADABLE, MACHINE_CHECK, CORRECTED, UNCORRECTED)
    looks = True
    what = "memory errors"

    def wanted(self, facts: NodeFacts) -> WantedValues:  # noqa: ARG002 - the same on every node
        """Return the counters of the kernel's EDAC driver, and the kernel log's lines about machine checks."""
        return WantedValues((LOG,), (COUNTS, AGE, DIMM_COUNTS, DIMM_LABELS))

    def judge_node(self, judge: Judge, facts: NodeFacts, found: Answers) -> None:
        """Compare the counters with mcelog's thresholds for a bad module, and judge the log."""
        node = facts.node.name
        self._log(judge, node, found)
        controllers, ages = found.matching(COUNTS), found.matching(AGE)
        if not controllers or not ages:
            judge.judged += 1
            judge.error(node, NO_EDAC, "an EDAC memory controller in /sys/devices/system/edac/mc", "none")
            return
        modules, labels = found.matching(DIMM_COUNTS), found.matching(DIMM_LABELS)
        try:
            seconds = {path.rsplit("/", 1)[0]: int(text) for path, text in ages.items()}
            for path, text in sorted((modules or controllers).items()):
                self._counter(judge, node, path, int(text), labels, seconds)
            if modules:  # errors that the controller could not assign to a module
                known = _by_controller(modules)
                for path, text in sorted(controllers.items()):
                    self._unassigned(judge, node, path, int(text) - known[path], seconds)
        except (ValueError, KeyError) as error:
            judge.error(node, EDAC_UNREADABLE, "whole numbers", error)

    @staticmethod
    def _log(judge: Judge, node: str, found: Answers) -> None:
        text = found.kernel_log()
        if text is None:
            return
        judge.judged += 1
        lines, of_pcie = _uncorrected([line.strip() for line in text.splitlines()])
        if of_pcie:
            judge.remark(
                f"uncorrected PCIe errors that the firmware reported: {of_pcie}; "
                "they are not memory errors; node/host/stress/counter-deltas counts them under load"
            )
        if lines:
            judge.fail(
                node, MACHINE_CHECK, "none", f"{len(lines)} line{'s' if len(lines) > 1 else ''}, the last: {lines[-1]}"
            )

    def _counter(
        self, judge: Judge, node: str, path: str, count: int, labels: dict[str, str], seconds: dict[str, int]
    ) -> None:
        folder = path.rsplit("/", 1)[0]
        controller = folder.rsplit("/", 1)[0] if "/dimm" in folder else folder
        name = labels.get(f"{folder}/dimm_label", "").strip() or "/".join(folder.split("/")[6:])
        _compare(judge, Place(node, name), corrected="ce_count" in path, count=count, seconds=seconds[controller])

    @staticmethod
    def _unassigned(judge: Judge, node: str, path: str, count: int, seconds: dict[str, int]) -> None:
        controller, kind = path.rsplit("/", 1)
        if count > 0:
            _compare(
                judge,
                Place(node, controller.rsplit("/", 1)[1]),
                corrected=kind == "ce_count",
                count=count,
                seconds=seconds[controller],
            )


def _uncorrected(log: list[str]) -> tuple[list[str], int]:
    """Return the lines about uncorrected errors, and the number of recovered PCIe events of the firmware.

    Each of the firmware's other events appears with one of its lines.
    """
    events: dict[str, list[str]] = {}
    for line in log:
        if match := _EVENT.search(line):
            events.setdefault(match["number"], []).append(match["words"].strip())
    bad = {number for number, words in events.items() if _lost(words)}
    of_pcie = {number for number in bad if _only_pcie(events[number])}
    lines, told = [], set(of_pcie)
    for line in log:
        event, bank = _EVENT.search(line), _BANK.search(line)
        number = event["number"] if event else ""
        if number in bad and number not in told and event and _LOST.search(event["words"]):
            told.add(number)
            lines.append(line)
        elif number in told:
            continue
        elif (
            any(word in line for word in _FATAL)
            or _POISONED.search(line)
            or (bank and int(bank["status"], 16) & _UNCORRECTED_BIT)
        ):
            lines.append(line)
    return lines, len(of_pcie)


def _only_pcie(words: list[str]) -> bool:
    return [word for word in words if word.startswith("section_type:")] == [_PCIE] and not any(
        "fatal" in word for word in words
    )


def _lost(words: list[str]) -> bool:
    """Return whether an event of the firmware lost data: several wrong bits may still have been corrected."""
    return any(_LOST.search(word) for word in words) and not any(_HEALED.search(word) for word in words)


def _by_controller(modules: dict[str, str]) -> Counter[str]:
    """Return the modules' counts summed by controller: .../mc0/ce_count for .../mc0/dimm1/dimm_ce_count."""
    out: Counter[str] = Counter()
    for path, text in modules.items():
        folder, name = path.rsplit("/", 1)
        out[f"{folder.rsplit('/', 1)[0]}/{name.removeprefix('dimm_')}"] += int(text)
    return out


def _compare(judge: Judge, where: str, *, corrected: bool, count: int, seconds: int) -> None:
    """Compare one counter with mcelog's thresholds.

    10 corrected errors for each day or part of a day since the counter's reset, and no uncorrected one.
    """
    days = max(1, math.ceil(seconds / _DAY_S))
    name, bound, source = (
        ("memory_corrected", CE_PER_DAY * days, CE_SOURCE) if corrected else ("memory_uncorrected", 0, UE_SOURCE)
    )
    if Limit(name, Op.LE, bound, "1", source).holds(judge, where, count):
        return
    if corrected:
        actual = f"{count} in {days} day{'s' if days > 1 else ''}"
        judge.fail(where, CORRECTED, f"at most {CE_PER_DAY} a day (mcelog)", actual)
    else:
        judge.fail(where, UNCORRECTED, "none", count)
