"""What the fabric phase will do, computed from what was seen: which switches and NICs change, which nodes are drained first, and which are left alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from rackready.campaign.drained_phase import Results, reason, settled
from rackready.handover.production import UNTOUCHED, changes_words
from rackready.model.outcome import CONTINUES, Outcome
from rackready.model.phase import NodeResult

Cables = Mapping[str, list[str]]
"""Node -> the switches that it is cabled to."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What is known before anything is changed."""

    asked: tuple[str, ...]
    """Nodes whose fabric is to be configured."""
    ours: frozenset[str]
    """All nodes of the campaign: those of a later wave are handed over again when their wave comes."""
    behind: Cables
    busy: tuple[str, ...]
    """Nodes in production that share a switch with those asked for."""
    unknown: Results
    """Of these nodes the scheduler does not say whether jobs run on them, and why."""
    switches: Results
    """Switch -> its dry run."""
    ports: Mapping[str, list[str]]
    """Node -> the switches that would change something at its ports."""
    nics: Results
    """Node in production that is asked for -> the dry run of its NICs."""


@dataclass(frozen=True, slots=True)
class Work:
    """What is carried out once the nodes to drain are drained."""

    run: list[str]
    """Nodes whose switches, NICs and cables are done."""
    same: Results
    """Those of them whose NICs are as wanted: they are not done again."""
    left: Results
    """Nodes that are left alone, and why."""
    elsewhere: list[str]
    """Drained nodes of a later wave whose ports change with these: their evidence is void as well."""


@dataclass(frozen=True, slots=True)
class FabricPlan:
    """What is to be done, and to whom."""

    seen: Seen
    drain: Mapping[str, str]
    """Node in production -> why it is emptied of jobs first."""
    barred: Mapping[str, str]
    """Node in production that was not asked for, so that it is not drained -> what would change for it."""
    same: Results
    """Nodes in production on which, and on whose ports, nothing is to change; and those that could not be looked at."""
    unseen: Results
    """Switches of which nobody can say what would change while somebody behind them is in production: they are left as they are."""

    def after(self, kept: Results) -> Work:
        """Return what is carried out when all nodes of ``drain`` are drained, but those that keep their jobs (``kept``)."""
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
        return Work(run, self.same, left, elsewhere if run else [])


def plan(seen: Seen) -> FabricPlan:
    """Return the plan for what was seen.

    A switch is not changed while a node keeps jobs whose port it would change: every node behind it waits for that.
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
    return FabricPlan(seen, drain, {node: words for node, words in why.items() if node not in seen.ours}, same, unseen)


def told(plan: FabricPlan, dry: Results) -> Results:
    """Return the results of a dry run with what the plan says beside them: who would be drained first, and who would be left alone."""
    out = dry | plan.after({}).left
    return {
        node: replace(found, message=f"would be drained first: {plan.drain[node]}") if node in plan.drain else found
        for node, found in out.items()
    }


def _unseen(seen: Seen) -> Results:
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
    """Say that a node is not as it was: it is left alone because of one switch, and another one changes its ports for its neighbours."""
    return replace(result, touched=True, data={key: value for key, value in result.data.items() if key != UNTOUCHED})


def _blocked(switches: set[str], keeping: set[str], ours: frozenset[str]) -> NodeResult:
    """Say why a switch is not changed now: somebody behind it keeps jobs, or is in production and was not asked for."""
    names, where = ", ".join(sorted(keeping)), ", ".join(sorted(switches))
    step = "Nothing was touched: run again when their jobs have ended."
    if not keeping <= ours:
        step = "Nothing was touched: run it for them too (--limit), or for the whole site."
    text = (
        f"{where}: its ports would change - Expected: all nodes in production behind it drained "
        f"Actual: not drained: {names}. {step}"
    )
    return NodeResult(Outcome.ERROR, text, data={UNTOUCHED: True}, touched=False)
