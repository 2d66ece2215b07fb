"""What gates that judge only what is new need to know: when they last passed on a node, and what they saw then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rackready.evidence.store import EvidenceStore
from rackready.gates.base import REGISTRY, Passed
from rackready.model.evidence import EvidenceRecord, Fingerprint
from rackready.model.outcome import Finding, Outcome


def last_passes(store: EvidenceStore, nodes: Sequence[str], prints: Mapping[str, Fingerprint | Finding]) -> dict[tuple[str, str], Passed]:
    """Return (gate, node) -> the last pass on the chassis that the node is now: another chassis has another past."""
    found: dict[tuple[str, str], Passed] = {}
    for gate_id in (gate_id for gate_id, kind in REGISTRY.items() if kind.since_last_pass):
        for node in nodes:
            for record in store.records(gate=gate_id, target=node):
                if record.verdict.outcome is Outcome.PASS and _same(record, node, prints.get(node)):
                    found[gate_id, node] = Passed(record.finished, tuple(record.verdict.metrics))
    return found


def _same(record: EvidenceRecord, node: str, now: Fingerprint | Finding | None) -> bool:
    then = next((item for item in record.fingerprints if item.node == node), None)
    return then is not None and isinstance(now, Fingerprint) and then.chassis_serial == now.chassis_serial
