"""Run of a gate set by name: once, or repeated for hours as a burn-in whose load follows the power-on waves."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rackready.design.pinned import site_of
from rackready.gates.engine.load_waves import Waves, waves
from rackready.gates.engine.recorder import Recorder
from rackready.gates.engine.single_node import NODE_WORKERS, Pace
from rackready.gates.engine.validate import Stage, stages
from rackready.gates.judging.finding_kinds import FailKind
from rackready.model.outcome import Criterion, Metric, Op, Outcome, Verdict
from rackready.model.phase import NodeResult, PhaseContext
from rackready.model.profile import GateSet
from rackready.paths import EnvPaths
from rackready.profiles import loader

BURN_IN = "node/all/stress/burn-in"
"""Id of the record of a burn-in: whether all its rounds passed, and how long they took."""
_HOUR_S = 3600.0

Begin = Callable[[Sequence[str]], Stage]


BURN_IN_ROUND = FailKind(
    "burn-in-round",
    "round {rounds} of the burn-in",
    meaning="A round of the burn-in did not pass, so the node did not pass the burn-in.",
    next_step="Repair, then run the burn-in again from its beginning.",
)


def run_set(ctx: PhaseContext, nodes: Sequence[str], wanted: str) -> dict[str, NodeResult]:
    """Run a shipped gate set on nodes, with the site's changes to its gates, and return the result of each node.

    Raise RackreadyError for a set or site that cannot be used, or Interrupted.
    """
    site = site_of(ctx)
    found = loader.set_of(site.gates, wanted)
    order = waves(site, nodes) if found.wave_gap_s is not None else Waves((tuple(nodes),))
    with stages(ctx, site, EnvPaths(ctx.root, ctx.env), nodes, found.gates) as begin:
        return SetRun(found, order, begin).run([node for node in nodes if node not in order.refused]) | {
            node: NodeResult(Outcome.NOT_RUN, f"{node}: {why}") for node, why in order.refused.items()
        }


@dataclass(slots=True)
class SetRun:
    """One run of a set. ``clock``: seconds, replaced by tests."""

    found: GateSet
    order: Waves
    begin: Begin
    clock: Callable[[], float] = time.monotonic

    def run(self, nodes: Sequence[str]) -> dict[str, NodeResult]:
        """Run rounds until the set's hours are over or no node is left; without hours, run one round."""
        begun, number = self.clock(), 0
        left, out = list(nodes), dict[str, NodeResult]()
        while left:
            number += 1
            stage = self._stage(left, number)
            results = stage.run(left, [], self.found.gates, full_set=False)
            hours = (self.clock() - begun) / _HOUR_S
            over = self.found.repeat_hours is None or hours >= self.found.repeat_hours
            fallen = [node for node in left if results[node].outcome is not Outcome.PASS]
            self._record(stage.state.recorder, left if over else fallen, results, hours, number)
            out |= results
            left = [] if over else [node for node in left if node not in fallen]
        return out

    def _stage(self, nodes: Sequence[str], number: int) -> Stage:
        """Begin a round. It reads serials and versions again, so that a lost part is noticed.

        If the power is staged, all nodes run at once, each from the time of its wave.
        """
        stage = self.begin(nodes)
        if self.found.wave_gap_s is not None:
            stage.pace = Pace(max(len(nodes), NODE_WORKERS), self.order.load_after(self.found.wave_gap_s))
        for place, wave in enumerate(self.order.order, 1):
            for node in (node for node in wave if node in nodes):
                words = self.order.note or f"wave {place} of {len(self.order.order)}"
                if self.found.wave_gap_s is not None:
                    stage.state.recorder.progress(node, f"{self.found.id}, round {number}: {words}", Outcome.PASS)
        return stage

    def _record(
        self, recorder: Recorder, nodes: Sequence[str], results: dict[str, NodeResult], hours: float, rounds: int
    ) -> None:
        """Record the burn-in of each node whose rounds are over; a set that runs once leaves no such record."""
        wanted = self.found.repeat_hours
        if wanted is None:
            return
        for node in nodes:
            verdict = burn_in_verdict(node, results[node], hours, rounds, wanted)
            recorder.conclusion(
                BURN_IN,
                node,
                verdict,
                {"title": f"Every round of {self.found.id} passed for {wanted:g} h.", "set": self.found.id},
            )
            recorder.progress(
                node, f"{BURN_IN} {verdict.outcome.value}: {rounds} rounds in {hours:.1f} h", verdict.outcome
            )


def burn_in_verdict(node: str, last: NodeResult, hours: float, rounds: int, wanted: float) -> Verdict:
    """Return the verdict on a node's burn-in: that of its last round, since all earlier ones passed."""
    bound = Criterion(
        metric="hours",
        op=Op.GE,
        bound=wanted,
        unit="h",
        label="floor",
        source="gate set (repeat_hours): judgement, ours",
    )
    finding = BURN_IN_ROUND.found(node, "pass", f"{last.outcome.value}: {last.message}", rounds=rounds)
    metrics = [
        Metric(name="hours", target=node, value=hours, unit="h"),
        Metric(name="rounds", target=node, value=rounds, unit="1"),
    ]
    passed = last.outcome is Outcome.PASS
    return Verdict(
        outcome=last.outcome,
        findings=[] if passed else [finding],
        metrics=metrics,
        criteria=[bound],
        measured=[node] if passed else [],
    )
