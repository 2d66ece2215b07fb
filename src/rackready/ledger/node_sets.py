"""The version set of each node that an upgrade moved: recorded before anything is changed on the node."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa

from rackready.design import node_sets
from rackready.design.node_sets import NodeSet
from rackready.ledger import schema, set_copy
from rackready.ledger.store import Ledger
from rackready.model.site import Site
from rackready.model.upgrade import SetChoice
from rackready.paths import EnvPaths, private_dir

OPERATION = set_copy.OPERATION


def assigned(ledger: Ledger) -> dict[str, NodeSet]:
    """Return node -> the set that was recorded last, where it is another one than the site file gave then."""
    table = schema.operations
    query = sa.select(table.c.node, table.c.observed).where(table.c.operation == OPERATION).order_by(table.c.token)
    found: dict[str, NodeSet] = {}
    with ledger.read() as connection:
        for row in connection.execute(query):
            seen = row.observed
            found[row.node] = NodeSet(SetChoice.model_validate(seen["now"]), SetChoice.model_validate(seen["written"]))
    return {node: one for node, one in found.items() if one.now != one.written}


def assign(ledger: Ledger, paths: EnvPaths, node: str, wanted: NodeSet) -> None:
    """Record the set of a node, in the ledger first. A kill in between is mended by ``refresh``."""
    last = ledger.latest(node, OPERATION, every_epoch=True)
    observed = {"now": wanted.now.model_dump(), "written": wanted.written.model_dump()}
    if last is None or last.observed != observed:
        entry = ledger.begin(node, OPERATION, str(wanted.now), observed)
        ledger.done(entry.token)
    _copy(ledger, paths)


def refresh(paths: EnvPaths) -> None:
    """Write the copy again from the ledger, where there is one. Raises LedgerError, OSError."""
    if not Ledger.exists(paths.database):
        return
    with Ledger.read_only(paths.database) as ledger:
        if paths.node_sets.exists() or assigned(ledger):
            _copy(ledger, paths)


def _copy(ledger: Ledger, paths: EnvPaths) -> None:
    with _alone(paths):  # what was read last is written last
        node_sets.write(paths.node_sets, assigned(ledger))


@contextmanager
def _alone(paths: EnvPaths) -> Iterator[None]:
    private_dir(paths.node_sets.parent)
    fd = os.open(paths.node_sets.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def settle(ledger: Ledger, paths: EnvPaths, written: Site) -> None:
    """Forget the sets of nodes to which the site file now gives the same: from then on the file decides alone."""
    known = {node.name for node in written.nodes()}
    for node, found in assigned(ledger).items():
        if node in known and node_sets.choice_of(written, node) == found.now:
            assign(ledger, paths, node, NodeSet(found.now, found.now))
