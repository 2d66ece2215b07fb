"""Collectors that read what rackready has: the node's evidence, its history, and the ticket that the operator gives."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from rackready.campaign.rma.gathering import Collector, Desk, NotGatheredError, Took
from rackready.evidence.scrub import scrub
from rackready.evidence.store import EvidenceError, EvidenceStore
from rackready.ledger.history import history
from rackready.ledger.part_history import events_of
from rackready.model.outcome import Outcome

EVIDENCE, HISTORY, TICKET = "evidence", "history", "ticket"
_PASSED = frozenset({Outcome.PASS, Outcome.SKIP, Outcome.NOT_RUN})
_TICKET_MOST = 4 << 20
"""Largest ticket, bytes. Judgement: a ticket is a page."""


def evidence(desk: Desk, folder: Path, deadline: float) -> Took:  # noqa: ARG001 - reading files takes seconds
    """Gather every record of the node, and the outputs of those that did not pass, the newest first."""
    store = EvidenceStore.read_only(desk.ledger, desk.paths.raw)
    records = store.records(node=desk.node)
    if not records:
        raise NotGatheredError("nothing was measured on the node")
    lines = "".join(f"{record.model_dump_json()}\n" for record in records)
    (folder / "records.jsonl").write_text(lines, encoding="utf-8")
    store.prefetch(record for record in records if record.verdict.outcome not in _PASSED)
    left, taken, lost = desk.most // 2, set[str](), 0
    for record in reversed(records):
        if record.verdict.outcome in _PASSED:
            continue
        for digest in (part for raw in record.raw for part in (raw.stdout_sha256, raw.stderr_sha256)):
            if digest in taken:
                continue
            try:
                text = store.raw(digest)
            except EvidenceError:
                lost += 1
                continue
            left -= len(text)
            if left < 0:
                lost += 1
                continue
            taken.add(digest)
            (folder / f"{digest}.txt").write_text(text, encoding="utf-8")
    words = f"{len(records)} records, {len(taken)} outputs of those that did not pass"
    return Took(f"{words}; {lost} outputs left out: gone, or over rma.limit_mib" if lost else words)


def past(desk: Desk, folder: Path, deadline: float) -> Took:  # noqa: ARG001 - as above
    """Gather the node's states and what rackready did to it, and where its parts were before."""
    ledger, node = desk.ledger, desk.node
    document = {
        "node": node,
        "epoch": ledger.epoch(node),
        "states": [asdict(row) for row in history(ledger, node)],
        "operations": [
            {"operation": entry.operation, "status": entry.status, "epoch": entry.epoch, "begun": entry.begun}
            for entry in ledger.entries(node)
        ],
        "parts": [asdict(event) for event in events_of(ledger, node=node)],
    }
    (folder / "history.json").write_text(json.dumps(document, sort_keys=True, indent=1), encoding="utf-8")
    return Took()


def ticket(desk: Desk, folder: Path, deadline: float) -> Took:  # noqa: ARG001 - as above
    """Keep the ticket as it is; the summary shows its text."""
    if desk.ticket is None:
        raise NotGatheredError("none was given (--ticket)")
    if desk.ticket.stat().st_size > _TICKET_MOST:
        raise NotGatheredError(f"it is larger than {_TICKET_MOST >> 20} MiB")
    text = desk.ticket.read_text(encoding="utf-8")
    json.loads(text)  # whatever is in it, it is a JSON document
    (folder / "ticket.json").write_text(scrub(text), encoding="utf-8")
    return Took()


COLLECTORS = (
    Collector(EVIDENCE, "record", "stored measurements of the node, with outputs that did not pass", 600.0, evidence),
    Collector(HISTORY, "record", "its states, what rackready did to it, and earlier visits of its parts", 60.0, past),
    Collector(TICKET, "record", "the ticket given by --ticket", 60.0, ticket),
)
