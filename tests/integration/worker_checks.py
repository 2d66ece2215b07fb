"""What must hold after a round with workers: the queue at rest, no node in two hands, no evidence lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rackready.evidence.raw_outputs import EMPTY, RawOutputs
from rackready.evidence.store import EvidenceStore
from rackready.gates.records.node_parts import SEEN
from rackready.ledger.store import CHANGE, Ledger
from rackready.paths import Database
from tests.integration.project import Project
from tests.postgres import PostgresServer, name_of

_CLAIMS = (
    "SELECT token, worker, work.nodes, begun, claims.ended, until, how FROM claims JOIN work ON work.id = claims.work "
    "ORDER BY token"
)
_NO_EFFECTS = frozenset({CHANGE, SEEN})
"""Marks and readings: that something may change, and a list of parts, which each look records again."""
_PLAYS = "install:"
"""A batch that is taken up again observes by playing again: what a play did is in the nodes' own logs."""


@dataclass(frozen=True, slots=True)
class Span:
    """The time in which a worker had nodes: until it let go of them, or its lease ended."""

    token: int
    worker: str
    nodes: frozenset[str]
    begun: float
    ended: float


def problems(server: PostgresServer, database: Database, project: Project) -> list[str]:
    """Return what of the queue and of the evidence does not hold at the end. Workers are stopped."""
    name = name_of(database)
    sql = server.sql
    out = [f"claim {row[0]} is still open" for row in sql("SELECT token FROM claims WHERE ended IS NULL", name)]
    states = "SELECT id, state FROM work WHERE state NOT IN ('done', 'withdrawn', 'lost')"
    out += [f"batch {row[0]} is {row[1]}" for row in sql(states, name)]
    intents = "SELECT node, operation FROM operations WHERE status = 'intent'"
    out += [f"open intent: {row[0]} {row[1]}" for row in sql(intents, name)]
    out += repeated(sql("SELECT node, operation, desired, epoch FROM operations WHERE status = 'done'", name))
    doers = {row[0] for row in sql("SELECT DISTINCT worker FROM claims WHERE how = 'done'", name)}
    out += [] if len(doers) > 1 else [f"only {', '.join(doers) or 'nobody'} finished a batch"]
    return out + overlaps(spans(server, database)) + lost_evidence(project)


def repeated(done: Iterable[tuple[str, str, str, int]]) -> list[str]:
    """Return the effects that were done more than once, of rows (node, operation, desired, epoch) that are done."""
    times = Counter(row for row in done if row[1] not in _NO_EFFECTS and not row[1].startswith(_PLAYS))
    return [f"{node}: {operation} was done {many} times" for (node, operation, _, _), many in times.items() if many > 1]


def spans(server: PostgresServer, database: Database) -> list[Span]:
    """Return the claims, in the order in which they were taken."""
    rows = server.sql(_CLAIMS, name_of(database))
    return [
        Span(token, worker, frozenset(nodes), begun, until if how == "expired" or ended is None else ended)
        for token, worker, nodes, begun, ended, until, how in rows
    ]


def overlaps(found: Sequence[Span]) -> list[str]:
    """Return the nodes that two claims had at the same time."""
    out = []
    for index, later in enumerate(found):
        for earlier in found[:index]:
            both = sorted(earlier.nodes & later.nodes)
            if both and later.begun < earlier.ended:
                late = earlier.ended - later.begun
                out.append(f"claim {later.token} had {', '.join(both)} {late:.1f} s before claim {earlier.token} ended")
    return out


def lost_evidence(project: Project) -> list[str]:
    """Return the outputs on record that are not as they were written."""
    with Ledger.read_only(project.paths.database) as ledger:
        store = EvidenceStore.read_only(ledger, project.paths.raw)
        outputs = RawOutputs(ledger, project.paths.raw)
        records = store.records()
        raws = [raw for record in records for raw in record.raw]
        digests = {raw.stdout_sha256 for raw in raws} | {raw.stderr_sha256 for raw in raws}
        out = [] if records else ["no evidence is on record"]
        faults = ((digest, outputs.damaged(digest)) for digest in sorted(digests - {EMPTY}))
        return out + [f"output {digest} is lost: {lost.actual}" for digest, lost in faults if lost]
