"""Damaged evidence: the fault of each record, and a stand-in for it that never counts as a pass."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from rackready import __version__
from rackready.model.commands import repair
from rackready.model.evidence import EvidenceRecord
from rackready.model.finding_kinds import ErrorKind, FailKind
from rackready.model.outcome import Outcome, Verdict
from rackready.model.wanted import fault

_BY = "reading of the evidence"
_AGAIN = "rackready ignores this record. `rackready validate` archives it and runs the gate again."
DAMAGED = ErrorKind(
    "evidence-damaged",
    "evidence of {gate} is damaged (record {record})",
    meaning="The stored record is not as it was written, so it proves nothing.",
    next_step=_AGAIN,
    by=_BY,
)
DAMAGED_FAIL = FailKind(
    "evidence-damaged-fail",
    "evidence of {gate} is damaged (record {record})",
    meaning="The stored record of a fail is not as it was written. The fail stands: damage does not undo it.",
    next_step=f"A fail was recorded and stands: when the node is repaired, {repair('{target}')}.",
    runbook="docs/runbooks/quarantined-node.md",
    by=_BY,
)
OUTPUT_LOST = ErrorKind(
    "evidence-output-lost",
    "evidence of {gate} lost a raw output (record {record})",
    meaning="An output that the gate judged is gone or changed, so nobody can judge it again.",
    next_step=_AGAIN,
    by=_BY,
)

_SHORT = 12
"""Digits of a digest in messages."""


@dataclass(frozen=True, slots=True)
class Damaged:
    """A record that cannot be used, with its columns as stored.

    ``found``: the bytes in its place, empty when they cannot be read; ``expected`` and ``actual``: its fault.
    """

    id: str
    campaign: str
    gate: str
    target: str
    outcome: str
    started: str
    expected: str
    actual: str
    found: bytes

    @property
    def at(self) -> datetime:
        """Return when it was measured, by its columns or its id, which begins with the nanoseconds since 1970."""
        try:
            begun = datetime.fromisoformat(self.started)
            return begun if begun.tzinfo else begun.replace(tzinfo=UTC)
        except ValueError:
            digits = re.match(r"\d{1,19}", self.id.lstrip("0"))
            return datetime.fromtimestamp(int(digits[0]) / 10**9 if digits else 0, UTC)

    def was_fail(self) -> bool:
        """Return whether a fail was recorded: damage must not allow re-measuring until it passes."""
        return self.outcome == Outcome.FAIL.value

    def text(self) -> str:
        """Return the fault, without a next step."""
        return (
            f"{self.target}: evidence of {self.gate} is damaged (record {self.id}) - Expected: {self.expected} "
            f"Actual: {self.actual}."
        )

    def stand_in(self, nodes: Sequence[str] = ()) -> EvidenceRecord:
        """Return a record in its place: an error, or the fail that it was. It belongs to no hardware.

        ``nodes``: those that took part in a run over several; default: its target.
        """
        kind = DAMAGED_FAIL if self.was_fail() else DAMAGED
        found = stand_in(self, kind, self.expected, self.actual)
        return found.model_copy(update={"nodes": list(nodes)}) if nodes else found


def stand_in(of: Damaged | EvidenceRecord, kind: ErrorKind | FailKind, expected: str, actual: str) -> EvidenceRecord:
    """Return a record with this finding in the place of evidence that cannot be used."""
    finding = kind.found(of.target, expected, actual, gate=of.gate, record=of.id, target=of.target)
    at = of.at if isinstance(of, Damaged) else of.started
    return EvidenceRecord(
        id=of.id,
        campaign=of.campaign,
        gate=of.gate,
        target=of.target,
        nodes=[of.target],
        fingerprints=[],
        verdict=Verdict(outcome=kind.outcome, findings=[finding]),
        rackready_version=__version__,
        started=at,
        finished=at,
    )


def judged(row: Mapping[str, Any]) -> EvidenceRecord | Damaged:
    """Return the record of a row (id, campaign, gate, target, outcome, started, record, sha256), or its damage.

    ``unreadable`` in the row: why the database could not return the record.
    """
    stored = row["record"]
    found = stored.encode("utf-8", "surrogatepass") if isinstance(stored, str) else bytes(stored or b"")
    digest = hashlib.sha256(found).hexdigest()
    if why := row.get("unreadable"):
        return _damaged(row, found, "a record that the database can read", str(why))
    if not found:
        return _damaged(row, found, "a record", "nothing")
    if digest != row["sha256"]:
        return _damaged(
            row,
            found,
            f"the record as it was written, of SHA-256 {str(row['sha256'])[:_SHORT]}",
            f"content of {digest[:_SHORT]}",
        )
    try:
        record = EvidenceRecord.model_validate_json(found)
    except ValidationError as error:
        return _damaged(row, found, f"a record that rackready {__version__} reads", _misread(found, error))
    own = {
        "id": record.id,
        "campaign": record.campaign,
        "gate": record.gate,
        "target": record.target,
        "outcome": record.verdict.outcome.value,
    }
    other = [name for name in own if own[name] != row[name]]
    return (
        record
        if not other
        else _damaged(
            row, found, f"{other[0]} {own[other[0]]}, as in the record", f"{other[0]} {row[other[0]]} beside it"
        )
    )


def _damaged(row: Mapping[str, Any], found: bytes, expected: str, actual: str) -> Damaged:
    columns = {name: str(row[name]) for name in ("id", "campaign", "gate", "target", "outcome", "started")}
    return Damaged(**columns, expected=expected, actual=actual, found=found)


def _misread(found: bytes, error: ValidationError) -> str:
    """Return why a text is not a record: it is of a newer release, not JSON, or incomplete."""
    try:
        content = json.loads(found)
    except ValueError:
        return "no JSON"
    version = content.get("rackready_version") if isinstance(content, dict) else None
    if isinstance(version, str) and _order(version) > _order(__version__):
        return f"one that the newer rackready {version} wrote"
    return fault(error.errors(include_input=False)[0])


def _order(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)]
