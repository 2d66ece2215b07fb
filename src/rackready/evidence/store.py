"""The evidence store: append-only records in the ledger's database, raw outputs in files or an object store."""

from __future__ import annotations

import hashlib
import math
import secrets
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from rackready.drivers.object_store_error import ObjectStoreError
from rackready.evidence.damage import OUTPUT_LOST, Damaged, judged, stand_in
from rackready.evidence.damaged_evidence import DamagedOutput, put_aside
from rackready.evidence.error import EvidenceError
from rackready.evidence.raw_outputs import EMPTY, RawOutputs, stopped
from rackready.evidence.record_precedence import counts, failed_since, standing, stands, usable
from rackready.evidence.rows import rows
from rackready.ledger.append_only import append_only, lifted
from rackready.ledger.evidence_mark import EVIDENCE
from rackready.ledger.schema import KEY
from rackready.ledger.store import Ledger, put_campaign
from rackready.model.evidence import EvidenceRecord, Fingerprint
from rackready.model.outcome import Outcome

__all__ = ["EMPTY", "EvidenceError", "EvidenceStore", "new_id"]

metadata = sa.MetaData()

_records = sa.Table(
    EVIDENCE,
    metadata,
    sa.Column("id", KEY, primary_key=True),
    sa.Column("campaign", sa.String, nullable=False, index=True),
    sa.Column("gate", sa.String, nullable=False),
    sa.Column("target", sa.String, nullable=False, index=True),
    sa.Column("outcome", sa.String, nullable=False),
    sa.Column("started", sa.String, nullable=False),
    sa.Column("record", sa.Text, nullable=False, comment="the whole record, JSON"),
    sa.Column("sha256", sa.String, nullable=False, comment="of the record's text"),
)

_nodes = sa.Table(
    "evidence_nodes",
    metadata,
    sa.Column("record_id", sa.String, primary_key=True),
    sa.Column("node", sa.String, primary_key=True, index=True),
)

for _table in (_records, _nodes):
    append_only(_table)

_WHOLE = (
    _records.c.id,
    _records.c.campaign,
    _records.c.gate,
    _records.c.target,
    _records.c.outcome,
    _records.c.started,
    _records.c.record,
    _records.c.sha256,
)
"""A record's text, and the columns beside it, which must agree with it."""


_DIGITS = 20
"""Digits of an id's time, ns since 1970."""


def new_id() -> str:
    """Return a unique id that sorts by this machine's clock. ``append`` replaces one that would not sort last."""
    return _id(time.time_ns())


def _id(at: int) -> str:
    return f"{at:0{_DIGITS}d}-{secrets.token_hex(4)}"


class EvidenceStore:
    """Reads and appends. No method changes or removes records, and the database refuses both.

    A damaged record affects only itself: it is left out, or an error takes its place, and ``put_aside`` keeps what was
    found there.
    """

    def __init__(self, ledger: Ledger, raw: Path) -> None:
        self._ledger = ledger
        self._outputs = RawOutputs(ledger, raw)
        self._there = False
        self._damaged: dict[str, Damaged | DamagedOutput] = {}

    @classmethod
    def open(cls, ledger: Ledger, raw: Path) -> EvidenceStore:
        """Open the store in the ledger's database, and make it when it is absent. Raises LedgerError."""
        ledger.make(metadata)
        return cls(ledger, raw)

    @classmethod
    def read_only(cls, ledger: Ledger, raw: Path) -> EvidenceStore:
        """Open the store for reading. One that was never written is empty."""
        return cls(ledger, raw)

    # writing -----------------------------------------------------------------------------------------------------

    def append(self, *records: EvidenceRecord, campaign: Mapping[str, Any] | None = None) -> list[EvidenceRecord]:
        """Append records, all or none, and return them as they were written.

        ``campaign``: a row of the ledger's campaigns that is written with them. The newest record is the one with the
        greatest id: a record whose id would sort before stored ones, because the clock was stepped back, gets a later
        id. Raises EvidenceError, also when an id exists, and LedgerError when another controller works on these
        records.
        """
        try:
            with self._ledger.write() as connection:
                written = _in_order(connection, records)
                if campaign is not None:
                    put_campaign(connection, **campaign)
                connection.execute(sa.insert(_records), [_row(record) for record in written])
                connection.execute(
                    sa.insert(_nodes),
                    [{"record_id": one.id, "node": node} for one in written for node in dict.fromkeys(one.nodes)],
                )
        except sa.exc.SQLAlchemyError as error:
            names = records[0].id if len(records) == 1 else f"{records[0].id} and {len(records) - 1} more"
            raise EvidenceError.of([self._ledger.in_words(f"evidence {names} cannot be appended", error)]) from error
        return written

    def put_raw(self, text: str) -> str:
        """Store a captured output, secrets scrubbed, and return its SHA-256. Raises EvidenceError."""
        return self._outputs.put(text)

    # reading -----------------------------------------------------------------------------------------------------

    def raw(self, digest: str) -> str:
        """Return a stored output. Raises EvidenceError when it is gone or damaged."""
        return self._outputs.get(digest)

    def prefetch(self, records: Iterable[EvidenceRecord]) -> None:
        """Bring the outputs of records from an object store to this machine, several at once, before they are read."""
        self._outputs.prefetch(digest for record in records for digest in _outputs_of(record))

    def prefetch_raw(self, digests: Iterable[str]) -> None:
        """Bring these outputs."""
        self._outputs.prefetch(digests)

    def _backed(self, record: EvidenceRecord) -> EvidenceRecord:
        """Return a record if the outputs that it was judged from are as they were written, else an error in its place.

        Every output is read, because sizes are not on record: some 15 ms of a processor for a node with 82 outputs of
        20 kB, as reading its records takes. On a server that several machines share, outputs that are not here are on
        the machine that measured (docs/adr/0010): only a damaged one means something. Outputs of runs over several
        nodes are in the runs' own records and are not read. Raises EvidenceError when the object store is away.
        """
        found = (self._outputs.damaged(one, record.gate, record.target) for one in sorted(_outputs_of(record)))
        lost = [item for item in found if item is not None]
        self._damaged |= {item.digest: item for item in lost}
        if not lost:
            return record
        return stand_in(record, OUTPUT_LOST, "the output that it was judged from", lost[0].actual)

    def _written(self) -> bool:
        """Return whether there are tables: a store that was never written has none. Once seen, they stay."""
        if not self._there:
            with self._ledger.read() as connection:
                self._there = sa.inspect(connection).has_table(_records.name)
        return self._there

    def unguarded(self) -> list[str]:
        """Return the database's own guards against changes that are missing or switched off."""
        if not self._written():
            return []
        with self._ledger.read() as connection:
            return lifted(connection, (_records, _nodes))

    def records(
        self,
        *,
        node: str | None = None,
        gate: str | None = None,
        campaign: str | None = None,
        target: str | None = None,
    ) -> list[EvidenceRecord]:
        """Return records, oldest first, without damaged ones."""
        return [record for record in self._select(node, gate, campaign, target) if isinstance(record, EvidenceRecord)]

    def _select(
        self, node: str | None, gate: str | None, campaign: str | None, target: str | None
    ) -> list[EvidenceRecord | Damaged]:
        query = sa.select(*_WHOLE).order_by(_records.c.id)
        for column, value in ((_records.c.gate, gate), (_records.c.campaign, campaign), (_records.c.target, target)):
            if value is not None:
                query = query.where(column == value)
        if node is not None:
            query = query.where(_records.c.id.in_(sa.select(_nodes.c.record_id).where(_nodes.c.node == node)))
        return [found for _, found in self._read(query)]

    def _read(
        self, query: sa.Select[Any], **parameters: str
    ) -> Iterator[tuple[Mapping[str, Any], EvidenceRecord | Damaged]]:
        """Yield each row with its record, or with its damage, which is noted."""
        if not self._written():
            return
        for row in rows(self._ledger, query, _records.c.id, parameters):
            found = judged(row)
            if isinstance(found, Damaged):
                self._damaged[found.id] = found
            yield row, found

    def put_aside(self, campaign: str) -> list[Damaged | DamagedOutput]:
        """Set aside, as proof, the damaged evidence read so far, and return the items that are new.

        Call it only where something may be written. Raises LedgerError, and EvidenceError when a file or an object
        cannot be moved.
        """
        found = list(self._damaged.values())
        try:
            return put_aside(self._ledger, found, campaign)
        except OSError as error:
            raise EvidenceError(
                self._outputs.folder,
                "a damaged output cannot be set aside",
                expected="a writable folder",
                actual=error.strerror,
                next_step="Free disk space or correct its owner, then run again.",
            ) from error
        except ObjectStoreError as error:
            raise stopped("a damaged output cannot be set aside", error) from error

    def concluded(self, target: str) -> dict[str, EvidenceRecord]:
        """Return gate -> the newest record about a target, in the order of first measurement. Older ones are not read.

        A fail replaces a newer record that does not cover it, as in ``valid``: of the same hardware and software, and
        since the target's last change. An error replaces a damaged record.
        """
        found: dict[str, EvidenceRecord] = {}
        behind: list[str] = []
        for row, record in self._read(_concluded(), target=target):
            found[row["gate"]] = usable(record)
            behind += [row["failed"]] if row["failed"] not in {None, row["id"]} else []
        query = sa.select(*_WHOLE).where(_records.c.id.in_(behind))
        fails = [fail for _, fail in self._read(query)] if behind else []
        since, before = self._ledger.last_change(target) if fails else (0.0, "")
        return found | {
            fail.gate: standing(usable(fail), found[fail.gate])
            for fail in fails
            if stands(fail, found[fail.gate], since, before)
        }

    def last(self, targets: Collection[str]) -> Iterator[EvidenceRecord]:
        """Yield the newest record about each of these targets, of any gate, without damaged ones."""
        newest = sa.select(sa.func.max(_records.c.id)).group_by(_records.c.target)
        for row, record in self._read(sa.select(*_WHOLE).where(_records.c.id.in_(newest))):
            if row["target"] in targets and isinstance(record, EvidenceRecord):
                yield record

    def figures(self, since: float, *, gate: str = "", node: str = "") -> Iterator[EvidenceRecord]:
        """Yield the records with a pass or a fail that were written since then (s since 1970), without damaged ones."""
        judged_ = _records.c.outcome.in_([Outcome.PASS.value, Outcome.FAIL.value])
        query = sa.select(*_WHOLE).where(_records.c.id >= f"{int(since * 1e9):0{_DIGITS}d}", judged_)
        if gate:
            query = query.where(_records.c.gate == gate)
        if node:
            query = query.where(_records.c.id.in_(sa.select(_nodes.c.record_id).where(_nodes.c.node == node)))
        for _, record in self._read(query.order_by(_records.c.id)):
            if isinstance(record, EvidenceRecord):
                yield record

    def over_several(self, campaign: str) -> Iterator[EvidenceRecord]:
        """Yield a campaign's records over several nodes, oldest first, with an error in the place of a damaged one."""
        several = (
            sa.select(_nodes.c.record_id)
            .join(_records, _records.c.id == _nodes.c.record_id)
            .where(_records.c.campaign == campaign)
        )
        several = several.group_by(_nodes.c.record_id).having(sa.func.count() > 1)
        for _, record in self._read(sa.select(*_WHOLE).where(_records.c.id.in_(several)).order_by(_records.c.id)):
            yield record.stand_in(self._nodes_of(record.id)) if isinstance(record, Damaged) else record

    def _nodes_of(self, record: str) -> list[str]:
        """Return the nodes of a record, from the table beside it."""
        query = sa.select(_nodes.c.node).where(_nodes.c.record_id == record).order_by(_nodes.c.node)
        with self._ledger.read() as connection:
            return list(connection.execute(query).scalars())

    def valid(
        self,
        node: str,
        desired_digest: str,
        fingerprint: Fingerprint | None = None,
        fails_since: float = math.inf,
        before: str = "",
    ) -> dict[str, EvidenceRecord]:
        """Return gate -> the newest conclusion about a node that counts for its desired state.

        A conclusion is a record whose target is the node itself, of pair and cluster gates, too. It counts if it was
        made under this desired digest and, when ``fingerprint`` is given, on exactly this hardware, firmware and
        software, in any boot: the gate set decides whether a reboot or age voids it (handover.policy). Only the newest
        conclusion of a gate is considered: an older pass never covers a newer fail. With a GPU that could not be
        identified only fails count. A fail since ``fails_since`` (seconds since 1970: the node's last change) stands
        against a newer pass, too, unless its id is no later than ``before`` (``Ledger.last_change``): re-measuring
        until it passes would hide a fault. If the record, or an output that a
        pass was judged from, is gone or damaged, an error takes its place: it counts for nothing, and gives the reason.
        """
        found: dict[str, EvidenceRecord | Damaged] = {}
        for record in self._select(None, None, None, node):
            last = found.get(record.gate)
            if last is None or not (
                failed_since(last, fails_since, before) and counts(last, node, desired_digest, fingerprint)
            ):
                found[record.gate] = record
        counting = {
            gate: usable(record) for gate, record in found.items() if counts(record, node, desired_digest, fingerprint)
        }
        self.prefetch(record for record in counting.values() if record.verdict.outcome is Outcome.PASS)
        return {
            gate: self._backed(record) if record.verdict.outcome is Outcome.PASS else record
            for gate, record in counting.items()
        }

    def digests(self, ids: Collection[str]) -> dict[str, str]:
        """Return id -> SHA-256 (hex) of a record's text as it is stored now; ids that are not there are left out."""
        if not self._written():
            return {}
        query = sa.select(_records.c.id, _records.c.record).where(_records.c.id.in_(ids))
        with self._ledger.read() as connection:
            found = connection.execute(query).all()
        return {one: hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest() for one, text in found}

    def newest(self, gate: str, most: int = 2048) -> dict[str, EvidenceRecord]:
        """Return target -> the newest record of a gate, for the targets measured last, without damaged ones."""
        last = sa.select(sa.func.max(_records.c.id)).where(_records.c.gate == gate).group_by(_records.c.target)
        last = last.order_by(sa.func.max(_records.c.id).desc()).limit(most)
        query = sa.select(*_WHOLE).where(_records.c.id.in_(last))
        return {record.target: record for _, record in self._read(query) if isinstance(record, EvidenceRecord)}


def _outputs_of(record: EvidenceRecord) -> set[str]:
    return {digest for raw in record.raw for digest in (raw.stdout_sha256, raw.stderr_sha256)} - {EMPTY}


@cache
def _concluded() -> sa.Select[Any]:
    """Return the query of a target's newest records, with each gate's newest fail.

    It is made once: a report of a large site runs it for every node, and making it takes as long as running it.
    """
    failed = sa.func.max(sa.case((_records.c.outcome == Outcome.FAIL.value, _records.c.id))).label("failed")
    ends = sa.select(sa.func.max(_records.c.id).label("last"), sa.func.min(_records.c.id).label("first"), failed)
    ends_of = ends.where(_records.c.target == sa.bindparam("target")).group_by(_records.c.gate).subquery()
    query = sa.select(*_WHOLE, ends_of.c.failed)
    query = query.join(ends_of, ends_of.c.last == _records.c.id)
    return query.order_by(ends_of.c.first)


def _in_order(connection: sa.Connection, records: Sequence[EvidenceRecord]) -> list[EvidenceRecord]:
    """Return the records with ids that sort after all stored ones, and in this order.

    The transaction keeps other writers out. Raises EvidenceError when one of them was appended before.
    """
    last = connection.execute(sa.select(sa.func.max(_records.c.id))).scalar() or ""
    early = [record.id for record in records if record.id <= last]
    there = (
        connection.execute(sa.select(_records.c.id).where(_records.c.id.in_(early))).scalars().first()
        if early
        else None
    )
    if there is not None:
        raise EvidenceError(
            f"evidence {there} cannot be appended",
            expected="a new record",
            actual="its id exists",
            next_step="Measure again: it gets a new id.",
        )
    out = []
    for record in records:
        one = record if record.id > last else record.model_copy(update={"id": _id(int(last[:_DIGITS]) + 1)})
        out.append(one)
        last = one.id
    return out


def _row(record: EvidenceRecord) -> dict[str, str]:
    text = record.model_dump_json()
    return {
        "id": record.id,
        "campaign": record.campaign,
        "gate": record.gate,
        "target": record.target,
        "outcome": record.verdict.outcome.value,
        "started": record.started.isoformat(),
        "record": text,
        "sha256": hashlib.sha256(text.encode()).hexdigest(),
    }
