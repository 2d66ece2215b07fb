"""Comparison of a stage's figures with the fleet: with each other, and with other nodes' evidence that still counts."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rackready.design.software_of import software_site
from rackready.gates.base import FleetMetric, Gate
from rackready.gates.engine.recorder import recorded_inputs
from rackready.gates.engine.stage_state import StageState
from rackready.gates.judging.finding_kinds import FailKind
from rackready.gates.judging.fleet import Comparison, Unit, compare_in_site
from rackready.gates.judging.merge import merged
from rackready.model.evidence import EvidenceRecord, Fingerprint
from rackready.model.outcome import Criterion, Finding, Outcome, Verdict
from rackready.model.place import part_of
from rackready.model.profile import GateSetEntry
from rackready.model.site import Site

_HOUR_S = 3600.0
_LOOK = {
    "part": "Compare temperatures, clocks and firmware with a good one",
    "run": "This figure does not show which node is slow: compare the rails' shares and the figures of its pairs with "
    "those of a good run",
}
_ONE_END = (
    "Its partner is good with others: compare this node's cable, PCIe width and port errors with those of a good rail"
)
"""Next step if the gate acquitted the other nodes of the run."""
_Figures = dict[str, list[tuple[str, Verdict]]]
"""Identical key -> (node, verdict) of each node with that key."""


BEHIND_FLEET = FailKind(
    "behind-fleet",
    "{metric} falls behind its fleet",
    meaning="This unit is slower than most identical units of the fleet, by more than their spread.",
    next_step="{look}, repair, then run {gate} again: docs/runbooks/fleet-outlier.md",
    runbook="docs/runbooks/fleet-outlier.md",
)


def judge_fleet(state: StageState, gate: Gate, entry: GateSetEntry, nodes: Sequence[str]) -> None:
    """Compare the nodes of this stage with their fleet. An outlier fails; a pending pass becomes final.

    Fewer than 16 identical units are not a fleet: then nothing changes.
    """
    if not gate.fleet:
        return
    own = {node: verdict for node in nodes if (verdict := _passed(state, gate, node)) is not None}
    stored = {
        node: record
        for node, record in state.recorder.store.newest(gate.id).items()
        if node not in own and _counts(state, entry, node, record)
    }
    alike = _alike(state, gate, own, stored)
    judged: dict[str, list[Comparison]] = defaultdict(list)
    for members in alike.values():
        for metric in gate.fleet:
            units = _units(metric, members, own)
            found = compare_in_site(gate, metric, units, state.facts.fleet)
            if found is not None:
                for node in {unit.node for unit in found.units}:
                    judged[node].append(found)
    for node in sorted(judged):
        if node in own:
            _of_node(state, gate, node, own[node], judged[node])
        else:
            _report_stored(state, gate, node, judged[node])


def _units(metric: FleetMetric, members: Sequence[tuple[str, Verdict]], own: Mapping[str, Verdict]) -> list[Unit]:
    """Return all figures.

    The figure of a run that this stage repeated counts for both its ends: the record of the other end is from before a
    repair.
    """
    units = [unit for node, verdict in members for unit in units_of(metric, node, verdict)]
    if metric.of == "part":
        return units
    current = {unit.target: unit.value for unit in units if unit.node in own}
    return [
        replace(unit, value=current[unit.target]) if unit.node not in own and unit.target in current else unit
        for unit in units
    ]


def _passed(state: StageState, gate: Gate, node: str) -> Verdict | None:
    verdicts = state.verdicts[node].get(gate.id)
    if not verdicts or not isinstance(state.prints[node], Fingerprint):
        return None
    verdict = merged(verdicts)
    return verdict if verdict.outcome is Outcome.PASS else None


def _counts(state: StageState, entry: GateSetEntry, node: str, record: EvidenceRecord) -> bool:
    """Return whether stored evidence of another node still counts: a pass, unchanged node and intent, not too old."""
    found = next((item for item in record.fingerprints if item.node == node), None)
    if record.verdict.outcome is not Outcome.PASS or found is None or node not in state.names():
        return False
    begun, changed = record.started.timestamp(), state.recorder.ledger.last_change(node)
    if record.id <= changed.before:
        return False
    if begun < changed.at or found.desired_digest != state.digest(node):
        return False
    return entry.max_age_hours is None or time.time() - begun <= entry.max_age_hours * _HOUR_S


def _alike(state: StageState, gate: Gate, own: dict[str, Verdict], stored: dict[str, EvidenceRecord]) -> _Figures:
    out: _Figures = defaultdict(list)
    inputs = gate.inputs.model_dump(mode="json")
    for node, verdict in own.items():
        found = state.prints[node]
        if isinstance(found, Fingerprint):
            out[identical_key(state.site, gate, found, inputs)].append((node, verdict))
    for node, record in stored.items():
        found = next(item for item in record.fingerprints if item.node == node)
        out[identical_key(state.site, gate, found, record.inputs)].append((node, record.verdict))
    return out


def identical_key(site: Site, gate: Gate, found: Fingerprint, inputs: Mapping[str, object]) -> str:
    """Return the key that is equal for identical units.

    It contains the server model, firmware, driver, kernel, version set and the gate's inputs except ``launches``.
    """
    size = {name: inputs.get(name) for name in type(gate.inputs).model_fields if name != "launches"}
    parts = [
        site.node(found.node).platform,
        sorted(set(found.vbios)),
        sorted(set(found.nic_firmware)),
        found.driver,
        found.kernel,
        software_site(site, found.node).software.set,
        size,
    ]
    return json.dumps(parts, sort_keys=True)


def units_of(metric: FleetMetric, node: str, verdict: Verdict) -> Iterator[Unit]:
    """Yield the figures of a node and its parts or, for a metric of runs, of the runs that it took part in."""
    for item in verdict.metrics:
        own = part_of(item.target, node) is not None
        if item.name == metric.name and own == (metric.of == "part"):
            yield Unit(node, item.target, item.value, item.unit)


def _of_node(state: StageState, gate: Gate, node: str, before: Verdict, comparisons: list[Comparison]) -> None:
    """Complete the verdict of a node with the judgement of its fleet, and record it."""
    verdict = completed(gate, node, before, [judgement(gate, node, found) for found in comparisons])
    findings = verdict.findings[len(before.findings) :]
    about = {"fleet": {found.metric.name: found.count for found in comparisons}}
    if not state.recorder.completed(gate.id, node, verdict, about):
        if not findings:
            return  # measured before and still good: its record stays
        state.recorder.conclusion(gate.id, node, verdict, recorded_inputs(gate, **about))
    state.verdicts[node][gate.id] = [verdict]
    for finding in findings:
        state.recorder.progress(node, f"{gate.id} fail: {finding}", Outcome.FAIL)


@dataclass(frozen=True, slots=True)
class FleetJudgement:
    """Result of a comparison for one node: the bound, and the node's units that fall behind."""

    metric: str
    bound: Criterion
    behind: tuple[tuple[str, Finding], ...]
    """(target, finding)."""


def judgement(gate: Gate, node: str, found: Comparison, bound: Criterion | None = None) -> FleetJudgement:
    """Return the result of a comparison for a node. ``bound``: its criterion, if already built."""
    behind = tuple((unit.target, _finding(unit, found, gate)) for unit in found.outliers if unit.node == node)
    return FleetJudgement(found.metric.name, bound or found.criterion(), behind)


def completed(gate: Gate | type[Gate], node: str, before: Verdict, comparisons: Sequence[FleetJudgement]) -> Verdict:
    """Return a node's verdict with the fleet's bounds; it is a fail if a unit of the node falls behind."""
    findings = [finding for found in comparisons for _, finding in found.behind]
    measured = {metric.name for metric in before.metrics} & {metric.name for metric in gate.fleet}
    complete = {found.metric for found in comparisons} >= measured
    bad = {target for found in comparisons for target, _ in found.behind}
    # A slow run proves nothing about any of its parts.
    runs = any(metric.of == "run" for metric in gate.fleet)
    return before.model_copy(
        update={
            "outcome": Outcome.FAIL if findings else before.outcome,
            "findings": [*before.findings, *findings],
            "criteria": [*before.criteria, *(found.bound for found in comparisons)],
            "measured": [part for part in before.measured if part not in bad and not runs]
            if findings
            else before.measured,
            "blamed": [node] if findings else before.blamed,
            "fleet_pending": before.fleet_pending and not complete,
        }
    )


def _finding(unit: Unit, found: Comparison, gate: Gate) -> Finding:
    shared = found.metric.of == "part" or sum(other.target == unit.target for other in found.outliers) > 1
    look = (found.metric.look or _LOOK[found.metric.of]) if shared else _ONE_END
    side = "at least" if found.metric.better == "higher" else "at most"
    return BEHIND_FLEET.found(
        unit.target.replace("/", " "),
        f"{side} {found.bound:.4g} {unit.unit} (median of {found.count} identical units {found.centre:.4g})",
        f"{unit.value:.4g} {unit.unit}",
        metric=found.metric.name,
        look=look,
        gate=gate.id,
    )


def _report_stored(state: StageState, gate: Gate, node: str, comparisons: list[Comparison]) -> None:
    """Log that a node outside this stage now falls behind. Its own record does not change."""
    for found in comparisons:
        for unit in found.outliers:
            if unit.node == node:
                words = f"its stored evidence falls behind now: {_finding(unit, found, gate)}"
                state.recorder.progress(
                    node,
                    f"{gate.id}: {words} Measure it: `rackready validate --again --limit {node}`.",
                    Outcome.NOT_RUN,
                )
