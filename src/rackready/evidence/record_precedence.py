"""Decides which record of a gate counts for a node, and which fail stands against a newer record."""

from __future__ import annotations

from rackready.evidence.damage import Damaged
from rackready.model.commands import repair
from rackready.model.evidence import EvidenceRecord, Fingerprint
from rackready.model.outcome import Outcome


def usable(record: EvidenceRecord | Damaged) -> EvidenceRecord:
    """Return a record, or the stand-in of a damaged one."""
    return record.stand_in() if isinstance(record, Damaged) else record


def failed_since(record: EvidenceRecord | Damaged, since: float, before: str = "") -> bool:
    """Return whether it is a fail recorded since a time (seconds since 1970), and after the evidence ``before``.

    ``before``: id of the newest evidence that the change at that time found on record. It holds where the clock was
    ahead and was set back.
    """
    if record.id <= before:
        return False
    if isinstance(record, Damaged):
        return record.was_fail() and record.at.timestamp() >= since
    return record.verdict.outcome is Outcome.FAIL and record.started.timestamp() >= since


def stands(fail: EvidenceRecord | Damaged, newer: EvidenceRecord, since: float, before: str = "") -> bool:
    """Return whether a fail stands against the newer record: both are about the same hardware and software.

    A fail without a fingerprint never stands; a newer record without one covers nothing. A damaged fail stands, because
    its fingerprint is lost.
    """
    if isinstance(fail, Damaged):
        return failed_since(fail, since, before)
    then, now = (
        next((item for item in record.fingerprints if item.node == fail.target), None) for record in (fail, newer)
    )
    same = then is not None and (now is None or then.identity() == now.identity())
    return same and failed_since(fail, since, before)


def standing(fail: EvidenceRecord, newer: EvidenceRecord) -> EvidenceRecord:
    """Return a fail with a note about the newer record."""
    note = (
        f"{newer.verdict.outcome.value} at {newer.started:%Y-%m-%d %H:%M} UTC ({newer.campaign}); "
        f"the fail stands until {repair(fail.target)}"
    )
    note = f"{fail.verdict.note}; {note}" if fail.verdict.note else note
    return fail.model_copy(update={"verdict": fail.verdict.model_copy(update={"note": note})})


def counts(record: EvidenceRecord | Damaged, node: str, desired_digest: str, fingerprint: Fingerprint | None) -> bool:
    """Return whether a record is about this node in its desired state and, when given, with this fingerprint."""
    if isinstance(record, Damaged):  # its fingerprint is lost: it counts until the node is measured again
        return True
    of_node = next((item for item in record.fingerprints if item.node == node), None)
    if of_node is None or of_node.desired_digest != desired_digest:
        return False
    if of_node.unread and record.verdict.outcome is not Outcome.FAIL:
        return False
    return fingerprint is None or of_node.identity() == fingerprint.identity()
