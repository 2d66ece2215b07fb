"""Last passes, for gates that judge only changes: when they passed on a node, and their metrics then.

A later repair (`rackready repair`) replaces the pass: everything before it was dealt with.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from rackready.evidence.store import EvidenceStore
from rackready.gates.base import REGISTRY, LastPass
from rackready.ledger.store import CHANGE, Ledger
from rackready.model.evidence import EvidenceRecord, Fingerprint
from rackready.model.outcome import Finding, Outcome

REPAIR = "repair"
"""Desired value of the change that `rackready repair` records."""


def last_passes(
    store: EvidenceStore, ledger: Ledger, nodes: Sequence[str], prints: Mapping[str, Fingerprint | Finding]
) -> dict[tuple[str, str], LastPass]:
    """Return (gate, node) -> the last pass on the node's present chassis, or a later repair."""
    found: dict[tuple[str, str], LastPass] = {}
    repaired = {node: _repaired(ledger, node) for node in nodes}
    for gate_id in (gate_id for gate_id, kind in REGISTRY.items() if kind.since_last_pass):
        for node in nodes:
            for record in store.records(gate=gate_id, target=node):
                if record.verdict.outcome is Outcome.PASS and _same(record, node, prints.get(node)):
                    found[gate_id, node] = LastPass(record.finished, tuple(record.verdict.metrics))
            at = repaired[node]
            if at is not None and ((gate_id, node) not in found or found[gate_id, node].at < at):
                found[gate_id, node] = LastPass(at)
    return found


def pass_before(store: EvidenceStore, ledger: Ledger, record: EvidenceRecord, node: str) -> LastPass | None:
    """Return the last pass, or a later repair, before a record, by which it was judged; None if there was none."""
    now = next((item for item in record.fingerprints if item.node == node), None)
    older = [
        item
        for item in store.records(gate=record.gate, target=node)
        if item.finished <= record.started and item.id < record.id
    ]
    last = next(
        (item for item in reversed(older) if item.verdict.outcome is Outcome.PASS and _same(item, node, now)), None
    )
    found = None if last is None else LastPass(last.finished, tuple(last.verdict.metrics))
    repaired = _repaired(ledger, node, before=record.started.timestamp())
    return LastPass(repaired) if repaired is not None and (found is None or found.at < repaired) else found


def _repaired(ledger: Ledger, node: str, before: float = math.inf) -> datetime | None:
    entries = [
        entry
        for entry in ledger.entries(node)
        if entry.operation == CHANGE and entry.desired == REPAIR and entry.status == "done"
    ]
    times = [entry.begun for entry in entries if entry.begun < before]
    return datetime.fromtimestamp(max(times), UTC) if times else None


def _same(record: EvidenceRecord, node: str, now: Fingerprint | Finding | None) -> bool:
    then = next((item for item in record.fingerprints if item.node == node), None)
    return then is not None and isinstance(now, Fingerprint) and then.chassis_serial == now.chassis_serial
