"""Gates that measure one node at a time: nodes side by side, levels in order, and on a node side by side only what merely reads."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import groupby

from rackready.drivers.process import check_stop
from rackready.gates.base import Done, Gate, GateFacts
from rackready.gates.engine.runner import Attempt, Runner
from rackready.gates.engine.shared_outputs import Readings
from rackready.gates.engine.stage_state import StageState
from rackready.gates.judging.merge import merged
from rackready.model.outcome import CONTINUES, Outcome, Verdict

NODE_WORKERS = 16
SIDE_BY_SIDE = 4
"""Gates that run side by side on one node: half of the sessions that sshd gives a connection (MaxSessions, 10), and few enough that a
check, which takes a moment of one core, does not load a node that is in production."""
LEVELS = ("sanity", "validation", "performance", "stress")

_POLL_S = 1.0


@dataclass(frozen=True, slots=True)
class Pace:
    """How many nodes at once, and when which of them may be loaded (seconds after the begin of the stage; at once when it is not named)."""

    workers: int = NODE_WORKERS
    load_after: Mapping[str, float] = field(default_factory=dict)


_Measured = tuple[list[Done], list[Attempt]]


def run_alone(
    state: StageState,
    runner: Runner,
    gates: Sequence[Gate],
    nodes: Sequence[str],
    required: set[str],
    pace: Pace | None = None,
) -> None:
    """Run gates on nodes. Levels go in order, in whatever order a set names them.

    A node that failed is measured on, so that one visit repairs all that is wrong with it: but it is not stressed, and
    after a gate that ``stops_load``, or a level of which no gate could be run, it is put under no load.
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
    """Return gates level by level; those of one level stay in their order."""
    ordered = sorted(gates, key=lambda gate: LEVELS.index(gate.level))
    return [list(group) for _, group in groupby(ordered, key=lambda gate: gate.level)]


def reads_only(gate: Gate, facts: GateFacts, node: str) -> bool:
    """Whether a gate merely looks: level sanity, one node, no claim on any part of it. Such gates do not disturb each other."""
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
    """Wait for a moment (time.monotonic) and heed the operator meanwhile. Raises Interrupted."""
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
    return _stand(state, gate, node, runner.gate(gate, [node]))


def _together(state: StageState, runner: Runner, gates: Sequence[Gate], node: str) -> Iterator[tuple[Gate, Verdict]]:
    """Run gates side by side; they share the outputs of commands that they have in common.

    What they leave is recorded in the order of the set, each as soon as all before it are recorded.
    """
    sharing = replace(runner, readings=Readings())
    with ThreadPoolExecutor(max_workers=min(SIDE_BY_SIDE, len(gates))) as pool:
        measured: list[Future[_Measured]] = [pool.submit(_aside, sharing, gate, node) for gate in gates]
        for gate, future in zip(gates, measured, strict=True):
            state.begins(gate, node)
            done, attempts = future.result()
            for attempt in attempts:
                runner.sink(gate, attempt)
            yield gate, _stand(state, gate, node, done)


def _aside(runner: Runner, gate: Gate, node: str) -> _Measured:
    """Run a gate and keep its attempts instead of recording them."""
    attempts: list[Attempt] = []
    return replace(runner, sink=lambda _, attempt: attempts.append(attempt)).gate(gate, [node]), attempts


def _stand(state: StageState, gate: Gate, node: str, done: Sequence[Done]) -> Verdict:
    verdicts = gate.attribute(state.facts, done).get(node, [])
    if not done:  # there was nothing to run, and no attempt that could have been recorded: why, is
        return state.note(gate.id, node, merged(verdicts))
    state.verdicts[node][gate.id] = verdicts
    return merged(verdicts)
