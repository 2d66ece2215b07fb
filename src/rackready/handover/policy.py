"""Who may be handed over: a pure decision from evidence. Only a pass, or a skip that the site declares, opens the door."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rackready.gates.expectation import FLEET_PENDING
from rackready.model.evidence import EvidenceRecord
from rackready.model.outcome import Outcome
from rackready.model.profile import GateSetEntry
from rackready.model.site import DeclaredSkip

_AGAIN = "Run `rackready validate`."


@dataclass(frozen=True, slots=True)
class Decision:
    """What policy says of one node. ``refusals``: empty when it may be handed over; ``skips``: gate to the site's reason."""

    node: str
    refusals: tuple[str, ...]
    passed: tuple[str, ...]
    skips: dict[str, str]
    advisory: tuple[str, ...] = ()

    @property
    def allowed(self) -> bool:
        """Whether the node may be handed over."""
        return not self.refusals


def declared_skips(skips: Sequence[DeclaredSkip], node: str) -> dict[str, str]:
    """Return gate to reason of what the site leaves out on a node."""
    return {skip.gate: skip.reason for skip in skips if node in skip.nodes}


def decide(node: str, entries: Sequence[GateSetEntry], records: Mapping[str, EvidenceRecord], skips: Mapping[str, str], *, not_before: float = 0.0) -> Decision:
    """Return whether a node may be handed over.

    ``records``: gate to its newest conclusion that counts for the node's present fingerprint and desired state;
    ``not_before``: when the node was last changed (seconds since 1970): older evidence is about another node.
    A gate set that requires nothing opens no door.
    """
    refusals, passed, advisory, used = [], [], [], {}
    for entry in entries:
        why = _objection(node, entry.id, records.get(entry.id), skips, not_before)
        if why and entry.required:
            refusals.append(why)
        elif why:
            advisory.append(why)
        elif entry.id in skips and records[entry.id].verdict.outcome is Outcome.SKIP:
            used[entry.id] = skips[entry.id]
        else:
            passed.append(entry.id)
    if not passed:
        refusals.append(f"{node}: nothing was measured - Expected: at least one required gate passed Actual: none. {_AGAIN}")
    return Decision(node, tuple(refusals), tuple(passed), used, tuple(advisory))


def _objection(node: str, gate: str, record: EvidenceRecord | None, skips: Mapping[str, str], not_before: float) -> str:
    if record is None:
        return f"{node}: {gate} - Expected: pass, measured on the node as it is now Actual: no such evidence. {_AGAIN}"
    if record.started.timestamp() < not_before:
        return f"{node}: {gate} - Expected: measured after the node's last change Actual: measured before it. {_AGAIN}"
    outcome = record.verdict.outcome
    if outcome is Outcome.PASS and FLEET_PENDING in (record.verdict.note or ""):
        return f"{node}: {gate} - Expected: a bound that judges Actual: {FLEET_PENDING}. Measure at least 16 identical nodes, or give the profile a reference."
    if outcome is Outcome.PASS or (outcome is Outcome.SKIP and gate in skips):
        return ""
    if outcome is Outcome.SKIP:
        return f"{node}: {gate} - Expected: pass Actual: skipped, but the site declares no such skip. Declare it with a reason (gates.skip), or measure."
    findings = "; ".join(str(finding) for finding in record.verdict.findings)
    return f"{node}: {gate} - Expected: pass Actual: {outcome.value}. {findings or record.verdict.note or _AGAIN}"
