"""Repair tickets: one JSON file for each fault that needs a repair, made from its row."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rackready import files
from rackready.design.facts import node_facts
from rackready.design.monitoring.conditions import by_id
from rackready.evidence.store import EvidenceStore
from rackready.ledger.store import NodeRow
from rackready.ledger.watch_tables import faults
from rackready.model.evidence import EvidenceRecord, Fingerprint
from rackready.model.outcome import Outcome
from rackready.model.problems import RackreadyError
from rackready.model.site import Site
from rackready.model.state import NodeState
from rackready.model.ticket import (
    FaultyPart,
    Ticket,
    TicketClosed,
    TicketDrain,
    TicketEvidence,
    TicketFinding,
    TicketNode,
    TicketStatus,
)
from rackready.paths import EnvPaths, private_dir
from rackready.watch import night_tickets
from rackready.watch.store import Fault, WatchStore


def folder(paths: EnvPaths) -> Path:
    """Return the folder of an environment's tickets."""
    return paths.state / "tickets"


def ticket_id(fault: Fault) -> str:
    """Return the id of a fault's ticket."""
    return f"T{fault.id:05d}-{fault.node}"


@dataclass
class TicketDesk:
    """Makes tickets from faults, and follows the repair of their nodes."""

    site: Site
    paths: EnvPaths
    store: WatchStore
    evidence: EvidenceStore

    def ticket(self, fault: Fault) -> Ticket:
        """Return the ticket of a fault."""
        about, print_ = by_id()[fault.condition], self._fingerprint(fault)
        detail = fault.detail
        end = detail.get("closed")
        return Ticket(
            schema="rackready/ticket/v1",
            id=ticket_id(fault),
            env=self.paths.env,
            status=TicketStatus(fault.ticket or "open"),
            node=self._node(fault.node, print_),
            part=self._part(fault, print_),
            finding=TicketFinding(
                condition=about.id,
                severity=about.severity.value,
                action=about.action,
                meaning=about.meaning,
                expected=about.expected,
                actual=fault.actual,
                next_step=about.next_step.replace("NODE", fault.node),
                source=about.source,
            ),
            first_seen=_time(fault.first_at),
            last_seen=_time(fault.last_at),
            count=fault.count,
            boot_id=fault.boot_id,
            cursor=fault.cursor,
            drain=night_tickets.drain(self.store, fault) or _drain(fault),
            evidence=[TicketEvidence(**item) for item in detail.get("evidence", [])],
            history=list(detail.get("history", [])),
            closed=TicketClosed.model_validate(end) if end else None,
        )

    def write(self, fault: Fault) -> Ticket:
        """Write the file of a fault's ticket. Raises RackreadyError."""
        made = self.ticket(fault)
        place = folder(self.paths)
        try:
            private_dir(place)
            files.replace(place / f"{made.id}.json", document(made))
        except OSError as error:
            raise RackreadyError(
                place,
                "a ticket cannot be written",
                expected="a writable folder with room",
                actual=error.strerror,
                next_step="Free disk space or correct its owner: it is tried again.",
            ) from error
        return made

    def read(self, fault: Fault) -> bytes:
        """Return the file of a fault's ticket; empty when it is gone."""
        try:
            return (folder(self.paths) / f"{ticket_id(fault)}.json").read_bytes()
        except OSError:
            return b""

    def follow(self, now: float) -> list[Ticket]:
        """Return the tickets whose node was repaired, measured, or failed again since, as they are written now."""
        rows = {row.name: row for row in self.store.ledger.states()}
        changed = []
        for fault in self.store.faults(faults.c.ticket.in_(["open", "repaired"])):
            row = rows.get(fault.node)
            values = self._next(fault, row, now) if row is not None and row.epoch > fault.epoch else None
            if values is not None:
                changed.append(self._changed(fault, values))
        return changed

    def close(self, fault: Fault, reason: str, now: float) -> Ticket:
        """Close a ticket for a reason that an operator gives, and return it."""
        end = {"at": _text(now), "by": "operator", "reason": reason}
        return self._changed(fault, {"ticket": "closed", "detail": {**fault.detail, "closed": end}})

    def _changed(self, fault: Fault, values: dict[str, Any]) -> Ticket:
        """Write the file of a ticket that changes, then its record: after a kill in between it is simply done again."""
        made = self.write(replace(fault, **values))
        self.store.put(fault.id, **values)
        return made

    def _next(self, fault: Fault, row: NodeRow, now: float) -> dict[str, Any] | None:
        """Return what changes in a ticket whose node began a new epoch; None for nothing."""
        history = list(fault.detail.get("history", []))
        if row.state is NodeState.READY:
            passed, failed = self._measured(fault.node)
            end = {"at": _text(now), "by": "validation", "reason": "the node passed its gates and is in production"}
            closed = {**end, "gates_passed": passed, "gates_failed": failed}
            return {"ticket": "closed", "detail": {**fault.detail, "closed": closed}}
        line = f"{row.state.value}: {row.reason}" if row.reason else row.state.value
        wanted = "open" if row.state is NodeState.QUARANTINED else "repaired"
        if fault.ticket == wanted and history and history[-1].endswith(line):
            return None
        history.append(f"{_text(now)} {line}")
        return {"ticket": wanted, "detail": {**fault.detail, "history": history}}

    def _measured(self, node: str) -> tuple[int, list[str]]:
        """Return how many gates passed on a node since its last change, and those that failed."""
        since, before = self.store.ledger.last_change(node)
        found = {
            gate: record
            for gate, record in self.evidence.concluded(node).items()
            if record.finished.timestamp() > since and record.id > before
        }
        passed = sum(record.verdict.outcome is Outcome.PASS for record in found.values())
        failed = [gate for gate, record in found.items() if record.verdict.outcome in {Outcome.FAIL, Outcome.ERROR}]
        return passed, sorted(failed)

    def _fingerprint(self, fault: Fault) -> Fingerprint | None:
        """Return the node as it was measured last before the fault."""
        return fingerprint(self.evidence, fault.node, fault.first_at)

    def _node(self, name: str, print_: Fingerprint | None) -> TicketNode:
        measured = print_.chassis_serial if print_ else ""
        if not self._has(name):
            return TicketNode(name=name, site=self.site.name, rack="", serial=measured, platform="")
        facts = node_facts(self.site, name)
        node = facts.node
        serial = node.serial or measured
        return TicketNode(
            name=name, site=self.site.name, rack=facts.rack, unit=node.unit, serial=serial, platform=node.platform
        )

    def _has(self, name: str) -> bool:
        """Return whether the site has a node: tickets outlive nodes that were retired and left the site file."""
        return any(node.name == name for node in self.site.nodes())

    def _part(self, fault: Fault, print_: Fingerprint | None) -> FaultyPart:
        model = node_facts(self.site, fault.node).gpu.id if self._has(fault.node) else ""
        index = fault.part.removeprefix("gpu")
        if fault.part.startswith("gpu") and index.isdigit():
            gpus = print_.gpus if print_ else []
            serial = gpus[int(index)] if int(index) < len(gpus) else ""
            return FaultyPart(name=fault.part, slot=fault.slot, serial=serial, model=model)
        guid = next(
            (nic.partition("=")[2] for nic in (print_.nics if print_ else []) if nic.startswith(f"{fault.part}=")), ""
        )
        return FaultyPart(name=fault.part, slot=fault.slot, serial=guid)


def fingerprint(evidence: EvidenceStore, node: str, before: float) -> Fingerprint | None:
    """Return a node's fingerprint of its newest evidence from before a time (seconds since 1970)."""
    records = [one for one in evidence.concluded(node).values() if one.finished.timestamp() <= before]
    newest = max(records, key=lambda one: one.finished, default=None)
    return _of(newest, node) if newest is not None else None


def _of(record: EvidenceRecord, node: str) -> Fingerprint | None:
    return next((one for one in record.fingerprints if one.node == node), None)


def document(ticket: Ticket) -> bytes:
    """Return a ticket as JSON: the file, and what the webhook gets."""
    return (json.dumps(ticket.model_dump(mode="json", by_alias=True), indent=2) + "\n").encode()


def digest(data: bytes) -> str:
    """Return the SHA-256 of a ticket's document."""
    return hashlib.sha256(data).hexdigest()


def _drain(fault: Fault) -> TicketDrain:
    jobs = list(fault.detail.get("jobs", []))
    if fault.drained_at is not None:
        return TicketDrain(at=_time(fault.drained_at), by="watch", reason=fault.detail.get("drain", ""), jobs=jobs)
    return TicketDrain(by="other" if fault.why else "nobody", reason=fault.why, jobs=jobs)


def _time(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)


def _text(at: float) -> str:
    return _time(at).strftime("%Y-%m-%dT%H:%M:%SZ")
