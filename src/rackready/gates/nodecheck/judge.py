"""What is wrong with a node, from the outputs of its own tools: pure, for the check that runs on the node.

The readers, rules, codes and words are those of the gates (``rules``, the table that ``bundle`` makes). What cannot be
measured is a finding, never a pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rackready.format_error import FormatError
from rackready.gates.formats import kernel_log, smi_nvlink, smi_xml
from rackready.gates.formats.kernel_log import Event
from rackready.gates.formats.smi_xml import SmiGpu, SmiLog
from rackready.gates.nodecheck import rules

ECC, REMAP = "node/gpu/sanity/ecc", "node/gpu/sanity/row-remap"
FABRIC, NVLINK = "node/gpu/sanity/fabric", "node/gpu/sanity/nvlink"
SETTINGS, RECOVERY = "node/gpu/sanity/settings", "node/gpu/sanity/recovery-action"
XID, INVENTORY = "node/gpu/sanity/xid", "node/gpu/sanity/inventory"
VERSIONS = "node/gpu/sanity/versions"
GATES = (INVENTORY, ECC, REMAP, RECOVERY, SETTINGS, FABRIC, NVLINK, XID, VERSIONS)
"""Gates whose quick part the check repeats. One that the site skips on a node is skipped here, too."""
OWN = {
    "not-measured": "{what} did not measure",
    "gpu-other": "not the GPU that was handed over",
    "gpu-gone": "GPU that was handed over is missing",
    "disk-full": "file system {what} is full",
}
"""Words of findings that no gate has."""


CODES = (
    "nvidia-smi-no-driver", "nvidia-smi-unreadable", "nvidia-smi-not-numbers", "nvidia-smi-exit-code",
    "nvidia-smi-gpus-missing", "nvidia-smi-gpus-too-many", "gpu-lost", "inforom-corrupt", "gpu-recovery-action",
    "gpu-recovery-not-reported", "row-remap-failed", "row-remap-pending", "persistence-mode", "ecc-mode",
    "ecc-uncorrected", "ecc-sram-threshold", "gpu-number-not-reported", "gpu-flag-not-reported", "fabric-state",
    "fabric-status", "fabric-health-bad", "fabric-health-part-bad", "nvlink-unreadable", "nvlink-exit-code",
    "nvlink-gpu-lost", "nvlink-gpus-missing", "nvlink-none-active", "nvlink-inactive", "kernel-log-unreadable",
    "kernel-log-exit-code", "xid-unknown-form", "gpu-fallen-off-bus", "xid", "xid-154", "xid-154-unreadable",
    "sxid-fatal", "sxid-unknown", "service-states-unreadable", "service-not-active",
)  # fmt: skip
"""Codes of gates' findings that the check may have; their titles come from the gates."""


@dataclass(frozen=True)
class ToolEnd:
    """One command's end. ``failure``: why there is none, e.g. no answer in time."""

    code: int
    out: str
    failure: str = ""


@dataclass(frozen=True)
class Found:
    """One finding. ``where``: the part, "" for the node; ``words``: its title."""

    code: str
    where: str
    words: str
    actual: str

    def text(self) -> str:
        """Return it as one line."""
        head = f"{self.where}: {self.words}" if self.where else self.words
        return f"{head} ({self.actual})" if self.actual else head


class Check:
    """One check. ``node``: what was handed over; ``table``: titles and the vendor's catalogue of Xids."""

    def __init__(self, node: Mapping[str, Any], table: Mapping[str, Any]) -> None:
        self._node = node
        self._table = table
        self._skips = frozenset(node["skips"])

    def judge(self, outputs: Mapping[str, ToolEnd]) -> list[Found]:
        """Return the findings, the plainest first; none for a node that is fit for jobs."""
        out = list(self._smi(outputs["smi"]))
        if self._node["nvlinks"] and NVLINK not in self._skips:
            out += self._nvlink(outputs["nvlink"])
        if XID not in self._skips:
            out += self._log(outputs["log"], branch_of(outputs["smi"]))
        if self._node["units"]:
            out += self._units(outputs["units"])
        return out + list(self._disks(outputs["disks"]))

    def _found(self, kind: str, where: str, actual: str, /, **fields: str) -> Found:
        words = OWN.get(kind) or self._table["titles"][kind]
        return Found(kind, where, words.format(**fields), " ".join(actual.split())[:160])

    def _silent(self, done: ToolEnd, what: str) -> Iterator[Found]:
        if done.failure:
            yield self._found("not-measured", "", done.failure, what=what)

    # --- GPUs ---------------------------------------------------------------------------------------------------------

    def _smi(self, done: ToolEnd) -> Iterator[Found]:
        if done.failure:
            yield from self._silent(done, "nvidia-smi -q -x")
            return
        try:
            log = smi_xml.parse(done.out)
        except smi_xml.NoDriverError as error:
            yield self._found("nvidia-smi-no-driver", "", str(error))
            return
        except FormatError as error:
            yield self._found("nvidia-smi-unreadable", "", f"{error} (exit code {done.code})")
            return
        for name in log.lost:
            yield self._found("gpu-lost", "", "GPU is lost", name=name)
        yield from self._whole(log, done.code)
        for gpu in log.gpus:
            try:
                yield from self._gpu(gpu)
            except FormatError as error:
                yield self._found("nvidia-smi-not-numbers", f"gpu{gpu.position}", str(error))

    def _whole(self, log: SmiLog, code: int) -> Iterator[Found]:
        """Compare the GPUs with those that were handed over."""
        explained = {0} | ({rules.CORRUPT_INFOROM} if log.corrupt_inforom else set())
        if code not in explained | ({rules.LOST} if log.lost else set()):
            yield self._found("nvidia-smi-exit-code", "", f"exit code {code}")
        for pci in log.corrupt_inforom:
            yield self._found("inforom-corrupt", "", pci)
        wanted = list(self._node["gpus"])
        if len(log.gpus) != len(wanted):
            few = len(log.gpus) < len(wanted)
            code_of = "nvidia-smi-gpus-missing" if few else "nvidia-smi-gpus-too-many"
            yield self._found(code_of, "", f"{len(log.gpus)} of {len(wanted)}")
        for gpu in log.gpus:
            name = identity(gpu)
            if name in wanted:
                wanted.remove(name)
            else:
                yield self._found("gpu-other", f"gpu{gpu.position}", name)
        for name in wanted:
            yield self._found("gpu-gone", "", name)

    def _gpu(self, gpu: SmiGpu) -> Iterator[Found]:
        where = f"gpu{gpu.position}"
        if RECOVERY not in self._skips:
            action = gpu.text("gpu_recovery_action")
            if action != "None":
                code = "gpu-recovery-action" if action else "gpu-recovery-not-reported"
                yield self._found(code, where, action or "nothing")
        if REMAP not in self._skips:
            yield from self._flag(gpu, "remapped_rows/remapped_row_failure", "row-remap-failed", "row remapping")
            yield from self._flag(gpu, "remapped_rows/remapped_row_pending", "row-remap-pending", "row remapping")
        if ECC not in self._skips:
            yield from self._ecc(gpu)
        if SETTINGS not in self._skips:
            mode = gpu.text("persistence_mode")
            if mode != self._node["persistence"]:
                yield self._found("persistence-mode", where, mode or "not reported")
        if self._node["fabric"] and FABRIC not in self._skips:
            yield from self._fabric(gpu)

    def _ecc(self, gpu: SmiGpu) -> Iterator[Found]:
        where, mode = f"gpu{gpu.position}", gpu.text("ecc_mode/current_ecc")
        if mode != self._node["ecc"]:
            yield self._found("ecc-mode", where, mode or "not reported")
        if mode != "Enabled":
            return
        for path, what in rules.UNCORRECTED.items():
            value = gpu.number(f"ecc_errors/volatile/{path}")
            if value is None:
                yield self._found("gpu-number-not-reported", where, "", what=f"uncorrected {what} errors")
            elif value > 0:
                yield self._found("ecc-uncorrected", where, f"{value:.0f}", what=what)
        yield from self._flag(gpu, "ecc_errors/aggregate/sram_threshold_exceeded", "ecc-sram-threshold", "SRAM flag")

    def _flag(self, gpu: SmiGpu, path: str, code: str, what: str) -> Iterator[Found]:
        value, where = gpu.text(path), f"gpu{gpu.position}"
        if value == "Yes":
            yield self._found(code, where, "")
        elif value != "No":
            yield self._found("gpu-flag-not-reported", where, value or "nothing", what=what)

    def _fabric(self, gpu: SmiGpu) -> Iterator[Found]:
        where, state = f"gpu{gpu.position}", gpu.text("fabric/state")
        if state is None and self._node["fabric"] == "silent":
            return
        if state != "Completed":
            yield self._found("fabric-state", where, state or "not reported")
        elif (status := gpu.text("fabric/status")) != "Success":
            yield self._found("fabric-status", where, status or "not reported")
        summary = gpu.text("fabric/health/summary")
        if summary is not None and summary not in rules.HEALTHY_FABRIC:
            yield self._found("fabric-health-bad", where, summary)
        for path, (good, what) in rules.FABRIC_PARTS.items():
            value = gpu.text(f"fabric/{path}")
            if value is not None and value not in good | {rules.NOT_SUPPORTED}:
                yield self._found("fabric-health-part-bad", where, value, what=what)

    def _nvlink(self, done: ToolEnd) -> Iterator[Found]:
        what = "nvidia-smi nvlink -s"
        if done.failure:
            yield from self._silent(done, what)
            return
        try:
            report = smi_nvlink.status(done.out)
        except FormatError as error:
            yield self._found("nvlink-unreadable", "", f"{error} (exit code {done.code})", what=what)
            return
        refused = any(gpu.refused for gpu in report.gpus.values())
        if done.code != 0 and not report.lost and not refused:
            yield self._found("nvlink-exit-code", "", f"exit code {done.code}", what=what)
        for name, words in report.lost.items():
            yield self._found("nvlink-gpu-lost", "", f"{name}: {words}")
        if len(report.gpus) < len(self._node["gpus"]):
            yield self._found("nvlink-gpus-missing", "", f"{len(report.gpus)} of {len(self._node['gpus'])}")
        for gpu in report.gpus.values():
            active = sum(speed is not None for speed in gpu.speeds.values())
            if gpu.refused:
                yield self._found("nvlink-none-active", f"gpu{gpu.index}", gpu.refused)
            elif active != self._node["nvlinks"]:
                yield self._found("nvlink-inactive", f"gpu{gpu.index}", f"{active} of {self._node['nvlinks']} active")

    # --- the kernel's log ---------------------------------------------------------------------------------------------

    def _log(self, done: ToolEnd, branch: int) -> Iterator[Found]:
        """Judge the events since boot, as far as the journal reaches: older ones were seen by earlier checks."""
        if done.failure:
            yield from self._silent(done, "journalctl --dmesg")
            return
        try:
            log = kernel_log.parse(done.out)
        except FormatError as error:
            yield self._found("kernel-log-unreadable", "", f"{error} (exit code {done.code})")
            return
        if done.code != 0:
            yield self._found("kernel-log-exit-code", "", f"exit code {done.code}")
        for line in log.unreadable:
            yield self._found("xid-unknown-form", "", line)
        known = {event.pci for event in log.xids if event.code == kernel_log.FALLEN}
        for pci in dict.fromkeys(event.pci for event in log.fallen if event.pci not in known):
            if pci or not known:
                yield self._found("gpu-fallen-off-bus", pci, "")
        for (pci, code), events in grouped(log.xids).items():
            yield from self._xid(pci, code, events, branch)
        for (pci, code), events in grouped(log.sxids).items():
            yield from self._sxid(pci, code, events)

    def _xid(self, pci: str, code: int, events: list[Event], branch: int) -> Iterator[Found]:
        if code == rules.RECOVERY_XID:
            wanted = kernel_log.recovery(events[-1].text)
            if wanted != "None":
                yield self._found("xid-154" if wanted else "xid-154-unreadable", pci, wanted or events[-1].text)
            return
        action, name = self._table["xids"].get(str(code), ("CONTACT_SUPPORT", "not in the vendor's catalogue"))
        if code in rules.NVLINK5_XIDS and str(code) in self._table["xids"]:
            rows = self._table["nvlink5"]["new" if branch >= rules.NEW_DECODE else "old"]
            action = rules.strongest(rules.nvlink5_action(rows, code, event.text) for event in events)
        if action not in rules.HARMLESS:
            yield self._found("xid", pci, events[-1].when, code=str(code), name=name)

    def _sxid(self, pci: str, code: int, events: list[Event]) -> Iterator[Found]:
        kind, name = self._table["sxids"].get(str(code), ("", "not in the vendor's guide"))
        if kind in rules.FATAL_SXIDS or any(event.text.startswith("Fatal") for event in events):
            yield self._found("sxid-fatal", pci, events[-1].when, code=str(code), name=name)
        elif not kind:
            yield self._found("sxid-unknown", pci, events[-1].when, code=str(code), name=name)

    # --- the host -----------------------------------------------------------------------------------------------------

    def _units(self, done: ToolEnd) -> Iterator[Found]:
        units, states = self._node["units"], done.out.split()
        if done.failure:
            yield from self._silent(done, "systemctl is-active")
        elif len(states) != len(units):
            yield self._found("service-states-unreadable", "", f"{done.out!r} (exit code {done.code})")
        else:
            for name, state in zip(units, states):  # noqa: B905 - Python 3.9; both have one length
                if state != "active":
                    yield self._found("service-not-active", "", state, name=name)

    def _disks(self, done: ToolEnd) -> Iterator[Found]:
        if done.failure:
            yield from self._silent(done, "df")
            return
        rows = [line.split() for line in done.out.splitlines()[1:]]
        wanted, least = list(self._node["filesystems"]), self._node["least_free_pct"]
        whole = all(len(row) == len(DF_COLUMNS) and all(word.isdigit() for word in row[1:3]) for row in rows)
        if done.code != 0 or len(rows) != len(wanted) or not whole:
            yield self._found("not-measured", "", f"{done.out[-120:]!r} (exit code {done.code})", what="df")
            return
        for path, row in zip(wanted, rows):  # noqa: B905 - Python 3.9; both have one length
            for free, total, unit in ((row[2], row[1], "bytes"), (row[4], row[3], "inodes")):
                if total.isdigit() and free.isdigit() and int(total) and 100 * int(free) < least * int(total):
                    yield self._found(
                        "disk-full", "", f"{100 * int(free) / int(total):.1f} % of {unit} free", what=path
                    )


DF_COLUMNS = ("target", "size", "avail", "itotal", "iavail")
"""Columns of df, in this order; a file system without inodes has "-" or 0 there (btrfs)."""


def identity(gpu: SmiGpu) -> str:
    """Return a GPU's serial, or its UUID where the board has none, as in the certificate's fingerprint."""
    return gpu.text("serial") or gpu.text("uuid") or ""


def branch_of(smi: ToolEnd) -> int:
    """Return the driver's branch of a report of nvidia-smi; 0 when there is none."""
    try:
        return rules.branch_of(smi_xml.parse(smi.out).driver) if not smi.failure else 0
    except FormatError:
        return 0


def grouped(events: tuple[Event, ...]) -> dict[tuple[str, int], list[Event]]:
    """Return events by PCI address and code."""
    out: dict[tuple[str, int], list[Event]] = {}
    for event in events:
        out.setdefault((event.pci, event.code), []).append(event)
    return out
