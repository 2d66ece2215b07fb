"""The cabling check of the Ethernet fabric: planned cables against what both ends hear by LLDP. It only reads."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from rackready.design.facts import node_facts
from rackready.design.pinned import site_of
from rackready.design.switches import switch_config
from rackready.drivers.cabling_check import findings as kinds
from rackready.drivers.cabling_check.judge import judge
from rackready.drivers.cabling_check.owners import Owners
from rackready.drivers.cabling_check.types import End, PlannedCable
from rackready.drivers.process import check_stop
from rackready.drivers.switch.findings import LLDP_PORT_UNNAMED, LLDP_SILENT, LLDP_UNREAD
from rackready.drivers.switch.lldp_read import Readers
from rackready.drivers.switch.lldp_seen import Told, seen_of, unnamed_of
from rackready.drivers.switch.planned import planned_cables
from rackready.drivers.switch.waves import with_uppers
from rackready.model.finding_kinds import KINDS
from rackready.model.outcome import Finding, Outcome, worst
from rackready.model.phase import FINDINGS, NodeResult, PhaseContext, finding_documents
from rackready.model.place import Place
from rackready.paths import EnvPaths

_T = TypeVar("_T")
WAIT_S = 60.0
"""Twice the usual interval between frames: 30 s, the default of IEEE 802.1AB and of lldpd."""
_POLL_S = 3.0
_LISTED = 8
"""Ports that one finding lists."""
_TELL_S = 15.0
_SILENCE = frozenset(
    kind.code
    for kind in (
        *(kinds.MISSING, kinds.DEVICE_ABSENT, kinds.ONE_SIDED, kinds.AMBIGUOUS, kinds.NOTHING_SEEN),
        LLDP_SILENT,
    )
)
"""What a frame that is still to come may change: silence, and an old neighbour beside a new one."""
_UNREAD = frozenset({LLDP_UNREAD.code, LLDP_PORT_UNNAMED.code, kinds.UNREAD.code})
_AGENT = frozenset({kinds.ONE_SIDED.code})
"""The cable is right, because one end has shown it; only an agent is silent."""

ONE_END = "read_at_one_end"
"""Key of a result's data: cables that were read at one end only."""

Say = Callable[[str, str], None]
"""Called with a node and one line of its progress."""


@dataclass(frozen=True, slots=True)
class Cabling:
    """Result of the check. ``findings``: node -> what is wrong with its cables; ``notes``: node -> what to look at.

    ``one_end``: node -> which of its cables were read at one end only, because the device at the other was not read.
    ``silent``: whether a frame that is still to come could change it.
    """

    findings: Mapping[str, Sequence[Finding]] = field(default_factory=dict)
    notes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    one_end: Mapping[str, Sequence[str]] = field(default_factory=dict)
    silent: bool = False

    def result(self, node: str) -> NodeResult:
        """Return a node's result: fail for a wrong cable, error for one about which nothing is known."""
        found = self.findings.get(node, ())
        if not found:
            data = {ONE_END: list(self.one_end[node])} if node in self.one_end else {}
            return NodeResult(Outcome.PASS, f"{node}: every cable is plugged in as planned", data=data)
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
    lit = frozenset(end for sighting in seen.sightings for end in (sighting.local, sighting.remote))
    due = [cable for cable in cables if owners.due(cable) or {cable.a.end, cable.b.end} & lit]
    dark = [cable for cable in due if not {cable.a.end, cable.b.end} & lit and _switches(cable) & unread.keys()]
    apart = {cable.b.end for cable in dark}
    rest = [cable for cable in due if cable.b.end not in apart]
    every = [*(judge(rest, seen) if rest or not dark else ()), *_silent(dark, unread), *_unnamed(told, cables)]
    found = [(finding, owners.of(finding)) for finding in every]
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
    return Cabling(_some(findings), _some(notes), _one_end(due, lit - seen.unidentified, unread, owners), silent)


def _silent(dark: Sequence[PlannedCable], unread: Mapping[str, str]) -> list[Finding]:
    """Return an error for each switch that was not read, with its cables that nobody hears: that proves nothing."""
    out = []
    for switch in sorted({name for cable in dark for name in _switches(cable)} & unread.keys()):
        far = [cable.a if cable.b.device == switch else cable.b for cable in dark if switch in _switches(cable)]
        more = f" and {len(far) - _LISTED} more" if len(far) > _LISTED else ""
        actual = f"none at {', '.join(str(end.end) for end in far[:_LISTED])}{more}; {switch} was not read"
        near = [end.device for end in far]
        out.append(LLDP_SILENT.found(switch, "a neighbour at one end", actual, nodes=near, count=len(far)))
    return out


def _switches(cable: PlannedCable) -> set[str]:
    return {cable.a.device, cable.b.device} if _is_trunk(cable) else {cable.b.device}


def _unnamed(told: Iterable[Told], cables: Iterable[PlannedCable]) -> list[Finding]:
    return [
        LLDP_PORT_UNNAMED.found(
            Place(*local), "a port of the site", f"{remote} of a switch that was not read", switch=remote.device
        )
        for local, remote in unnamed_of(told, cables).items()
    ]


def _one_end(
    cables: Iterable[PlannedCable], lit: Collection[End], unread: Collection[str], owners: Owners
) -> dict[str, list[str]]:
    """Return node -> in words, which of its cables, and of the switches that it is behind, one end alone told of."""
    counts: dict[str, Counter[tuple[str, str]]] = {}
    for cable in cables:
        ends = (cable.a.device, cable.b.device)
        silent = [device for device in ends if device in unread]
        if len(silent) != 1 or not (cable.a.end in lit or cable.b.end in lit):
            continue
        near = ends[1] if silent[0] == ends[0] else ends[0]
        for node in owners.of_cable(cable):
            counts.setdefault(node, Counter())[silent[0], near] += 1
    return {node: [_read_at(*pair, count) for pair, count in sorted(own.items())] for node, own in counts.items()}


def _read_at(far: str, near: str, count: int) -> str:
    return f"{count} cable{'s' if count > 1 else ''} to {far}: read at {near} only"


def _definite(found: Cabling) -> Cabling:
    """Return what silence does not explain."""
    unsure = _SILENCE | _UNREAD
    return Cabling(
        _some({node: [one for one in items if one.code not in unsure] for node, items in found.findings.items()})
    )


def _some(found: Mapping[str, Sequence[_T]]) -> dict[str, Sequence[_T]]:
    return {node: items for node, items in found.items() if items}


def _is_trunk(cable: PlannedCable) -> bool:
    return not cable.a.rail
