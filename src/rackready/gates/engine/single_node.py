"""Runs of single-node gates: nodes in parallel, levels in order, and only read-only gates in parallel on a node."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import groupby

from rackready.drivers.process import check_stop
from rackready.gates.base import FinishedRun, Gate, GateFacts
from rackready.gates.engine.runner import Attempt, Runner
from rackready.gates.engine.shared_outputs import Readings
from rackready.gates.engine.stage_state import StageState
from rackready.gates.judging.merge import merged
from rackready.model.outcome import CONTINUES, Outcome, Verdict

NODE_WORKERS = 16
SIDE_BY_SIDE = 4
"""Gates that run in parallel on one node.

Half of the sessions that sshd allows per connection (MaxSessions, 10). A check takes a moment of one core, so these few
do not load a node in production.
"""
LEVELS = ("sanity", "validation", "performance", "stress")

_POLL_S = 1.0


@dataclass(frozen=True, slots=True)
class Pace:
    """How many nodes run in parallel, and when each may be loaded.

    ``load_after``: node -> seconds after the start of the stage; nodes that are not in it may be loaded at once.
    """

    workers: int = NODE_WORKERS
    load_after: Mapping[str, float] = field(default_factory=dict)


_Measured = tuple[list[FinishedRun], list[Attempt]]


def run_alone(
    state: StageState,
    runner: Runner,
    gates: Sequence[Gate],
    nodes: Sequence[str],
    required: set[str],
    pace: Pace | None = None,
) -> None:
    """Run single-node gates on nodes, level by level, whatever the order in the set.

    A node that failed is measured further, so that one visit can repair all its faults. But it is not stressed, and
    after a gate that ``stops_load``, or a level in which no gate could run, it is not loaded.
    """
    pace, begun = pace or Pace(), time.monotonic()
    with ThreadPoolExecutor(max_workers=max(1, min(len(nodes), pace.workers))) as pool:
        list(
            pool.map(
                lambda node: _of_node(state, runner, gates, node, required, begun + pace.load_after.get(node, 0.0)),
                nodes,
            )
        )


def in_levels(gates: Sequence[Gate]) -> list[list[Gate]]:
    """Return the gates by level; gates of one level keep their order."""
    ordered = sorted(gates, key=lambda gate: LEVELS.index(gate.level))
    return [list(group) for _, group in groupby(ordered, key=lambda gate: gate.level)]


def reads_only(gate: Gate, facts: GateFacts, node: str) -> bool:
    """Return whether a gate only reads: level sanity, one node, no claims. Such gates do not disturb each other."""
    if gate.level != "sanity" or not gate.single_node:
        return False
    return all(not run.claims and run.launch_from is None and len(run.nodes) == 1 for run in gate.plan(facts, [node]))


def _of_node(
    state: StageState, runner: Runner, gates: Sequence[Gate], node: str, required: set[str], load_at: float
) -> None:
    stopped_by = failed_by = state.lost(node)
    for level in in_levels(gates):
        barred_by = {LEVELS[0]: "", LEVELS[-1]: failed_by}.get(level[0].level, stopped_by)
        if level[0].level != LEVELS[0] and not barred_by:
            _wait(load_at)
        found = list(_level(state, runner, level, node, barred_by))
        bad = [gate for gate, verdict in found if verdict.outcome not in CONTINUES and gate.id in required]
        blind = bad if all(verdict.outcome is Outcome.ERROR for _, verdict in found) else []
        stopped_by = stopped_by or next((gate.id for gate in bad if gate.stops_load or blind), "")
        failed_by = failed_by or next((gate.id for gate in bad), "")


def _wait(until: float) -> None:
    """Wait until a time (time.monotonic). Raise Interrupted if the operator stops."""
    while (left := until - time.monotonic()) > 0:
        check_stop()
        time.sleep(min(_POLL_S, left))


def _level(
    state: StageState, runner: Runner, gates: Sequence[Gate], node: str, stopped_by: str
) -> Iterator[tuple[Gate, Verdict]]:
    """Run the gates of one level and yield each with its verdict, in their order."""
    for reading, group in groupby(
        gates, key=lambda gate: state.settled(gate, node, stopped_by) is None and reads_only(gate, state.facts, node)
    ):
        if reading:
            yield from _together(state, runner, list(group), node)
            continue
        for gate in group:
            yield gate, _one(state, runner, gate, node, stopped_by)


def _one(state: StageState, runner: Runner, gate: Gate, node: str, stopped_by: str) -> Verdict:
    verdict = state.settled(gate, node, stopped_by)
    if verdict is not None:
        return verdict if gate.id in state.kept.get(node, {}) else state.note(gate.id, node, verdict)
    state.begins(gate, node)
    return _conclude(state, gate, node, runner.gate(gate, [node]))


def _together(state: StageState, runner: Runner, gates: Sequence[Gate], node: str) -> Iterator[tuple[Gate, Verdict]]:
    """Run gates in parallel; they share the outputs of common commands.

    Their attempts are recorded in the order of the set, each as soon as all before it are recorded.
    """
    sharing = replace(runner, readings=Readings())
    with ThreadPoolExecutor(max_workers=min(SIDE_BY_SIDE, len(gates))) as pool:
        measured: list[Future[_Measured]] = [pool.submit(_unrecorded, sharing, gate, node) for gate in gates]
        for gate, future in zip(gates, measured, strict=True):
            state.begins(gate, node)
            done, attempts = future.result()
            for attempt in attempts:
                runner.sink(gate, attempt)
            yield gate, _conclude(state, gate, node, done)


def _unrecorded(runner: Runner, gate: Gate, node: str) -> _Measured:
    """Return the runs and attempts of a gate, without recording them."""
    attempts: list[Attempt] = []
    return replace(runner, sink=lambda _, attempt: attempts.append(attempt)).gate(gate, [node]), attempts


def _conclude(state: StageState, gate: Gate, node: str, done: Sequence[FinishedRun]) -> Verdict:
    verdicts = gate.attribute(state.facts, done).get(node, [])
    if not done:  # nothing ran, so no attempt was recorded: record why
        return state.note(gate.id, node, merged(verdicts))
    state.verdicts[node][gate.id] = verdicts
    return merged(verdicts)
