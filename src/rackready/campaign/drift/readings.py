"""Compares what no role manages: parts, firmware and kernel with the last deploy, settings with gates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rackready.campaign.drift.applied import Applied
from rackready.campaign.drift.found import DriftReading
from rackready.design.check_gates import today
from rackready.evidence.store import EvidenceStore
from rackready.gates.bmc.connection import Bmcs, sites_of
from rackready.gates.engine.registry import gate as make_gate
from rackready.gates.engine.runner import Connection, Runner
from rackready.gates.engine.site_facts import site_facts
from rackready.gates.engine.validate import connect, gate_entries
from rackready.gates.gpu.ecc import ECC_MODE, ECC_MODE_PENDING
from rackready.gates.gpu.settings import PERSISTENCE, POWER_LIMIT
from rackready.gates.judging.merge import merged
from rackready.gates.records.fingerprint import gather
from rackready.gates.records.node_parts import Change, compare
from rackready.handover.certificate import read
from rackready.handover.keys import keys_of
from rackready.ledger.store import Ledger
from rackready.model.drift import DriftItem, DriftKind
from rackready.model.evidence import COVERAGE, Fingerprint
from rackready.model.outcome import Finding, Outcome, Verdict
from rackready.model.problems import RackreadyError
from rackready.model.profile import GateSetEntry
from rackready.model.site import Site
from rackready.paths import EnvPaths

GATES = {
    "node/gpu/sanity/settings": DriftKind.GPU,
    "node/gpu/sanity/ecc": DriftKind.GPU,
    "node/host/sanity/kernel-settings": DriftKind.KERNEL,
    "node/host/sanity/iommu": DriftKind.KERNEL,
    "group/host/validation/firmware": DriftKind.FIRMWARE,
    "bmc/firmware/sanity/versions": DriftKind.FIRMWARE,
    "bmc/firmware/sanity/bios-settings": DriftKind.FIRMWARE,
}
"""Gates that compare settings or versions with the site, and read only. Each runs where the site's set names it."""

_ONLY = {"node/gpu/sanity/ecc": frozenset({ECC_MODE.code, ECC_MODE_PENDING.code})}
"""Findings of a gate that are settings; its others are about health, which is no drift."""

_NEEDS_BASELINE = "group/host/validation/firmware"
"""Without a declared baseline this gate compares nodes with each other: that is no difference from the site."""

_KINDS = {
    "chassis_serial": DriftKind.PART,
    "gpus": DriftKind.PART,
    "nics": DriftKind.PART,
    "driver": DriftKind.DRIVER,
    "vbios": DriftKind.FIRMWARE,
    "nic_firmware": DriftKind.FIRMWARE,
    "kernel": DriftKind.KERNEL,
}
"""Field of a fingerprint -> what it is about. The digest of the desired state is the site's, not the node's."""

_LOOK = "`rackready deploy` measures again what this voids; if nobody changed it on purpose, find out who did."


@dataclass(frozen=True, slots=True)
class Compared:
    """What the comparison needs of its surroundings."""

    site: Site
    paths: EnvPaths
    ledger: Ledger
    store: EvidenceStore


def compare_readings(around: Compared, applied: Mapping[str, Applied], found: Mapping[str, DriftReading]) -> None:
    """Add what gates and the fingerprint show on nodes with an installed driver. Nothing is loaded or recorded."""
    nodes = [node for node, item in applied.items() if "install" in item.phases]
    if not nodes:
        return
    with connect(around.site, around.paths, nodes) as (connection, _launcher):
        _fingerprints(around, connection, nodes, found)
        _parts(around, connection, nodes, found)
        _gates(around, connection, {node: applied[node] for node in nodes}, found)


def _fingerprints(
    around: Compared, connection: Connection, nodes: list[str], found: Mapping[str, DriftReading]
) -> None:
    for node, now in gather(connection, around.site, nodes).items():
        if isinstance(now, Finding):
            found[node].not_asked.append(str(now))
            continue
        found[node].boot_id = now.boot_id
        found[node].notes += _rebooted(around.store, node, now)
        try:
            then = read(keys_of(around.site, around.paths), node).predicate["fingerprint"]
        except RackreadyError:
            found[node].notes.append("no certificate: serials, firmware and kernel were not compared with a deploy")
            continue
        found[node].items += [
            _changed(_KINDS[key], key, then.get(key), value)
            for key, value in now.identity().items()
            if key in _KINDS and value != then.get(key)
        ]


def _changed(kind: DriftKind, key: str, then: object, now: object) -> DriftItem:
    """Return the item for a field of the fingerprint; of a list, only the entries that differ."""
    before, after = (list(value) if isinstance(value, list) else [value] for value in (then, now))
    if len(before) == len(after):
        pairs = [pair for pair in zip(before, after, strict=True) if pair[0] != pair[1]]
        before, after = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    expected, actual = (", ".join(str(value) for value in side) or "none" for side in (before, after))
    return DriftItem(
        kind=kind,
        name=key.replace("_", " "),
        expected=expected,
        actual=actual,
        source="certificate",
        phase="",
        next_step=_LOOK,
    )


def _rebooted(store: EvidenceStore, node: str, now: Fingerprint) -> list[str]:
    """Return a note when the node was booted since it was measured. A boot is no drift: the gate set has its rules."""
    records = [record for record in store.records(target=node, gate=COVERAGE) if record.fingerprints]
    last = next((item for item in records[-1].fingerprints if item.node == node), None) if records else None
    if last is None or not last.boot_id or last.boot_id == now.boot_id:
        return []
    return [f"booted since it was last measured ({records[-1].finished:%Y-%m-%d %H:%M} UTC)"]


def _parts(around: Compared, connection: Connection, nodes: list[str], found: Mapping[str, DriftReading]) -> None:
    for node, changes in compare(connection, around.site, around.store, around.ledger, nodes).items():
        if isinstance(changes, Finding):
            found[node].not_asked.append(str(changes))
        else:
            found[node].items += [_part(change) for change in changes]


def _part(change: Change) -> DriftItem:
    name, then, now = change
    kind = DriftKind.FIRMWARE if name in {"BIOS", "BMC firmware"} else DriftKind.PART
    return DriftItem(
        kind=kind,
        name=name,
        expected=then or "absent",
        actual=now or "absent",
        source="parts seen last",
        phase="",
        next_step=_LOOK,
    )


def _gates(
    around: Compared, connection: Connection, applied: Mapping[str, Applied], found: Mapping[str, DriftReading]
) -> None:
    facts = site_facts(around.site, list(applied))
    runner = Runner(connection, facts, lambda _gate, _attempt: None, bmc=Bmcs(sites_of(around.site)))
    for entry in _entries(around.site):
        gate = make_gate(entry.id, entry.inputs)
        nodes = [node for node in applied if entry.id not in around.site.gates.skipped(node, today())]
        if len(nodes) < gate.min_nodes:
            continue
        by_node = gate.attribute(facts, runner.gate(gate, nodes))
        for node in nodes:
            _verdict(entry.id, merged(by_node.get(node, [])), applied[node], found[node])


def _entries(site: Site) -> Iterable[GateSetEntry]:
    for entry in gate_entries(site, None):
        if entry.id in GATES and (entry.id != _NEEDS_BASELINE or entry.inputs.get("baseline")):
            yield entry


def _verdict(gate: str, verdict: Verdict, applied: Applied, found: DriftReading) -> None:
    if verdict.outcome is Outcome.ERROR:
        found.not_asked += [str(finding) for finding in verdict.findings] or [f"gate {gate}: no result"]
        return
    if verdict.outcome is not Outcome.FAIL:
        return
    for finding in verdict.findings:
        if gate in _ONLY and finding.code not in _ONLY[gate]:
            continue
        if finding.code == PERSISTENCE.code or (finding.code == POWER_LIMIT.code and "optimize" in applied.phases):
            continue  # the role that sets it compares it, too
        found.items.append(
            DriftItem(
                kind=GATES[gate],
                name=f"{finding.inside} {finding.what}".strip(),
                expected=finding.expected,
                actual=finding.actual,
                source=f"gate {gate}",
                phase="",
                next_step=finding.next_step,
            )
        )
