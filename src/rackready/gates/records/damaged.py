"""Setting damaged evidence aside, with a progress line for each affected node."""

from __future__ import annotations

from rackready.evidence.store import EvidenceStore
from rackready.ledger.store import Ledger


def set_aside(store: EvidenceStore, ledger: Ledger, campaign: str, phase: str) -> None:
    """Set aside the damaged evidence that a store has found, and log each. Raise EvidenceError or LedgerError."""
    for item in store.put_aside(campaign):
        note = "Set aside as proof (`rackready evidence set-aside`); what it proved is measured again."
        ledger.event(campaign, item.target or "evidence", phase, f"{item.text()} {note}", "warn")
