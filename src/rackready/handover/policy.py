"""Decides from evidence whether a node may be handed over. Only a pass, or a skip that the site declares, allows it."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from rackready.gates.engine.registry import all_gates
from rackready.ledger.part_history import GateVoid
from rackready.model.commands import repair
from rackready.model.evidence import COVERAGE, EvidenceRecord
from rackready.model.outcome import FLEET_PENDING, Outcome
from rackready.model.profile import GateSetEntry

_AGAIN = "Run `rackready validate`."


_HOUR_S = 3600.0

SKEW_S = 300.0
"""Seconds that clocks of the controller's machines may differ, as for a pulled order (ondevice/pull/order.py)."""

LOOK_S = 1800.0
"""How long a look counts within its campaign, s.

Judgement: a look takes some 10 s. Pauses of a deploy (waiting for jobs, load on other nodes) take longer than this;
then nodes are looked at once more.
"""


@dataclass(frozen=True, slots=True)
class Moment:
    """The moment at which evidence is judged.

    ``at``: now; ``boot_id``: of the node's present boot; ``changed``: when the node was last changed (both times: s
    since 1970). ``campaign``: the campaign that asks. It must have run the gates that only look, within ``LOOK_S``, and
    after the node was last loaded; empty: any age that the gate set allows.
    """

    at: float
    boot_id: str
    changed: float = 0.0
    campaign: str = ""
    loaded: float = 0.0
    """When a gate of the node's own last loaded it, s since 1970; ``decide`` reads it from the records."""
    before: str = ""
    """Id of the newest evidence from before that change. It holds where the clock was ahead and was set back."""
    voids: Mapping[str, GateVoid] = field(default_factory=dict)
    """Gate -> why its earlier evidence does not count: a node beside this one came back from its vendor."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision about a node. ``refusals``: empty if it may be handed over; ``skips``: gate -> the site's reason."""

    node: str
    refusals: tuple[str, ...]
    passed: tuple[str, ...]
    skips: dict[str, str]
    advisory: tuple[str, ...] = ()
    objections: Mapping[str, str] = field(default_factory=dict)
    """Gate -> why its evidence does not count, for required and advisory gates."""

    @property
    def allowed(self) -> bool:
        """Return whether the node may be handed over."""
        return not self.refusals

    @property
    def counting(self) -> frozenset[str]:
        """Return the gates whose evidence counts. The others are due."""
        return frozenset(self.passed) | frozenset(self.skips)


def decide(
    node: str,
    entries: Sequence[GateSetEntry],
    records: Mapping[str, EvidenceRecord],
    skips: Mapping[str, str],
    moment: Moment,
) -> Decision:
    """Return the decision whether a node may be handed over.

    ``records``: gate -> its newest conclusion for the node's present identity and desired state. Evidence from before
    the node's last change is about another node. Evidence from before its boot, or older than a limit, is void where
    the gate set demands it. A gate set that requires nothing allows nothing.
    """
    refusals, passed, advisory, used, objections = [], [], [], {}, {}
    moment = replace(moment, loaded=_loaded(records))
    for entry in entries:
        why = _objection(node, entry, records.get(entry.id), skips, moment)
        if why:
            objections[entry.id] = why
        if why and entry.required:
            refusals.append(why)
        elif why:
            advisory.append(why)
        elif entry.id in skips and records[entry.id].verdict.outcome is Outcome.SKIP:
            used[entry.id] = skips[entry.id]
        else:
            passed.append(entry.id)
    if not passed:
        refusals.append(
            f"{node}: nothing was measured - Expected: at least one required gate passed Actual: none. {_AGAIN}"
        )
    return Decision(node, tuple(refusals), tuple(passed), used, tuple(advisory), objections)


def _objection(
    node: str, entry: GateSetEntry, record: EvidenceRecord | None, skips: Mapping[str, str], moment: Moment
) -> str:
    gate = entry.id
    if record is None:
        return f"{node}: {gate} - Expected: pass, measured on the node as it is now Actual: no such evidence. {_AGAIN}"
    if record.started.timestamp() < moment.changed or record.id <= moment.before:
        return _before_change(node, gate, moment)
    beside = moment.voids.get(gate)
    if beside is not None and record.started.timestamp() < beside.at:
        return f"{node}: {gate} - Expected: measured since {beside.why} Actual: measured before it. {_AGAIN}"
    return (
        _voided(node, entry, record, moment)
        if record.verdict.outcome is Outcome.PASS
        else _not_passed(node, gate, record, skips)
    )


def _before_change(node: str, gate: str, moment: Moment) -> str:
    """Return why evidence from before the last change does not count, and what to do where no other ever would."""
    expected = "measured after the node's last change"
    if moment.changed <= moment.at + SKEW_S:
        return f"{node}: {gate} - Expected: {expected} Actual: measured before it. {_AGAIN}"
    return (
        f"{node}: {gate} - Expected: {expected} Actual: that change is recorded at {_utc(moment.changed)}, and this "
        f"machine's clock says {_utc(moment.at)}. Check the clocks of the controller and its workers "
        f"(`timedatectl`). If they are right now, begin anew: {repair(node, 'the clock was ahead')}."
    )


def _utc(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds))


def _not_passed(node: str, gate: str, record: EvidenceRecord, skips: Mapping[str, str]) -> str:
    """Return why a record that is not a pass does not count. A skip that the site declares counts, however old."""
    outcome = record.verdict.outcome
    if outcome is Outcome.SKIP and gate in skips:
        return ""
    if outcome is Outcome.SKIP:
        return (
            f"{node}: {gate} - Expected: pass Actual: skipped, but the site declares no such skip. "
            "Declare it with a reason (gates.skip), or measure."
        )
    findings = "; ".join(str(finding) for finding in record.verdict.findings)
    return f"{node}: {gate} - Expected: pass Actual: {outcome.value}. {findings or record.verdict.remarks or _AGAIN}"


def _voided(node: str, entry: GateSetEntry, record: EvidenceRecord, moment: Moment) -> str:
    """Return why a pass does not count: no bound judged it, or the gate set voids it by boot or age.

    A record of an older rackready does not name its boot, so it does not count for the present one.
    """
    if record.verdict.fleet_pending:
        return (
            f"{node}: {entry.id} - Expected: a pass judged by a bound Actual: {FLEET_PENDING}. "
            "Measure at least 16 identical nodes, or give the profile a reference."
        )
    if record.started.timestamp() > moment.at + SKEW_S:
        return (
            f"{node}: {entry.id} - Expected: measured in the past Actual: measured at "
            f"{_utc(record.started.timestamp())}, and this machine's clock says {_utc(moment.at)}. "
            f"Check the clocks of the controller and its workers (`timedatectl`). {_AGAIN}"
        )
    boots = {item.boot_id for item in record.fingerprints if item.node == node}
    if entry.after_boot and boots != {moment.boot_id}:
        return (
            f"{node}: {entry.id} - Expected: measured since the node's last boot Actual: measured before it. {_AGAIN}"
        )
    hours = (moment.at - record.started.timestamp()) / _HOUR_S
    if entry.max_age_hours is not None and hours > entry.max_age_hours:
        return (
            f"{node}: {entry.id} - Expected: measured within the last {entry.max_age_hours:g} h "
            f"Actual: {math.ceil(hours)} h ago. {_AGAIN}"
        )
    return _not_looked_at(node, entry.id, record, moment)


def looks(gate: str) -> bool:
    """Return whether a gate only looks: every campaign runs it again, on nodes in production, too."""
    known = all_gates().get(gate)
    return known is not None and known.looks


def light(gate: str) -> bool:
    """Return whether a gate loads nothing: it only looks, or is coverage, which is judged again with every look."""
    return looks(gate) or gate == COVERAGE


def _loaded(records: Mapping[str, EvidenceRecord]) -> float:
    """Return when the node was last loaded by a gate of its own, s since 1970; 0 for never."""
    ran = {Outcome.PASS, Outcome.FAIL, Outcome.ERROR}
    return max(
        (
            item.finished.timestamp()
            for gate, item in records.items()
            if not light(gate) and item.verdict.outcome in ran
        ),
        default=0.0,
    )


def _not_looked_at(node: str, gate: str, record: EvidenceRecord, moment: Moment) -> str:
    """Return why a look does not count: it is another campaign's, too old to be about now, or from before a load.

    Load leaves Xids, corrected errors and flapping links behind.
    """
    if not moment.campaign or not looks(gate):
        return ""
    if record.campaign != moment.campaign:
        return f"{node}: {gate} - Expected: looked at by this run Actual: last looked at by {record.campaign}. {_AGAIN}"
    seconds = moment.at - record.started.timestamp()
    if seconds > LOOK_S:
        return (
            f"{node}: {gate} - Expected: looked at within the last {LOOK_S / 60:g} min "
            f"Actual: {math.ceil(seconds / 60)} min ago. {_AGAIN}"
        )
    if record.started.timestamp() < moment.loaded:
        expected = "looked at after the node was last loaded"
        return f"{node}: {gate} - Expected: {expected} Actual: looked at before it. {_AGAIN}"
    return ""
