"""The acceptance report of a rack: delivered, measured, left out. Everything in it comes from evidence on record."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from rackready import __version__
from rackready.design.check_gates import today
from rackready.design.handover_of import scheduler_of
from rackready.evidence.store import EvidenceStore
from rackready.handover.certificate import on_file
from rackready.handover.certify import entries
from rackready.handover.judged import metrics_of
from rackready.handover.keys import Keys
from rackready.handover.policy import Decision
from rackready.handover.record_digests import unproven
from rackready.handover.validity import decided, last_seen, shown, void_by
from rackready.ledger.store import Ledger
from rackready.model.evidence import EvidenceRecord, Fingerprint
from rackready.model.outcome import Outcome
from rackready.model.problems import RackreadyError
from rackready.model.site import Node, Rack, Site

Document = dict[str, Any]


class AcceptanceError(RackreadyError):
    """The acceptance report of a rack cannot be made."""


def rack_named(site: Site, name: str) -> Rack:
    """Return the rack of that name. Raises AcceptanceError."""
    for rack in site.racks:
        if rack.name == name:
            return rack
    raise AcceptanceError(
        "--rack",
        expected=f"one of {', '.join(rack.name for rack in site.racks)}",
        actual=name,
        next_step="Correct the name.",
    )


def acceptance(site: Site, keys: Keys, rack: Rack) -> Document:
    """Return the report of a rack. Raises AcceptanceError when nothing of it was ever measured, and LedgerError."""
    with Ledger.read_only(keys.paths.database) as ledger:
        store = EvidenceStore.read_only(ledger, keys.paths.raw)
        nodes = [_node(site, keys, ledger, store, node) for node in rack.nodes]
    if not any(node["seen"] for node in nodes):
        raise AcceptanceError(
            f"rack {rack.name}",
            expected="evidence of at least one node",
            actual="none on record",
            next_step="Run `rackready deploy`, then report again.",
        )
    return {
        "schema": "rackready/acceptance/v1",
        "site": site.name,
        "env": keys.paths.env,
        "rack": rack.name,
        "gate_set": site.gates.set,
        "generated": datetime.now(UTC).isoformat(timespec="seconds"),
        "rackready": __version__,
        "accepted": sum(node["counts"] for node in nodes),
        "nodes": nodes,
    }


def _node(site: Site, keys: Keys, ledger: Ledger, store: EvidenceStore, node: Node) -> Document:
    row, found = ledger.state(node.name), last_seen(store, node.name)
    certificate = _certificate(site, keys, ledger, store, node.name)
    about = {
        "name": node.name,
        "state": row.state.value if row else "declared",
        "reason": row.reason if row else "",
        "scheduler": scheduler_of(site, node.name),
        "seen": found.identity() if found else None,
        "certificate": certificate,
        "counts": certificate["counts"],
    }
    if found is None:
        return {**about, "gates": [], "left_out": [{"what": "every gate", "why": "no evidence on record"}]}
    decision, records = decided(site, ledger, store, found)
    return {
        **about,
        "gates": [_gate(record) for record in records.values() if record.verdict.outcome in _RAN],
        "left_out": _left_out(site, found, decision, records),
    }


_RAN = frozenset({Outcome.PASS, Outcome.FAIL, Outcome.ERROR})


def _certificate(site: Site, keys: Keys, ledger: Ledger, store: EvidenceStore, node: str) -> Document:
    """Return a node's certificate in few words, with why it does not count."""
    try:
        found = shown(on_file(keys, node), keys.trusted(), node, node)
    except RackreadyError as error:
        return {"counts": False, "sha256": None, "issued": None, "signer": None, "void": [str(error)], "unproven": ""}
    void = list(found.void) or void_by(site, ledger, store, found)
    issued = found.statement["predicate"]["issued"]
    about = {"counts": not void, "sha256": found.digest, "issued": issued, "signer": found.signer, "void": void}
    return {**about, "unproven": unproven(found.statement)}


def _gate(record: EvidenceRecord) -> Document:
    verdict = record.verdict
    return {
        "gate": record.gate,
        "title": str(record.inputs.get("title", "")),
        "outcome": verdict.outcome.value,
        "findings": [str(finding) for finding in verdict.findings],
        "metrics": metrics_of(verdict),
        "remarks": verdict.remarks,
        "record": record.id,
        "finished": record.finished.astimezone(UTC).isoformat(timespec="seconds"),
    }


def _left_out(
    site: Site, found: Fingerprint, decision: Decision, records: dict[str, EvidenceRecord]
) -> list[dict[str, str]]:
    """Return what was not measured or does not count, each with its reason: skips, objections of the policy, rest."""
    reasons = site.gates.skipped(found.node, today())
    out = {
        gate: f"skipped: {reasons.get(gate) or record.verdict.note or 'no reason on record'}"
        for gate, record in records.items()
        if record.verdict.outcome is Outcome.SKIP
    }
    out |= {gate: why for gate, why in decision.objections.items() if gate not in out}
    out |= {
        gate: record.verdict.outcome.value
        for gate, record in records.items()
        if record.verdict.outcome is Outcome.NOT_RUN and gate not in out
    }
    order = [entry.id for entry in entries(site)]
    listed = sorted(out, key=lambda gate: (order.index(gate) if gate in order else len(order), gate))
    return [{"what": gate, "why": out[gate]} for gate in listed]
