"""The evidence store: append-only records in the ledger's database, raw outputs compressed by hash in files of this machine."""

from __future__ import annotations

import hashlib
import math
import re
import secrets
import time
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from rackready import files
from rackready.evidence.aside import Lost, put_aside
from rackready.evidence.damage import Damaged, judged, stand_in
from rackready.evidence.rows import rows
from rackready.evidence.scrub import scrub
from rackready.evidence.standing import counts, failed_since, standing, stands, usable
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
"""What a record is judged from: its text, and the columns beside it, which must say the same."""


class EvidenceError(RackreadyError):
    """Evidence cannot be written, or what is stored is not what was written."""


_HASH = re.compile(r"[0-9a-f]{64}")

EMPTY = hashlib.sha256(b"").hexdigest()
"""Of an output of no bytes: what it says is known without the store."""


_AGAIN = "Measure again: a node's pass that was judged from it counts no longer."

_DIGITS = 20
"""Of an id's time, ns since 1970."""


def new_id() -> str:
    """Return an id that is unique and sorts by the time of this machine's clock; ``append`` sees to it that it sorts behind what is there."""
    return _id(time.time_ns())


def _id(at: int) -> str:
    return f"{at:0{_DIGITS}d}-{secrets.token_hex(4)}"


class EvidenceStore:
    """Reads and appends. There is no method that changes or removes, and the database refuses both.

    A record that is damaged costs only itself: it is left out, or an error takes its place, and ``put_aside`` keeps
    what was found there.
    """

    def __init__(self, ledger: Ledger, raw: Path) -> None:
        self._ledger = ledger
        self._raw = raw
        self._there = False
        self._damaged: dict[str, Damaged | Lost] = {}

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

        The newest record is the one with the greatest id: one whose id sorts before what is there, because the clock
        was stepped back, gets one behind it. Raises EvidenceError, also when an id exists, and LedgerError when another
        controller works on these records.
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
            raise EvidenceError(self._ledger.in_words(f"evidence {names} cannot be appended", error)) from error
        return written

    def put_raw(self, text: str) -> str:
        """Store a captured output, secrets scrubbed, and return its SHA-256 (of the scrubbed text). A damaged file that stands in its place is replaced.

        Raises EvidenceError when it cannot be written; nothing of it is left then.
        """
        data = scrub(text).encode()
        digest = hashlib.sha256(data).hexdigest()
        path = Path(self._name(digest))
        if why := self._lack(digest):
            try:
                put_aside(self._ledger, [Lost(digest, path, why)] if path.exists() else [], "")
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                files.replace(path, zlib.compress(data, 6))
            except OSError as error:
                why = (
                    f"Expected: a writable folder with room Actual: {error.strerror}. "
                    "Free disk space or correct its owner, then run again."
                )
                raise EvidenceError(f"{path.parent}: a raw output cannot be stored - {why}") from error
        return digest

    # reading -----------------------------------------------------------------------------------------------------

    def raw(self, digest: str) -> str:
        """Return a stored output. Raises EvidenceError when it is gone or damaged."""
        if not _HASH.fullmatch(digest):
            raise EvidenceError(
                f"raw output {digest!r} - Expected: 64 hexadecimal digits. Take the hash from the report."
            )
        data = self._content(digest)
        if data is None:
            other = "Copy it from the machine that measured, or measure" if not self._ledger.alone else "Measure"
            text = f"raw output {digest} cannot be read - Expected: a stored output Actual: none. {other} again."
            raise EvidenceError(text)
        return data.decode()

    def _content(self, digest: str) -> bytes | None:
        """Return what is stored under a hash, None where nothing is. Raises EvidenceError when it is damaged."""
        try:
            with open(self._name(digest), "rb", buffering=0) as file:  # noqa: PTH123 - a report reads them by the hundred thousand
                data = zlib.decompress(file.read())
        except FileNotFoundError:
            return None
        except (OSError, zlib.error) as error:
            raise EvidenceError(
                f"raw output {digest} cannot be read - Expected: a stored output Actual: {error}. {_AGAIN}"
            ) from error
        if hashlib.sha256(data).hexdigest() != digest:
            raise EvidenceError(f"raw output {digest} - Expected: content of that hash Actual: another. {_AGAIN}")
        return data

    def _lack(self, digest: str, *, elsewhere: bool = False) -> str:
        """Return why an output is not stored as it was written, "" when it is. ``elsewhere``: one that is not here lies on another machine."""
        try:
            data = self._content(digest)
        except EvidenceError as error:
            return str(error).partition("Actual: ")[2].removesuffix(f" {_AGAIN}").rstrip(".")
        return "none" if data is None and not elsewhere else ""

    def _backed(self, record: EvidenceRecord) -> EvidenceRecord:
        """Return a record if what it was judged from is still what was written, else an error in its place.

        All of it is read, for a file's size is not on record: some 15 ms of a processor for a node with 82 outputs of
        20 kB, as reading its records takes. On a server that several machines share, outputs that are not here lie on
        the machine that measured (docs/adr/0010): only a damaged one tells something. Those of runs over several nodes
        stand in the runs' own records and are not looked at.
        """
        digests = {digest for raw in record.raw for digest in (raw.stdout_sha256, raw.stderr_sha256)} - {EMPTY}
        lost = [
            Lost(one, Path(self._name(one)), why, record.gate, record.target)
            for one in sorted(digests)
            if (why := self._lack(one, elsewhere=not self._ledger.alone))
        ]
        self._damaged |= {item.digest: item for item in lost}
        what, expected = (
            f"evidence of {record.gate} lost a raw output (record {record.id})",
            "the output that it was judged from",
        )
        return stand_in(record, what, expected, lost[0].actual) if lost else record

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

    def records(
        self,
        *,
        node: str | None = None,
        gate: str | None = None,
        campaign: str | None = None,
        target: str | None = None,
    ) -> list[EvidenceRecord]:
        """Return records, oldest first; those that are damaged are left out."""
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
        """Yield each row with its record, or with what is wrong with it, which is noted."""
        if not self._written():
            return
        for row in rows(self._ledger, query, _records.c.id, parameters):
            found = judged(row)
            if isinstance(found, Damaged):
                self._damaged[found.id] = found
            yield row, found

    def put_aside(self, campaign: str) -> list[Damaged | Lost]:
        """Keep, as proof, what was found in the place of evidence that was read and is damaged. Returns what was not set aside before.

        Call it only where something may be written. Raises LedgerError, and EvidenceError when a file cannot be moved.
        """
        found = list(self._damaged.values())
        try:
            return put_aside(self._ledger, found, campaign)
        except OSError as error:
            why = (
                f"Expected: a writable folder Actual: {error.strerror}. "
                "Free disk space or correct its owner, then run again."
            )
            raise EvidenceError(f"{self._raw}: a damaged output cannot be set aside - {why}") from error

    def concluded(self, target: str) -> dict[str, EvidenceRecord]:
        """Return gate -> the newest record about a target, in the order in which gates were first measured; older ones are not read.

        A fail stands in the place of a newer record that does not cover it, as ``valid`` has it: of the same hardware
        and software, and from the target's last change on. An error stands in the place of a record that is damaged.
        """
        found: dict[str, EvidenceRecord] = {}
        behind: list[str] = []
        for row, record in self._read(_concluded(), target=target):
            found[row["gate"]] = usable(record)
            behind += [row["failed"]] if row["failed"] not in {None, row["id"]} else []
        query = sa.select(*_WHOLE).where(_records.c.id.in_(behind))
        fails = [fail for _, fail in self._read(query)] if behind else []
        since = self._ledger.last_change(target) if fails else 0.0
        return found | {
            fail.gate: standing(usable(fail), found[fail.gate])
            for fail in fails
            if stands(fail, found[fail.gate], since)
        }

    def last(self, targets: Collection[str]) -> Iterator[EvidenceRecord]:
        """Yield the newest record about each of these targets, whatever its gate, a few at a time; those that are damaged are left out."""
        newest = sa.select(sa.func.max(_records.c.id)).group_by(_records.c.target)
        for row, record in self._read(sa.select(*_WHOLE).where(_records.c.id.in_(newest))):
            if row["target"] in targets and isinstance(record, EvidenceRecord):
                yield record

    def over_several(self, campaign: str) -> Iterator[EvidenceRecord]:
        """Yield a campaign's records in which more than one node took part, oldest first, a few at a time; an error in the place of a damaged one."""
        several = (
            sa.select(_nodes.c.record_id)
            .join(_records, _records.c.id == _nodes.c.record_id)
            .where(_records.c.campaign == campaign)
        )
        several = several.group_by(_nodes.c.record_id).having(sa.func.count() > 1)
        for _, record in self._read(sa.select(*_WHOLE).where(_records.c.id.in_(several)).order_by(_records.c.id)):
            yield usable(record)

    def valid(
        self, node: str, desired_digest: str, fingerprint: Fingerprint | None = None, fails_since: float = math.inf
    ) -> dict[str, EvidenceRecord]:
        """Return gate -> the newest conclusion about a node, as far as it counts for what the node is wanted to be now.

        A conclusion is the record whose target is the node itself; of pair and cluster gates, too. It counts while it
        was made under this desired digest and, when ``fingerprint`` is given, on exactly this hardware, firmware and
        software, in whatever boot: whether a reboot or age voids it is the gate set's to say (handover.policy). Only
        the newest conclusion of a gate is looked at: an older pass never covers a newer fail. Beside a GPU that did not
        say who it is only fails count. A fail from ``fails_since`` on (seconds since 1970: the node's last change)
        stands against a newer pass as well: measuring until it passes would launder a fault. Where the record, or an
        output that a pass was judged from, is gone or damaged, an error stands in its place: it counts for nothing, and
        says why.
        """
        found: dict[str, EvidenceRecord | Damaged] = {}
        for record in self._select(None, None, None, node):
            before = found.get(record.gate)
            if before is None or not (
                failed_since(before, fails_since) and counts(before, node, desired_digest, fingerprint)
            ):
                found[record.gate] = record
        counting = {
            gate: usable(record) for gate, record in found.items() if counts(record, node, desired_digest, fingerprint)
        }
        return {
            gate: self._backed(record) if record.verdict.outcome is Outcome.PASS else record
            for gate, record in counting.items()
        }

    def newest(self, gate: str, most: int = 2048) -> dict[str, EvidenceRecord]:
        """Return target -> the newest record of a gate, of the targets that were measured last; those that are damaged are left out."""
        last = sa.select(sa.func.max(_records.c.id)).where(_records.c.gate == gate).group_by(_records.c.target)
        last = last.order_by(sa.func.max(_records.c.id).desc()).limit(most)
        query = sa.select(*_WHOLE).where(_records.c.id.in_(last))
        return {record.target: record for _, record in self._read(query) if isinstance(record, EvidenceRecord)}

    def _name(self, digest: str) -> str:
        return f"{self._raw}/{digest[:2]}/{digest}.z"


@cache
def _concluded() -> sa.Select[Any]:
    """Return the query of a target's newest records, with each gate's newest fail.

    Made once: a report of a large site asks it for every node, and making it takes as long as asking.
    """
    failed = sa.func.max(sa.case((_records.c.outcome == Outcome.FAIL.value, _records.c.id))).label("failed")
    ends = sa.select(sa.func.max(_records.c.id).label("last"), sa.func.min(_records.c.id).label("first"), failed)
    ends_of = ends.where(_records.c.target == sa.bindparam("target")).group_by(_records.c.gate).subquery()
    query = sa.select(*_WHOLE, ends_of.c.failed)
    query = query.join(ends_of, ends_of.c.last == _records.c.id)
    return query.order_by(ends_of.c.first)


def _in_order(connection: sa.Connection, records: Sequence[EvidenceRecord]) -> list[EvidenceRecord]:
    """Return the records with ids that sort behind every one that is there, and in this order. The transaction keeps other writers out.

    Raises EvidenceError when one of them was appended before.
    """
    last = connection.execute(sa.select(sa.func.max(_records.c.id))).scalar() or ""
    early = [record.id for record in records if record.id <= last]
    there = (
        connection.execute(sa.select(_records.c.id).where(_records.c.id.in_(early))).scalars().first()
        if early
        else None
    )
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
