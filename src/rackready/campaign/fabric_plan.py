"""The plan of the fabric phase: changes of switches and NICs, nodes drained first, nodes left alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from rackready.campaign.drained_phase import Results, reason, settled
from rackready.handover.production import changes_words
from rackready.model.outcome import CONTINUES, Outcome
from rackready.model.phase import PLAN, UNTOUCHED, NodeResult

Cables = Mapping[str, list[str]]
"""Node -> the switches that it is cabled to."""


@dataclass(frozen=True, slots=True)
class FabricReadings:
    """Everything that the plan depends on, as it was read before any change."""

    asked: tuple[str, ...]
    """Nodes to configure."""
    ours: frozenset[str]
    """All nodes of the campaign. Nodes of a later wave are handed over again when their wave comes."""
    behind: Cables
    busy: tuple[str, ...]
    """Nodes in production that share a switch with those asked for."""
    unknown: Results
    """Nodes of which the scheduler does not tell whether jobs run on them -> the error."""
    switches: Results
    """Switch -> its dry run."""
    ports: Mapping[str, list[str]]
    """Node -> the switches that would change something at its ports."""
    nics: Results
    """Node in production that was asked for -> the dry run of its NICs."""


class FabricStep(StrEnum):
    """What the phase does with one node."""

    RUN = "run"
    """Its switches, NICs and cables are configured and compared."""
    LEAVE = "leave"
    """It is left alone."""
    UNSEEN = "unseen"
    """It is not provisioned yet: what would change cannot be seen."""


@dataclass(frozen=True, slots=True)
class FabricNodePlan:
    """The plan for one node, as a dry run shows it."""

    step: FabricStep
    why: str = ""
    """What would change, or why it is left alone or its dry run failed. Empty: nothing would change."""
    drain: str = ""
    """Reason with which the node is drained first. Empty: it is not in production, or nothing would change."""
    switches: tuple[str, ...] = ()
    """Switches that would change something at its ports."""
    changes: tuple[str, ...] = ()
    """Tasks that would change its NICs."""
    blocked: tuple[str, ...] = ()
    """Switches of a node left alone that stay as they are: not previewed, or not changed beside running jobs."""

    def plain(self) -> dict[str, Any]:
        """Return it as JSON types."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}


@dataclass(frozen=True, slots=True)
class FabricWork:
    """What is carried out once the nodes of ``FabricPlan.drain`` are drained."""

    run: list[str]
    """Nodes whose switches, NICs and cables are configured."""
    same: Results
    """Those of them whose NICs are as wanted already."""
    left: Results
    """Nodes that are left alone -> why."""
    elsewhere: list[str]
    """Drained nodes of a later wave whose ports change, too: their evidence is void as well."""
    blocked: Cables
    """Node that is left alone -> its switches that stay as they are."""


@dataclass(frozen=True, slots=True)
class FabricPhasePlan:
    """What the phase does, and on which nodes."""

    seen: FabricReadings
    drain: Mapping[str, str]
    """Node in production -> the reason with which it is drained first."""
    barred: Mapping[str, str]
    """Node in production that was not asked for and is not drained -> what would change for it."""
    same: Results
    """Nodes in production on which, and on whose ports, nothing changes; and those that could not be looked at."""
    unseen: Results
    """Switches without a preview that have nodes in production behind them -> the error. They are left as they are."""

    def after(self, kept: Results) -> FabricWork:
        """Return what is carried out when the nodes of ``drain`` are drained; those in ``kept`` keep their jobs."""
        seen = self.seen
        keeping = {node for node in seen.ports if node in kept or node in seen.unknown or node in self.barred}
        untouched = {switch for node in keeping for switch in seen.ports[node]}
        left = self._left_alone(kept)
        blocked = {node: [switch for switch in seen.behind[node] if switch in self.unseen] for node in left}
        for node in seen.asked:
            at = [switch for switch in seen.behind[node] if switch in untouched]
            if at and node not in left:
                left[node] = _blocked(at, keeping, seen.ours)
                blocked[node] = at
        run = [node for node in seen.asked if node not in left]
        changed = {switch for node in run for switch in seen.behind[node]}
        for node in left:
            if node not in kept and changed & set(seen.ports.get(node, [])):
                left[node] = _changed_after_all(left[node])
        elsewhere = [node for node in self.drain if node not in seen.asked and node not in kept]
        return FabricWork(run, self.same, left, elsewhere if run else [], blocked)

    def _left_alone(self, kept: Results) -> Results:
        """Return the nodes that are left alone for a reason of their own or of an unseen switch -> why."""
        out: Results = {}
        for node in self.seen.asked:
            for switch in self.seen.behind[node]:
                if switch in self.unseen:
                    out.setdefault(node, self.unseen[switch])
        for node in self.seen.asked:
            if node in self.seen.unknown:
                out[node] = self.seen.unknown[node]
            if node in kept:
                out[node] = kept[node]
        return out | {node: result for node, result in self.same.items() if result.outcome not in CONTINUES}

    def rows(self, dry: Results) -> dict[str, FabricNodePlan]:
        """Return the plan node by node, as it goes when every drained node becomes empty."""
        work, out = self.after({}), {}
        for node, found in (dry | work.left).items():
            changes = tuple(dry[node].data.get("changes", ())) if node in dry else ()
            switches = tuple(self.seen.ports.get(node, ()))
            words = _words(switches, changes) if switches or changes else ""
            out[node] = FabricNodePlan(
                FabricStep.LEAVE if node in work.left else FabricStep.RUN,
                words if found.outcome in CONTINUES else found.message,
                self.drain.get(node, ""),
                switches,
                changes,
                tuple(work.blocked.get(node, ())),
            )
        return out


def plan(seen: FabricReadings) -> FabricPhasePlan:
    """Return the plan for what was seen.

    A switch is not changed while a node keeps jobs whose port it would change: every node behind the switch waits.
    """
    unseen = _unseen(seen)
    reachable = [node for node in seen.asked if not unseen.keys() & set(seen.behind[node])]
    changing = {switch for node in reachable for switch in seen.behind[node]}
    ports = {node: [switch for switch in switches if switch in changing] for node, switches in seen.ports.items()}
    seen = replace(seen, ports={node: switches for node, switches in ports.items() if switches})
    looked = {node: result for node, result in seen.nics.items() if node in reachable}
    same = {node: result for node, result in settled(looked).items() if node not in seen.ports}
    due = [node for node in seen.busy if node in seen.ports or (node in reachable and node not in same)]
    why = {node: _why(seen.ports.get(node, []), looked.get(node)) for node in due}
    drain = {node: words for node, words in why.items() if node in seen.ours}
    return FabricPhasePlan(
        seen, drain, {node: words for node, words in why.items() if node not in seen.ours}, same, unseen
    )


def dry_results(plan: FabricPhasePlan, dry: Results) -> Results:
    """Return the results of a dry run: the plan in words, and as data."""
    found = dry | plan.after({}).left
    out = {}
    for node, row in plan.rows(dry).items():
        message = f"would be drained first: {row.drain}" if row.drain else found[node].message
        out[node] = replace(found[node], message=message, data=found[node].data | {PLAN: row.plain()})
    return out


def _unseen(seen: FabricReadings) -> Results:
    in_use = {switch for node in (*seen.busy, *seen.unknown) for switch in seen.behind[node]}
    bad = {
        switch: found.message
        for switch, found in seen.switches.items()
        if found.outcome is not Outcome.PASS and switch in in_use
    }
    return {
        switch: NodeResult(Outcome.ERROR, text, data={UNTOUCHED: True}, touched=False) for switch, text in bad.items()
    }


def _why(switches: list[str], looked: NodeResult | None) -> str:
    if not switches and looked is not None:
        return reason("fabric", looked)
    return _words(switches, looked.data.get("changes", []) if looked else [])


def _words(switches: Iterable[str], changes: Iterable[str]) -> str:
    """Return what would change at a node, as the reason of its drain."""
    return changes_words("fabric", [*(f"its ports on {switch}" for switch in switches), *changes])


def _changed_after_all(result: NodeResult) -> NodeResult:
    """Return the result of a node left alone at one switch while another switch changes its ports: it was touched."""
    return replace(result, touched=True, data={key: value for key, value in result.data.items() if key != UNTOUCHED})


def _blocked(switches: Iterable[str], keeping: set[str], ours: frozenset[str]) -> NodeResult:
    """Return why a switch is not changed: a node behind it keeps jobs, or is in production and was not asked for."""
    names, where = ", ".join(sorted(keeping)), ", ".join(sorted(switches))
    step = "Nothing was changed. Run again when their jobs have ended."
    if not keeping <= ours:
        step = "Nothing was changed. Run it for them, too (--limit), or for the whole site."
    text = (
        f"{where}: its ports would change - Expected: all nodes in production behind it drained "
        f"Actual: not drained: {names}. {step}"
    )
    return NodeResult(Outcome.ERROR, text, data={UNTOUCHED: True}, touched=False)
