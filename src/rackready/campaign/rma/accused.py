"""Which part a fault accuses: rules of our own, each with its source. What no rule places accuses nothing, and says so.

Gates name parts by what the hardware reports (PCI addresses, RDMA devices, names of the BMC), so a finding's part is
taken as it is. The rules say which findings are about hardware at all, and which part of a link comes first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from rackready.campaign.rma.parts import NodePart
from rackready.design.facts import NodeFacts
from rackready.gates.formats.kernel_log import Event, KernelLog, date
from rackready.gates.gpu.parts import name as gpu_name
from rackready.gates.gpu.xid_actions import action
from rackready.model.evidence import EvidenceRecord
from rackready.model.outcome import Finding, Outcome


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. ``codes``: of findings; ``kind``: of the part; ``named``: how the finding's part names it."""

    name: str
    codes: str
    kind: str
    named: str
    source: str

    def place(self, finding: Finding) -> str | None:
        """Return the place of the part, None when the rule is about something else."""
        if not re.match(self.codes, finding.code):
            return None
        found = re.match(self.named, finding.part)
        return found.expand(r"\g<0>").strip() if found else None


_XIDS = "NVIDIA Xid catalogue, docs.nvidia.com/deploy/xid-errors (profiles/xid); the gate names the GPU by PCI address"
_DEBUG = "NVIDIA GPU debug guidelines, docs.nvidia.com/deploy/gpu-debug-guidelines: hardware problems of a GPU"
_REMAP = "NVIDIA GPU memory error management, docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt: RMA on row remap failures"
_OPTICS = "judgement: a module is replaced in minutes, and both ends are looked at before the NIC"
_NIC = "judgement: the link is good by its module's readings, and the device is missing or slow"
_BMC = "DMTF DSP0268: the BMC names the part of the resource whose Status it reports"
RULES = (
    Rule("xid", r"xid$|xid-154$|sxid|gpu-fallen-off-bus|gpu-recovery-action", "gpu", r"gpu\d+", _XIDS),
    Rule(
        "gpu-memory", r"row-remap-failed|row-remap-many|ecc-(uncorrected|sram)|burn-ecc-unc", "gpu", r"gpu\d+", _REMAP
    ),
    Rule(
        "gpu",
        r"gpu-(gone|lost|inventory-lost|missing|nvlink-down|pcie-(width|generation|fell|replays|lanes)|power-low|hot)"
        r"|gpu-(at|near)-slow|gpu-memory-hot|inforom-corrupt|tpc-repair|nvlink-|fabric-health|dcgm-(diag-test-failed|health)"
        r"|gemm-|nvbandwidth-(slow|peer-slow)|pcie-replays|clocks-held-hw|behind-(siblings|fleet)|part-(gone|came|changed)",
        "gpu",
        r"gpu\d+",
        _DEBUG,
    ),
    Rule(
        "cable",
        r"module-|optics-|fec-|link-(ber|went|was|not-up|rate|firm)|port-errors|ib-|cable-",
        "module",
        r"\S+",
        _OPTICS,
    ),
    Rule(
        "nic", r"nic-|rdma-(link|write-slow)|latency-behind|bmc-nic|behind-(siblings|fleet)", "nic", r"[\w-]+_\d+", _NIC
    ),
    Rule("psu", r"psu-", "psu", r"psu \S+", _BMC),
    Rule("fan", r"fan-", "fan", r"fan \S+", _BMC),
    Rule("drive", r"drive-|smart-", "drive", r"\S+", "the drive's own counters (NVMe SMART log, ATA SMART)"),
    Rule("memory", r"memory-|bmc-log-memory|machine-check", "memory module", r".+", "DIMM as EDAC or the BMC names it"),
)
KINDS = {rule.name: rule.kind for rule in RULES}
"""Rule -> kind of the parts that it accuses. Places of two kinds may have the same name."""
HARMLESS = frozenset({"IGNORE", "RESTART_APP", "RESTART_VM", "UPDATE_SWFW", "XID_154_EVAL", "WORKFLOW_XID_45", "none"})
"""Actions of the Xid catalogue that do not point at the GPU: an application, software, or the Xid beside it."""


@dataclass(slots=True)
class Fault:
    """One fault as it was found, once or often. ``accused``: the places of parts, by rule; empty: by no rule."""

    code: str
    where: str
    text: str
    first: datetime | None
    last: datetime | None
    runs: list[str] = field(default_factory=list)
    gate: str = ""
    times: int = 0
    accused: list[tuple[str, str]] = field(default_factory=list)
    """(place of the part, name of the rule)."""

    def seen(self, at: datetime | None, run: str) -> None:
        """Add one more time."""
        self.times += 1
        if at is not None:
            self.first = min(self.first, at) if self.first else at
            self.last = max(self.last, at) if self.last else at
        if run and run not in self.runs:
            self.runs.append(run)


def from_evidence(node: str, records: Iterable[EvidenceRecord], parts: Sequence[NodePart], since: float) -> list[Fault]:
    """Return the fails on record about a node since a time (s since 1970), each once, the oldest first."""
    found: dict[tuple[str, str], Fault] = {}
    for record in records:
        if record.verdict.outcome is not Outcome.FAIL or record.started.timestamp() < since:
            continue
        for finding in record.verdict.findings:
            if finding.node not in {node, ""} and node not in finding.nodes:
                continue
            key = (finding.code or finding.what, finding.where)
            fault = found.get(key)
            if fault is None:
                fault = Fault(finding.code, finding.where, str(finding), None, None, gate=record.gate)
                fault.accused = accuse(finding, parts)
                found[key] = fault
            fault.seen(record.started, record.campaign)
    return list(found.values())


def accuse(finding: Finding, parts: Sequence[NodePart]) -> list[tuple[str, str]]:
    """Return the places of the parts that a finding accuses, with the rule. A place of no known part stays named."""
    for rule in RULES:
        place = rule.place(finding)
        if place is None:
            continue
        if rule.kind == "module":
            place = f"module of {place}"
        known = [part.place for part in parts if part.kind == rule.kind and _is(part, place)]
        if not known and rule.kind in {"memory module", "drive"}:
            text = f"{finding.where} {finding.actual}"
            known = [part.place for part in parts if part.kind == rule.kind and _named(part, text)]
            place = ""
        return [(item, rule.name) for item in known] or ([(place, rule.name)] if place else [])
    return []


def _is(part: NodePart, place: str) -> bool:
    return place in {part.place, part.slot}


def _named(part: NodePart, text: str) -> bool:
    """Return whether a text names a part: by its slot or serial number, as whole words."""
    return any(word and re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text) for word in (part.place, part.serial))


def from_kernel(log: KernelLog, facts: NodeFacts, run: str, since: float = 0.0) -> list[Fault]:
    """Return the Xids of a kernel log that the vendor's catalogue does not leave to applications.

    ``since``: of the last repair, s since 1970: earlier ones may be of a GPU that is gone.
    """
    found: dict[tuple[str, int], list[Event]] = {}
    for event in (*log.xids, *log.fallen):
        at = _aware(date(event.when))
        if at is None or at.timestamp() >= since:
            found.setdefault((event.pci, event.code), []).append(event)
    out = []
    for (pci, code), events in sorted(found.items()):
        step, name = action(facts, events)
        if step in HARMLESS:
            continue
        place = gpu_name(facts, pci)
        text = f"{facts.node.name} {place} ({pci}): Xid {code} ({name}), {len(events)} times; vendor's action {step}"
        fault = Fault("xid", f"{facts.node.name} {place}", text, None, None, gate="kernel log")
        fault.accused = [(place, "xid")] if place.startswith("gpu") else []
        for event in events:
            fault.seen(_aware(date(event.when)), run)
        out.append(fault)
    return out


def _aware(at: datetime | None) -> datetime | None:
    """Return a time that has a zone; one without cannot be compared with others."""
    return at if at is not None and at.tzinfo is not None else None
