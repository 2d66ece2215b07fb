"""The policy's objections to the evidence that a report shows: what of it would not allow a handover now.

A node in production was handed over by evidence that counted then: what only time or a reboot ended is noted there, and
no gate is missed. Nor is one on a node that rackready only measures and did not install.

No node is asked, and nothing is read that the report has not read: the records are those that it shows. Raw outputs
are not compared with their digests again: `validate`, `certify` and the acceptance report do that.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rackready.design.check_gates import today
from rackready.design.facts import desired_digest
from rackready.evidence.counting import Objection
from rackready.evidence.record_precedence import counts
from rackready.handover.certify import entries
from rackready.handover.policy import Moment, decide
from rackready.ledger.part_history import void_since
from rackready.ledger.store import Ledger
from rackready.model.evidence import EvidenceRecord, Fingerprint
from rackready.model.profile import GateSetEntry
from rackready.model.site import Site
from rackready.model.state import NodeState, at_least

_MISSES_NONE = frozenset(
    state for state in NodeState if state is NodeState.READY or not at_least(state, NodeState.INSTALLED)
) - {NodeState.QUARANTINED, NodeState.STUCK, NodeState.REPAIR}
"""States in which a gate without a record is not missed."""


@dataclass(slots=True)
class Counted:
    """Judge of what still counts: see ``evidence.counting.Counting``."""

    _of: tuple[Site, Ledger] | None = None
    _entries: Sequence[GateSetEntry] = field(default_factory=list)
    _lasting: Sequence[GateSetEntry] = field(default_factory=list)
    """The same gates, without the age and the boot that end their evidence."""
    _states: Mapping[str, NodeState] = field(default_factory=dict)

    def begin(self, site: Site, ledger: Ledger) -> None:
        """Prepare a worker."""
        self._of, self._entries = (site, ledger), entries(site)
        lasting = {"max_age_hours": None, "after_boot": False}
        self._lasting = [entry.model_copy(update=lasting) for entry in self._entries]
        self._states = {row.name: row.state for row in ledger.states()}

    def objections(self, name: str, newest: Mapping[str, EvidenceRecord]) -> Mapping[str, Objection]:
        """Return gate -> why its evidence does not count. A node that nothing has measured has no evidence to judge."""
        if self._of is None or not newest:
            return {}
        site, ledger = self._of
        state = self._states.get(name, NodeState.DECLARED)
        wanted, found = desired_digest(site, name), _seen(name, newest)
        changed, before = ledger.last_change(name)
        moment = Moment(
            time.time(),
            found.boot_id if found else "",
            changed,
            before=before,
            voids=void_since(ledger, name),
        )
        records = {gate: _judged(item) for gate, item in newest.items() if counts(item, name, wanted, found)}

        def refused(own: Sequence[GateSetEntry]) -> Mapping[str, str]:
            listed = self._listed(own, newest, state)
            return decide(name, listed, records, site.gates.skipped(name, today()), moment).objections

        objections = refused(self._entries)
        stand = refused(self._lasting) if state is NodeState.READY else objections
        voids = {entry.id for entry in self._entries if entry.required and entry.id in stand}
        return {
            gate: Objection(why, voids=True)
            if gate in voids
            else Objection(f"{'does not count' if gate in stand else 'due'}: {why}", voids=False)
            for gate, why in objections.items()
        }

    def _listed(
        self, own: Sequence[GateSetEntry], newest: Mapping[str, EvidenceRecord], state: NodeState
    ) -> list[GateSetEntry]:
        """Return the gates to judge: those of the set that the node's state asks for, and those beside it."""
        own = [entry for entry in own if state not in _MISSES_NONE or entry.id in newest]
        ids = {entry.id for entry in self._entries}
        beside = [GateSetEntry.model_validate({"id": gate, "required": False}) for gate in newest if gate not in ids]
        return [*own, *beside]


def _seen(name: str, newest: Mapping[str, EvidenceRecord]) -> Fingerprint | None:
    """Return the node's fingerprint as it was last seen, None where no record has one."""
    prints = [(record.id, item) for record in newest.values() for item in record.fingerprints if item.node == name]
    return max(prints, key=lambda one: one[0])[1] if prints else None


def _judged(record: EvidenceRecord) -> EvidenceRecord:
    """Return a record as if a bound had judged it: the report shows a pass that waits for its fleet as what it is."""
    if not record.verdict.fleet_pending:
        return record
    return record.model_copy(update={"verdict": record.verdict.model_copy(update={"fleet_pending": False})})
