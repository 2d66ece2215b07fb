"""Conclusion of a stage for one node: merged verdicts, unsatisfied required gates, coverage."""

from __future__ import annotations

from collections.abc import Sequence

from rackready.gates.base import Gate
from rackready.gates.engine.stage_state import StageState
from rackready.gates.judging import coverage as cover
from rackready.gates.judging.merge import merged
from rackready.model.evidence import COVERAGE
from rackready.model.outcome import CONTINUES, FLEET_PENDING, Finding, Outcome, Verdict, worst
from rackready.model.phase import NodeResult

_RANK = {Outcome.FAIL: 0, Outcome.ERROR: 1, Outcome.NOT_RUN: 2, Outcome.SKIP: 3, Outcome.PASS: 4}


_UNREAD = (
    "identity not read - Expected: its serial Actual: NVML does not report it. "
    "Look for Xid errors in the kernel log (`rackready gate run node/gpu/sanity/xid`)."
)


def conclude(state: StageState, node: str, gates: Sequence[Gate], required: set[str], *, full_set: bool) -> NodeResult:
    """Return a stage's result for a node.

    ``full_set``: the site's whole gate set was requested, so coverage is judged and recorded too.
    """
    found = state.prints[node]
    if isinstance(found, Finding):
        return NodeResult(Outcome.ERROR, str(found))
    own = {gate.id: merged(state.verdicts[node].get(gate.id, [])) for gate in gates}
    problems = [item for gate_id in own if gate_id in required for item in _problems(gate_id, own[gate_id])]
    seen = cover.of_node(state.facts.nodes[node], state.verdicts[node], gates, state.skips(node))
    counts = seen.counts(state.facts.nodes[node])
    covered = _covered(state, node, seen) if full_set else []
    if not seen.held_up:
        problems += covered
    # A single gate may be a declared skip; a whole set of skips measured nothing.
    idle = {Outcome.NOT_RUN, Outcome.SKIP} if full_set else {Outcome.NOT_RUN}
    if all(verdict.outcome in idle for verdict in own.values()):
        problems.append(
            (
                Outcome.ERROR,
                (
                    f"{node}: nothing was run - Expected: at least one gate Actual: none. "
                    "Check the gate set and the site's skips."
                ),
            )
        )
    problems += [(Outcome.ERROR, f"{node} {gpu}: {_UNREAD}") for gpu in found.unread]
    problems.sort(key=lambda item: _RANK[item[0]])
    problems += covered if seen.held_up else []  # after the gates that did not run, which give the reason
    data = {
        "gates": {gate_id: verdict.outcome.value for gate_id, verdict in own.items()},
        "findings": [text for _, text in problems],
        "coverage": {kind: list(pair) for kind, pair in counts.items()},
        "skipped": seen.skipped,
    }
    return NodeResult(
        worst([item[0] for item in problems]) if problems else Outcome.PASS,
        problems[0][1] if problems else "",
        data=data,
    )


def _covered(state: StageState, node: str, seen: cover.Coverage) -> list[tuple[Outcome, str]]:
    """Record coverage, and return unmeasured parts as problems."""
    proven = cover.verdict(seen)
    state.recorder.conclusion(COVERAGE, node, proven, cover.about(seen, state.facts.nodes[node]))
    return [(proven.outcome, str(finding)) for finding in proven.findings]


def _problems(gate_id: str, verdict: Verdict) -> list[tuple[Outcome, str]]:
    """Return why a required gate is not satisfied. A fleet-pending pass does not satisfy it."""
    if verdict.outcome is Outcome.PASS and verdict.fleet_pending:
        step = "Measure at least 16 identical nodes, or give the profile a reference with its source."
        return [
            (
                Outcome.ERROR,
                f"{gate_id}: {FLEET_PENDING} - Expected: a bound that judges Actual: none for this platform. {step}",
            )
        ]
    if verdict.outcome in CONTINUES:
        return []
    return [(verdict.outcome, str(finding)) for finding in verdict.findings] or [
        (verdict.outcome, f"{gate_id}: {verdict.outcome.value}")
    ]
