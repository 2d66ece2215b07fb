"""The evidence store: append-only records in the ledger's database, raw outputs compressed by hash in files of this machine."""

from __future__ import annotations

import hashlib
import math
import os
import re
import secrets
import time
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from rackready.evidence.scrub import scrub
from rackready.ledger.append_only import append_only, lifted
from rackready.ledger.schema import KEY
from rackready.ledger.store import Ledger, put_campaign
from rackready.model.evidence import EvidenceRecord, Fingerprint
from rackready.model.outcome import Outcome
from rackready.model.problems import RackreadyError

_metadata = sa.MetaData()

_records = sa.Table(
    "evidence",
    _metadata,
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
    _metadata,
    sa.Column("record_id", sa.String, primary_key=True),
    sa.Column("node", sa.String, primary_key=True, index=True),
)

for _table in (_records, _nodes):
    append_only(_table)


class EvidenceError(RackreadyError):
    """Evidence cannot be written, or what is stored is not what was written."""


_HASH = re.compile(r"[0-9a-f]{64}")

EMPTY = hashlib.sha256(b"").hexdigest()
"""Of an output of no bytes: what it says is known without the store."""


_DIGITS = 20
"""Of an id's time, ns since 1970."""


def new_id() -> str:
    """Return an id that is unique and sorts by the time of this machine's clock; ``append`` sees to it that it sorts behind what is there."""
    return _id(time.time_ns())


def _id(at: int) -> str:
    return f"{at:0{_DIGITS}d}-{secrets.token_hex(4)}"


class EvidenceStore:
    """Reads and appends. There is no method that changes or removes, and the database refuses both."""

    def __init__(self, ledger: Ledger, raw: Path) -> None:
        self._ledger = ledger
        self._raw = raw
        self._there = False

    @classmethod
    def open(cls, ledger: Ledger, raw: Path) -> EvidenceStore:
        """Open (and make when absent) the store in the ledger's database. Raises LedgerError."""
        ledger.make(_metadata)
        return cls(ledger, raw)

    @classmethod
    def read_only(cls, ledger: Ledger, raw: Path) -> EvidenceStore:
        """Open the store for reading; one that was never written reads as empty."""
        return cls(ledger, raw)

    # writing -----------------------------------------------------------------------------------------------------

    def append(self, *records: EvidenceRecord, campaign: Mapping[str, Any] | None = None) -> list[EvidenceRecord]:
        """Append records, all or none, and return them as they were written. ``campaign``: a row of the ledger's campaigns that is written with them.

        The newest record is the one with the greatest id: one whose id sorts before what is there, because the clock was stepped back, gets one behind it.
        Raises EvidenceError, also when an id exists, and LedgerError when another controller works on these records.
        """
        try:
            with self._ledger.write() as connection:
                written = _in_order(connection, records)
                if campaign is not None:
                    put_campaign(connection, **campaign)
                connection.execute(sa.insert(_records), [_row(record) for record in written])
                connection.execute(sa.insert(_nodes), [{"record_id": one.id, "node": node} for one in written for node in dict.fromkeys(one.nodes)])
        except sa.exc.SQLAlchemyError as error:
            names = records[0].id if len(records) == 1 else f"{records[0].id} and {len(records) - 1} more"
            raise EvidenceError(self._ledger.in_words(f"evidence {names} cannot be appended", error)) from error
        return written

    def put_raw(self, text: str) -> str:
        """Store a captured output, secrets scrubbed, and return its SHA-256 (of the scrubbed text). A damaged file that stands in its place is replaced.

        Raises EvidenceError when it cannot be written; nothing of it is left then.
        """
        data = scrub(text).encode()
        digest = hashlib.sha256(data).hexdigest()
        path = Path(self._name(digest))
        if not self._is_whole(digest):
            try:
                _write(path, zlib.compress(data, 6))
            except OSError as error:
                why = f"Expected: a writable folder with room Actual: {error.strerror}. Free disk space or correct its owner, then run again."
                raise EvidenceError(f"{path.parent}: a raw output cannot be stored - {why}") from error
        return digest

    # reading -----------------------------------------------------------------------------------------------------

    def raw(self, digest: str) -> str:
        """Return a stored output. Raises EvidenceError when it is gone or damaged."""
        if not _HASH.fullmatch(digest):
            raise EvidenceError(f"raw output {digest!r} - Expected: 64 hexadecimal digits. Take the hash from the report.")
        data = self._content(digest)
        if data is None:
            other = "Copy it from the machine that measured, or measure" if not self._ledger.alone else "Measure"
            text = f"raw output {digest} cannot be read - Expected: a stored output Actual: none. {other} again."
            raise EvidenceError(text)
        return data.decode()

    def _content(self, digest: str) -> bytes | None:
        """Return what is stored under a hash, None where nothing is. Raises EvidenceError when it is damaged."""
        step = "Measure again: a node's pass that was judged from it counts no longer."
        try:
            with open(self._name(digest), "rb", buffering=0) as file:  # noqa: PTH123 - a report reads them by the hundred thousand
                data = zlib.decompress(file.read())
        except FileNotFoundError:
            return None
        except (OSError, zlib.error) as error:
            raise EvidenceError(f"raw output {digest} cannot be read - Expected: a stored output Actual: {error}. {step}") from error
        if hashlib.sha256(data).hexdigest() != digest:
            raise EvidenceError(f"raw output {digest} - Expected: content of that hash Actual: another. {step}")
        return data

    def _is_whole(self, digest: str, *, elsewhere: bool = False) -> bool:
        """Whether an output is stored as it was written. ``elsewhere``: what a stored output that is not here stands for."""
        try:
            data = self._content(digest)
        except EvidenceError:
            return False
        return elsewhere if data is None else True

    def _backed(self, record: EvidenceRecord) -> bool:
        """Whether what a record was judged from is still what was written.

        All of it is read, for a file's size is not on record: some 15 ms of a processor for a node with 82 outputs of 20 kB, as reading its records takes.
        On a server that several machines share, outputs that are not here lie on the machine that measured (docs/adr/0010): only a damaged one tells
        something. Those of runs over several nodes stand in the runs' own records and are not looked at.
        """
        digests = {digest for raw in record.raw for digest in (raw.stdout_sha256, raw.stderr_sha256)} - {EMPTY}
        return all(self._is_whole(digest, elsewhere=not self._ledger.alone) for digest in digests)

    def _written(self) -> bool:
        """Whether there are tables: a store that was never written has none. Once there, they stay, and are not asked for again."""
        if not self._there:
            with self._ledger.read() as connection:
                self._there = sa.inspect(connection).has_table(_records.name)
        return self._there

    def unguarded(self) -> list[str]:
        """Return which of the database's own guards against changes are gone or switched off."""
        if not self._written():
            return []
        with self._ledger.read() as connection:
            return lifted(connection, (_records, _nodes))

    def records(self, *, node: str | None = None, gate: str | None = None, campaign: str | None = None, target: str | None = None) -> list[EvidenceRecord]:
        """Return records, oldest first. Raises EvidenceError when one is not what was written."""
        if not self._written():
            return []
        query = sa.select(_records.c.record, _records.c.sha256, _records.c.id).order_by(_records.c.id)
        for column, value in ((_records.c.gate, gate), (_records.c.campaign, campaign), (_records.c.target, target)):
            if value is not None:
                query = query.where(column == value)
        if node is not None:
            query = query.where(_records.c.id.in_(sa.select(_nodes.c.record_id).where(_nodes.c.node == node)))
        with self._ledger.read() as connection:
            return [_checked(row.id, row.record, row.sha256) for row in connection.execute(query)]

    def concluded(self, target: str) -> dict[str, EvidenceRecord]:
        """Return gate -> the newest record about a target, in the order in which gates were first measured; older ones are not read. Raises EvidenceError.

        A fail stands in the place of a newer record that does not cover it, as ``valid`` has it: of the same hardware and software, and from the target's
        last change on.
        """
        if not self._written():
            return {}
        with self._ledger.read() as connection:
            rows = connection.execute(_concluded(), {"target": target}).all()
            found = {row.gate: _checked(row.id, row.record, row.sha256) for row in rows}
            behind = [row.failed for row in rows if row.failed not in {None, row.id}]
            query = sa.select(_records.c.gate, _records.c.record, _records.c.sha256, _records.c.id).where(_records.c.id.in_(behind))
            fails = [_checked(row.id, row.record, row.sha256) for row in connection.execute(query)] if behind else []
        since = self._ledger.last_change(target) if fails else 0.0
        return found | {fail.gate: _standing(fail, found[fail.gate]) for fail in fails if _stands(fail, found[fail.gate], since)}

    def last(self, targets: Collection[str]) -> Iterator[EvidenceRecord]:
        """Yield the newest record about each of these targets, whatever its gate, a few at a time. Raises EvidenceError when one is not what was written."""
        if not self._written():
            return
        newest = sa.select(sa.func.max(_records.c.id)).group_by(_records.c.target)
        query = sa.select(_records.c.record, _records.c.sha256, _records.c.id, _records.c.target).where(_records.c.id.in_(newest))
        with self._ledger.read() as connection:
            for row in connection.execution_options(yield_per=256).execute(query):
                if row.target in targets:
                    yield _checked(row.id, row.record, row.sha256)

    def over_several(self, campaign: str) -> Iterator[EvidenceRecord]:
        """Yield a campaign's records in which more than one node took part, oldest first, a few at a time. Raises EvidenceError."""
        if not self._written():
            return
        several = sa.select(_nodes.c.record_id).join(_records, _records.c.id == _nodes.c.record_id).where(_records.c.campaign == campaign)
        several = several.group_by(_nodes.c.record_id).having(sa.func.count() > 1)
        query = sa.select(_records.c.record, _records.c.sha256, _records.c.id).where(_records.c.id.in_(several)).order_by(_records.c.id)
        with self._ledger.read() as connection:
            for row in connection.execution_options(yield_per=256).execute(query):
                yield _checked(row.id, row.record, row.sha256)

    def valid(self, node: str, desired_digest: str, fingerprint: Fingerprint | None = None, fails_since: float = math.inf) -> dict[str, EvidenceRecord]:
        """Return gate -> the newest conclusion about a node, as far as it counts for what the node is wanted to be now.

        A conclusion is the record whose target is the node itself; of pair and cluster gates, too. It counts while it was made
        under this desired digest and, when ``fingerprint`` is given, on exactly this hardware, firmware and software, in whatever
        boot: whether a reboot or age voids it is the gate set's to say (handover.policy). Only the newest conclusion of a gate is
        looked at: an older pass never covers a newer fail. Beside a GPU that did not say who it is, and where the outputs that it was
        judged from are gone or damaged, only fails count. A fail from ``fails_since`` on (seconds since 1970: the node's last change)
        stands against a newer pass as well: measuring until it passes would launder a fault.
        """
        found: dict[str, EvidenceRecord] = {}
        for record in self.records(target=node):
            before = found.get(record.gate)
            if before is None or not (_failed_since(before, fails_since) and _counts(before, node, desired_digest, fingerprint)):
                found[record.gate] = record
        counting = {gate: record for gate, record in found.items() if _counts(record, node, desired_digest, fingerprint)}
        return {gate: record for gate, record in counting.items() if record.verdict.outcome is Outcome.FAIL or self._backed(record)}

    def newest(self, gate: str, most: int = 2048) -> dict[str, EvidenceRecord]:
        """Return target -> the newest record of a gate, of the targets that were measured last. Raises EvidenceError when one is not what was written."""
        if not self._written():
            return {}
        last = sa.select(sa.func.max(_records.c.id)).where(_records.c.gate == gate).group_by(_records.c.target)
        last = last.order_by(sa.func.max(_records.c.id).desc()).limit(most)
        query = sa.select(_records.c.record, _records.c.sha256, _records.c.id, _records.c.target).where(_records.c.id.in_(last))
        with self._ledger.read() as connection:
            return {row.target: _checked(row.id, row.record, row.sha256) for row in connection.execute(query)}

    def _name(self, digest: str) -> str:
        return f"{self._raw}/{digest[:2]}/{digest}.z"


@cache
def _concluded() -> sa.Select[tuple[str, str, str, str, str | None]]:
    """Return the query of a target's newest records, with each gate's newest fail.

    Made once: a report of a large site asks it for every node, and making it takes as long as asking.
    """
    failed = sa.func.max(sa.case((_records.c.outcome == Outcome.FAIL.value, _records.c.id))).label("failed")
    ends = sa.select(sa.func.max(_records.c.id).label("last"), sa.func.min(_records.c.id).label("first"), failed)
    ends_of = ends.where(_records.c.target == sa.bindparam("target")).group_by(_records.c.gate).subquery()
    query = sa.select(_records.c.gate, _records.c.record, _records.c.sha256, _records.c.id, ends_of.c.failed)
    query = query.join(ends_of, ends_of.c.last == _records.c.id)
    return query.order_by(ends_of.c.first)


def _write(path: Path, data: bytes) -> None:
    """Write a file whole or not at all, readable by its owner alone. Raises OSError."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise


def _in_order(connection: sa.Connection, records: Sequence[EvidenceRecord]) -> list[EvidenceRecord]:
    """Return the records with ids that sort behind every one that is there, and in this order. The transaction keeps other writers out.

    Raises EvidenceError when one of them was appended before.
    """
    last = connection.execute(sa.select(sa.func.max(_records.c.id))).scalar() or ""
    early = [record.id for record in records if record.id <= last]
    there = connection.execute(sa.select(_records.c.id).where(_records.c.id.in_(early))).scalars().first() if early else None
    if there is not None:
        text = f"evidence {there} cannot be appended - Expected: a new record Actual: one of its id is there"
        raise EvidenceError(f"{text}. Measure again: it gets an id of its own.")
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


def _failed_since(record: EvidenceRecord, since: float) -> bool:
    return record.verdict.outcome is Outcome.FAIL and record.started.timestamp() >= since


def _stands(fail: EvidenceRecord, newer: EvidenceRecord, since: float) -> bool:
    """Whether a fail is of what the newer record is of. One that proves no host never stood; a newer one that proves none covers nothing."""
    then, now = (next((item for item in record.fingerprints if item.node == fail.target), None) for record in (fail, newer))
    return _failed_since(fail, since) and then is not None and (now is None or then.identity() == now.identity())


def _standing(fail: EvidenceRecord, newer: EvidenceRecord) -> EvidenceRecord:
    """Return a fail with a note of what came after it."""
    note = f"{newer.verdict.outcome.value} at {newer.started:%Y-%m-%d %H:%M} UTC ({newer.campaign}); the fail stands until `rackready repair {fail.target}`"
    note = f"{fail.verdict.note}; {note}" if fail.verdict.note else note
    return fail.model_copy(update={"verdict": fail.verdict.model_copy(update={"note": note})})


def _counts(record: EvidenceRecord, node: str, desired_digest: str, fingerprint: Fingerprint | None) -> bool:
    of_node = next((item for item in record.fingerprints if item.node == node), None)
    if of_node is None or of_node.desired_digest != desired_digest:
        return False
    if of_node.unread and record.verdict.outcome is not Outcome.FAIL:
        return False
    return fingerprint is None or of_node.identity() == fingerprint.identity()


def _checked(record_id: str, text: str, digest: str) -> EvidenceRecord:
    if hashlib.sha256(text.encode()).hexdigest() != digest:
        raise EvidenceError(f"evidence {record_id} - Expected: the record as it was written Actual: changed. The store was tampered with: measure again.")
    return EvidenceRecord.model_validate_json(text)
