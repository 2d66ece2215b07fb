"""The plan of the fabric phase: changes of switches and NICs, nodes drained first, nodes left alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from rackready.campaign.drained_phase import Results, reason, settled
from rackready.handover.production import UNTOUCHED, changes_words
from rackready.model.outcome import CONTINUES, Outcome
from rackready.model.phase import PLAN, NodeResult

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
        reachable = [node for node in seen.asked if not self.unseen.keys() & set(seen.behind[node])]
        keeping = {node for node in seen.ports if node in kept or node in seen.unknown or node in self.barred}
        blocked = {switch for node in keeping for switch in seen.ports[node]}
        left = {
            node: self.unseen[next(switch for switch in seen.behind[node] if switch in self.unseen)]
            for node in seen.asked
            if node not in reachable
        }
        left |= {node: seen.unknown[node] for node in seen.asked if node in seen.unknown} | {
            node: kept[node] for node in seen.asked if node in kept
        }
        left |= {node: result for node, result in self.same.items() if result.outcome not in CONTINUES}
        waiting = [node for node in reachable if node not in left and blocked & set(seen.behind[node])]
        left |= {node: _blocked(blocked & set(seen.behind[node]), keeping, seen.ours) for node in waiting}
        run = [node for node in reachable if node not in left]
        changed = {switch for node in run for switch in seen.behind[node]}
        left |= {
            node: _changed_after_all(left[node])
            for node in left
            if node not in kept and changed & set(seen.ports.get(node, []))
        }
        elsewhere = [node for node in self.drain if node not in seen.asked and node not in kept]
        return FabricWork(run, self.same, left, elsewhere if run else [])


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


def told(plan: FabricPhasePlan, dry: Results) -> Results:
    """Return the results of a dry run with the plan: nodes that would be drained first or left alone."""
    left = plan.after({}).left
    out = {}
    for node, found in (dry | left).items():
        drain = plan.drain.get(node, "")
        row = {"step": "leave" if node in left else "run", "drain": drain}
        message = f"would be drained first: {drain}" if drain else found.message
        out[node] = replace(found, message=message, data=found.data | {PLAN: row})
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
    return changes_words(
        "fabric",
        [f"its ports on {switch}" for switch in switches] + list(looked.data.get("changes", []) if looked else []),
    )


def _changed_after_all(result: NodeResult) -> NodeResult:
    """Return the result of a node left alone at one switch while another switch changes its ports: it was touched."""
    return replace(result, touched=True, data={key: value for key, value in result.data.items() if key != UNTOUCHED})


def _blocked(switches: set[str], keeping: set[str], ours: frozenset[str]) -> NodeResult:
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
