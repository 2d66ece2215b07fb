"""One night: what killed nights left is put right, then idle nodes are measured in batches until the time is over."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from rackready.campaign.nightly import choose
from rackready.campaign.nightly.drained_nodes import DrainedNodes, Faulty
from rackready.campaign.nightly.leftovers import Resolved, resolve
from rackready.campaign.nightly.marks import Mark, longest_s
from rackready.design.pinned import site_of
from rackready.evidence.store import EvidenceStore
from rackready.gates.engine.registry import gate
from rackready.gates.engine.set_run import run_set
from rackready.ledger.rows import NIGHTLY
from rackready.ledger.store import Ledger, NodeRow
from rackready.model.outcome import CONTINUES, Outcome
from rackready.model.phase import NodeResult, PhaseContext
from rackready.model.problems import RackreadyError
from rackready.model.site import Site
from rackready.model.state import NodeState
from rackready.paths import EnvPaths
from rackready.profiles import loader

Say = Callable[[str], None]
_PHASE = "validate"
_FIRST_SHARE = 0.5
"""Share of a night that must be left for its first batch. Judgement: the clean-up of a killed night took the rest."""
_MEASURED = frozenset({"pass", "fail", "error"})
BAD = frozenset({"fail", "error", "unknown"})
"""Outcomes of a night that are not good. A node that was busy, or left for the next night, is."""


@dataclass(frozen=True, slots=True)
class NightOrder:
    """What is asked for.

    ``share_pct``: of a group at once; ``seconds``: for the whole night; ``again``: nodes that are fresh, too.
    """

    nodes: Sequence[str]
    gate_set: str
    share_pct: int
    seconds: float
    again: bool = False


@dataclass
class Night:
    """What came of a night. Outcomes: pass, fail, error, busy, fresh, later, out, unknown."""

    campaign: str
    outcomes: dict[str, tuple[str, str]] = field(default_factory=dict)
    resolved: Resolved = field(default_factory=Resolved)
    measured_at: dict[str, float] = field(default_factory=dict)

    def put(self, outcome: str, words: Mapping[str, str]) -> None:
        """Record an outcome of nodes, with its reason."""
        self.outcomes |= {node: (outcome, why) for node, why in words.items()}

    @property
    def exit_code(self) -> int:
        """Return 1 when some node failed, could not be measured or put back, or asked for; else 0."""
        return int(bool(self.resolved.open) or any(found in BAD for found, _ in self.outcomes.values()))

    def document(self) -> dict[str, Any]:
        """Return it as JSON types."""
        return {
            "campaign": self.campaign,
            "resolved": [
                {"name": node, "text": text, "open": node in self.resolved.open}
                for node, text in self.resolved.lines.items()
            ],
            "nodes": [
                {"name": node, "outcome": outcome, "reason": why, "measured_before": _time(self.measured_at.get(node))}
                for node, (outcome, why) in self.outcomes.items()
            ],
        }


@dataclass
class Shift:
    """Carries a night out. ``clock``: seconds since 1970, replaced by tests."""

    ctx: PhaseContext
    order: NightOrder
    say: Say
    faulty: Faulty = dict
    clock: Callable[[], float] = time.time

    def run(self) -> Night:
        """Put killed nights right, then measure. Call it under the controller lock. Raises RackreadyError, Interrupted.

        Whatever happens, each node that was taken is put back, except one that failed.
        """
        site, paths = site_of(self.ctx), EnvPaths(self.ctx.root, self.ctx.env)
        night = Night(self.ctx.campaign)
        deadline = self.clock() + self.order.seconds
        with Ledger.open(paths.database) as ledger:
            store = EvidenceStore.open(ledger, paths.raw)
            drained = DrainedNodes(self.ctx, site, ledger, self.faulty)
            night.resolved = resolve(drained, store)
            for node, text in night.resolved.lines.items():
                self.say(f"{node}: {text}")
            waiting = due(ledger, store, site, self.order, night, self.clock())
            begun = self.clock()
            try:
                self._measure_all(drained, waiting, night, deadline)
            finally:
                _keep(ledger, self.ctx, night, begun)
        return night

    def _measure_all(self, drained: DrainedNodes, waiting: list[str], night: Night, deadline: float) -> None:
        """Measure waiting nodes, batch by batch, until none of them is idle or the time is over.

        The first batch also begins when its expected time is longer than the night: else a site whose nights were once
        long, or are short by order, would never measure again, and nothing would correct the expectation.
        """
        first = True
        while waiting:
            left, need = deadline - self.clock(), longest_s(drained.ledger)
            if left <= 0 or left < (min(need, _FIRST_SHARE * self.order.seconds) if first else need):
                why = f"left for the next night: a batch takes about {need / 60:.0f} min, {max(left, 0) / 60:.0f} left"
                night.put("later", dict.fromkeys(waiting, why))
                return
            answers = choose.why_not_idle(drained.site, drained.paths, drained.ledger, waiting, need)
            idle, busy, unknown = choose.split(answers)
            serving = {row.name for row in drained.ledger.states() if row.state is NodeState.READY}
            batch = choose.batch(waiting, idle, serving, drained.site, self.order.share_pct)
            if not batch:
                night.put("busy", busy)
                night.put("unknown", unknown)
                return
            self._measure(drained, batch, night)
            first = False
            waiting = [node for node in waiting if node not in batch]

    def _measure(self, drained: DrainedNodes, batch: Sequence[str], night: Night) -> None:
        """Take a batch, measure it, and put it back."""
        taken, why = drained.take(batch)
        night.put("busy", why)
        nodes = [mark.node for mark in taken]
        if not nodes:
            return
        self.say(f"measuring {', '.join(nodes)}")
        results: dict[str, NodeResult] = {}
        try:
            results = run_set(self.ctx, nodes, self.order.gate_set)
        finally:
            self._settle(drained, taken, results, night)

    def _settle(
        self, drained: DrainedNodes, taken: Sequence[Mark], results: Mapping[str, NodeResult], night: Night
    ) -> None:
        """Quarantine the nodes that failed, put the others back, and tell how each ended."""
        failed = [mark for mark in taken if mark.node in results and results[mark.node].outcome is Outcome.FAIL]
        others = [mark for mark in taken if mark not in failed]
        good = [mark for mark in others if mark.node in results and results[mark.node].outcome in CONTINUES]
        cut = [mark for mark in others if mark not in good]
        left = drained.put_back(good, "passed", measured=True)
        left |= drained.put_back(cut, "its measurement did not end with a result")
        for mark in failed:
            drained.quarantine(mark, results[mark.node].message)
        night.put("pass", {mark.node: "" for mark in good})
        night.put("fail", {mark.node: results[mark.node].message for mark in failed})
        night.put("error", {mark.node: _why(results.get(mark.node)) for mark in cut})
        night.put("error", left)
        for node in (mark.node for mark in taken):
            outcome, why = night.outcomes[node]
            self.say(f"{node}: {outcome}{f': {why}' if why else ''}")


def _keep(ledger: Ledger, ctx: PhaseContext, night: Night, begun: float) -> None:
    """Record a night that measured something, so that `rackready report` finds it."""
    results = {
        node: {"phase": _PHASE, "outcome": outcome, "message": why, "kinds": []}
        for node, (outcome, why) in night.outcomes.items()
        if outcome in _MEASURED
    }
    if results:
        ledger.put_campaign(
            ctx.campaign,
            env=ctx.env,
            kind=NIGHTLY,
            nodes=list(results),
            site_digest="",
            abi="",
            status="finished",
            begun=begun,
            ended=time.time(),
            summary={"results": results},
        )


def due(ledger: Ledger, store: EvidenceStore, site: Site, order: NightOrder, night: Night, now: float) -> list[str]:
    """Return the nodes that are in production and due, those with the oldest evidence first; tell the others."""
    rows: dict[str, NodeRow] = {row.name: row for row in ledger.states()}
    out = {node: _state(rows.get(node)) for node in order.nodes if not _serves(rows.get(node))}
    out |= {node: text for node, text in night.resolved.lines.items() if node in order.nodes and node in out}
    night.put("out", out)
    able = [node for node in order.nodes if node not in out and node not in night.resolved.open]
    entries = loader.set_of(site.gates, order.gate_set).gates
    night.measured_at = choose.measured_at(store, entries, able, tried=True)
    fresh = {node: at for node, at in night.measured_at.items() if now - at < choose.FRESH_S and not order.again}
    night.put("fresh", {node: f"measured {(now - at) / 3600:.1f} h ago" for node, at in fresh.items()})
    return sorted((node for node in able if node not in fresh), key=lambda node: night.measured_at[node])


def _serves(row: NodeRow | None) -> bool:
    return row is not None and row.state is NodeState.READY


def _state(row: NodeRow | None) -> str:
    return f"not in production: {row.state.value}" if row is not None else "not in production: never deployed"


def _why(result: NodeResult | None) -> str:
    return "stopped before it was measured" if result is None else result.message or result.outcome.value


def _time(at: float | None) -> str | None:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if at else None


def preview(ctx: PhaseContext, order: NightOrder, now: float) -> Night:
    """Return what a night would do now, from the records and the scheduler; changes nothing. Raises RackreadyError.

    Nodes of the first batch have the outcome ``measure``; idle ones of later batches ``later``.
    """
    site, paths = site_of(ctx), EnvPaths(ctx.root, ctx.env)
    night = Night(ctx.campaign)
    if not Ledger.exists(paths.database):
        night.put("out", dict.fromkeys(order.nodes, _state(None)))
        return night
    with Ledger.read_only(paths.database) as ledger:
        store = EvidenceStore.read_only(ledger, paths.raw)
        waiting = due(ledger, store, site, order, night, now)
        answers = choose.why_not_idle(site, paths, ledger, waiting, longest_s(ledger), reads=True)
        idle, busy, unknown = choose.split(answers)
        serving = {row.name for row in ledger.states() if row.state is NodeState.READY}
        first = choose.batch(waiting, idle, serving, site, order.share_pct)
        night.put("measure", dict.fromkeys(first, "in the first batch"))
        night.put("later", {node: "in a later batch" for node in waiting if node in idle and node not in first})
        night.put("busy", busy)
        night.put("unknown", unknown)
    return night


def require_set(name: str) -> None:
    """Refuse a gate set that nodes in production cannot run by themselves. Raises RackreadyError."""
    found = loader.gate_set(name)
    many = [entry.id for entry in found.gates if gate(entry.id, {}).min_nodes > 1]
    if many or found.repeat_hours is not None:
        raise RackreadyError(
            f"nightly --set {name}",
            expected="a set whose gates need one node each, run once",
            actual=f"needs several nodes: {', '.join(many)}" if many else f"repeated for {found.repeat_hours:g} h",
            next_step="Use nightly or quick; `rackready validate` measures nodes together.",
        )
