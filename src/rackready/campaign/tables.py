"""Every table beside the ledger's own: a run of the role that owns them makes them all (docs/howto/postgresql.md)."""

from __future__ import annotations

from rackready.evidence import damaged_evidence, store
from rackready.ledger import drift, part_history, proofs, upgrades, watch_tables, work_tables

TABLES = tuple(
    module.metadata
    for module in (store, damaged_evidence, proofs, part_history, upgrades, drift, work_tables, watch_tables)
)
"""Rights are granted on the tables that exist. The role with these rights can make none itself."""
