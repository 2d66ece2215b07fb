"""The cabling check of the Ethernet fabric: planned cables against what both ends hear by LLDP. It only reads."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rackready.design.facts import node_facts
from rackready.design.pinned import site_of
from rackready.design.switches import switch_config
from rackready.drivers.cabling_check import findings as kinds
from rackready.drivers.cabling_check.judge import judge
from rackready.drivers.cabling_check.owners import Owners
from rackready.drivers.cabling_check.types import PlannedCable
from rackready.drivers.process import check_stop
from rackready.drivers.switch.findings import LLDP_UNREAD
from rackready.drivers.switch.lldp_read import Readers
from rackready.drivers.switch.lldp_seen import Told, seen_of
from rackready.drivers.switch.planned import planned_cables
from rackready.drivers.switch.waves import with_uppers
from rackready.model.finding_kinds import KINDS
from rackready.model.outcome import Finding, Outcome, worst
from rackready.model.phase import FINDINGS, NodeResult, PhaseContext, finding_documents
from rackready.paths import EnvPaths

WAIT_S = 60.0
"""Twice the usual interval between frames: 30 s, the default of IEEE 802.1AB and of lldpd."""
_POLL_S = 3.0
_TELL_S = 15.0
_SILENCE = frozenset(
    kind.code for kind in (kinds.MISSING, kinds.DEVICE_ABSENT, kinds.ONE_SIDED, kinds.AMBIGUOUS, kinds.NOTHING_SEEN)
)
"""What a frame that is still to come may change: silence, and an old neighbour beside a new one."""
_UNREAD = frozenset({LLDP_UNREAD.code, kinds.UNREAD.code})
_AGENT = frozenset({kinds.ONE_SIDED.code})
"""The cable is right, because one end has shown it; only an agent is silent."""

Say = Callable[[str, str], None]
"""Called with a node and one line of its progress."""


@dataclass(frozen=True, slots=True)
class Cabling:
    """Result of the check. ``findings``: node -> what is wrong with its cables; ``notes``: node -> what to look at.

    ``silent``: whether a frame that is still to come could change it.
    """

    findings: Mapping[str, Sequence[Finding]] = field(default_factory=dict)
    notes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    silent: bool = False

    def result(self, node: str) -> NodeResult:
        """Return a node's result: fail for a wrong cable, error for one about which nothing is known."""
        found = self.findings.get(node, ())
        if not found:
            return NodeResult(Outcome.PASS, f"{node}: every cable is plugged in as planned")
        outcome = worst([KINDS[finding.code].outcome for finding in found])
        return NodeResult(outcome, "; ".join(map(str, found)), data={FINDINGS: finding_documents(found)})


def check_cabling(ctx: PhaseContext, nodes: Sequence[str], say: Say, *, wait_s: float = WAIT_S) -> Cabling:
    """Compare the cables of these nodes with the plan, for up to ``wait_s`` while an end of one is silent.

    ``say`` tells the progress. A dry run does not wait, and does not judge silence: ports may still be off. Raises
    SiteInvalidError, and Interrupted when the operator stops the run.
    """
    site, paths = site_of(ctx), EnvPaths(ctx.root, ctx.env)
    switches = with_uppers(site, {nic.switch for node in nodes for nic in node_facts(site, node).nics if nic.switch})
    cables = planned_cables(site, [switch_config(site, name) for name in switches])
    with Readers(site, paths, switches, nodes) as readers:
        if ctx.check:
            return _definite(judged(cables, readers.read(), nodes))
        return _watch(cables, readers, nodes, say, wait_s)


def _watch(cables: Sequence[PlannedCable], readers: Readers, nodes: Sequence[str], say: Say, wait_s: float) -> Cabling:
    """Read until every end has spoken, or time is over."""
    for node in nodes:
        count = sum(cable.a.device == node for cable in cables)
        say(node, f"comparing {count} cables with the plan by LLDP, for up to {wait_s:.0f} s")
    begun = told = time.monotonic()
    while (found := judged(cables, readers.read(), nodes)).silent and time.monotonic() - begun < wait_s:
        if time.monotonic() - told > _TELL_S:
            told = time.monotonic()
            for node in {*found.findings, *found.notes}:
                say(node, "waiting for LLDP: an end of a cable is silent, or a cable is wrong")
        check_stop()
        time.sleep(_POLL_S)
    return found


def judged(cables: Sequence[PlannedCable], told: Iterable[Told], nodes: Collection[str]) -> Cabling:
    """Return what is wrong with the cables of these nodes: pure.

    Cables of other nodes count only where something is plugged in: those nodes may not have booted yet.
    """
    told, owners = list(told), Owners(cables, nodes, _is_trunk)
    unread = {one.device: one.trouble for one in told if one.trouble}
    seen = seen_of(told, cables)
    lit = {end for sighting in seen.sightings for end in (sighting.local, sighting.remote)}
    due = [cable for cable in cables if owners.due(cable) or {cable.a.end, cable.b.end} & lit]
    found = [(finding, owners.of(finding)) for finding in judge(due, seen)]
    findings = {
        node: [LLDP_UNREAD.found(node, "a whole document of lldp.py", unread[node])]
        if node in unread
        else [finding for finding, concerned in found if node in concerned and finding.code not in _AGENT]
        for node in nodes
    }
    notes = {
        node: [str(finding) for finding, concerned in found if node in concerned and finding.code in _AGENT]
        + [f"{name}: its LLDP was not read: {why}" for name, why in unread.items() if node in owners.behind(name)]
        for node in nodes
    }
    silent = any(concerned and finding.code in _SILENCE for finding, concerned in found)
    return Cabling(_some(findings), {node: lines for node, lines in notes.items() if lines}, silent)


def _definite(found: Cabling) -> Cabling:
    """Return what silence does not explain."""
    unsure = _SILENCE | _UNREAD
    return Cabling(
        _some({node: [one for one in items if one.code not in unsure] for node, items in found.findings.items()})
    )


def _some(findings: Mapping[str, Sequence[Finding]]) -> dict[str, Sequence[Finding]]:
    return {node: items for node, items in findings.items() if items}


def _is_trunk(cable: PlannedCable) -> bool:
    return not cable.a.rail
