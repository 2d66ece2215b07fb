"""Setting damaged evidence aside where something may be written, and saying so of the nodes that it was about."""

from __future__ import annotations

from rackready.evidence.store import EvidenceStore
from rackready.ledger.store import Ledger


def set_aside(store: EvidenceStore, ledger: Ledger, campaign: str, phase: str) -> None:
    """Set aside what a store has read so far and found damaged; each is a line of progress. Raises EvidenceError and LedgerError."""
    for item in store.put_aside(campaign):
        told = "Set aside as proof (`rackready evidence set-aside`); what it proved is measured again."
        ledger.event(campaign, item.target or "evidence", phase, f"{item.text()} {told}", "warn")
