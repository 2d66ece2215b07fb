"""Which record of a gate speaks for a node: of what it is, and which fail stands against a newer record."""

from __future__ import annotations

from rackready.evidence.damage import Damaged
from rackready.model.evidence import EvidenceRecord, Fingerprint
from rackready.model.outcome import Outcome


def usable(record: EvidenceRecord | Damaged) -> EvidenceRecord:
    """Return a record, or what stands in the place of a damaged one."""
    return record.stand_in() if isinstance(record, Damaged) else record


def failed_since(record: EvidenceRecord | Damaged, since: float) -> bool:
    """Whether a fail was recorded from a time on (seconds since 1970)."""
    if isinstance(record, Damaged):
        return record.was_fail() and record.at.timestamp() >= since
    return record.verdict.outcome is Outcome.FAIL and record.started.timestamp() >= since


def stands(fail: EvidenceRecord | Damaged, newer: EvidenceRecord, since: float) -> bool:
    """Whether a fail is of what the newer record is of. One that proves no host never stood; a newer one that proves none covers nothing.

    Of a damaged one nobody knows any more what it is of: it stands.
    """
    if isinstance(fail, Damaged):
        return failed_since(fail, since)
    then, now = (
        next((item for item in record.fingerprints if item.node == fail.target), None) for record in (fail, newer)
    )
    return failed_since(fail, since) and then is not None and (now is None or then.identity() == now.identity())


def standing(fail: EvidenceRecord, newer: EvidenceRecord) -> EvidenceRecord:
    """Return a fail with a note of what came after it."""
    note = (
        f"{newer.verdict.outcome.value} at {newer.started:%Y-%m-%d %H:%M} UTC ({newer.campaign}); "
        f"the fail stands until `rackready repair {fail.target}`"
    )
    note = f"{fail.verdict.note}; {note}" if fail.verdict.note else note
    return fail.model_copy(update={"verdict": fail.verdict.model_copy(update={"note": note})})


def counts(record: EvidenceRecord | Damaged, node: str, desired_digest: str, fingerprint: Fingerprint | None) -> bool:
    """Whether a record is of this node as it is wanted to be and, where that is given, as it is."""
    if isinstance(
        record, Damaged
    ):  # of what it was is not known any more: it stands in the way until the node was measured again
        return True
    of_node = next((item for item in record.fingerprints if item.node == node), None)
    if of_node is None or of_node.desired_digest != desired_digest:
        return False
    if of_node.unread and record.verdict.outcome is not Outcome.FAIL:
        return False
    return fingerprint is None or of_node.identity() == fingerprint.identity()
