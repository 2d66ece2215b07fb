"""Whether the copy of the nodes' version sets is as the ledger has it. Loads no model: every command asks it first."""

from __future__ import annotations

import json
import stat

import sqlalchemy as sa

from rackready import files
from rackready.design.site_inputs import SETS_SCHEMA
from rackready.ledger import schema
from rackready.ledger.store import Ledger
from rackready.paths import EnvPaths

OPERATION = "software-set"
"""The ledger's operation. ``observed`` has the set and what the site file gave then."""


def is_current(paths: EnvPaths) -> bool:
    """Return whether the copy surely is what ``node_sets.refresh`` would write. Raises LedgerError, OSError."""
    if not Ledger.exists(paths.database):
        return True
    table = schema.operations
    query = sa.select(table.c.node, table.c.observed).where(table.c.operation == OPERATION).order_by(table.c.token)
    with Ledger.read_only(paths.database) as ledger, ledger.read() as connection:
        newest = {row.node: row.observed for row in connection.execute(query)}
    rows = {node: seen for node, seen in sorted(newest.items()) if seen["now"] != seen["written"]}
    try:
        found, mode = paths.node_sets.read_bytes(), stat.S_IMODE(paths.node_sets.stat().st_mode)
    except FileNotFoundError:
        return not rows
    written = json.dumps({"schema": SETS_SCHEMA, "nodes": rows}, indent=1)
    return mode == files.PRIVATE and found == f"{written}\n".encode()
