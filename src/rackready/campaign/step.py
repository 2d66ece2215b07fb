"""One step: one phase for some nodes. Records states and progress, and never raises an expected error (RUNTIME 1)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from rackready.campaign.fabric_plan import FabricNodePlan, FabricStep
from rackready.campaign.log_file import log_path
from rackready.campaign.lost_lock import lost_lock_first
from rackready.campaign.phase_on_workers import run_offered, use_of
from rackready.campaign.phase_table import PHASES
from rackready.campaign.request import CampaignRequest
from rackready.drivers.process import check_stop, working
from rackready.handover.run import drain_nodes
from rackready.ledger.batch import Batch, batch
from rackready.ledger.store import FAILED, Ledger
from rackready.model.outcome import CONTINUES, Outcome
from rackready.model.phase import BROKEN, DRAINED, FINDINGS, NOTE, PLAN, REACHED, TOGETHER, UNTOUCHED, NodeResult
from rackready.model.problems import RackreadyError
from rackready.model.state import LIFE, NodeState, at_least
from rackready.paths import EnvPaths

_log = logging.getLogger(__name__)
_SHOWN = frozenset({PLAN, FINDINGS, TOGETHER})
"""What of a result's data the campaign's own result has."""
_LOOK_S = 0.5
_FEW = 3
"""Changed tasks that a message names; of more, as in a first install, it gives the number."""


def run_phase(request: CampaignRequest, phase: str, nodes: list[str]) -> dict[str, dict[str, Any]]:
    """Run a phase here or on workers. Return node -> {outcome, message, changed}, and plan or findings.

    Every node has an entry.
    """
    check_stop()
    paths = EnvPaths(request.context().root, request.env)
    with lost_lock_first(paths.database):
        with Ledger.open(paths.database) as ledger, working():
            use = use_of(ledger, request, phase)
            if use is not None:

                def record(results: Mapping[str, NodeResult]) -> dict[str, dict[str, Any]]:
                    with batch(ledger, list(results)) as records:
                        for node, result in results.items():
                            _record(records, request, phase, node, result)
                    _drain(ledger, request, phase, [node for node in results if _must_drain(results[node])])
                    return {node: _plain(result) for node, result in results.items()}

                return run_offered(ledger, use, request, phase, nodes, record)
        with _turn(request.batches_at_once):
            return run_here(request, phase, nodes)


@contextmanager
def _turn(batches: int) -> Iterator[None]:
    """Wait until this process has room for one more batch: workers have taken the others. Raises Interrupted."""
    room = _room(batches)
    while not room.acquire(timeout=_LOOK_S):
        check_stop()
    try:
        yield
    finally:
        room.release()


@lru_cache
def _room(batches: int) -> threading.BoundedSemaphore:
    return threading.BoundedSemaphore(batches)


def run_here(request: CampaignRequest, phase: str, nodes: list[str]) -> dict[str, dict[str, Any]]:
    """Run a phase in this process: the controller's, or that of a worker's batch. Results as of ``run_phase``."""
    check_stop()
    _log.info("%s begins on %s", phase, ", ".join(nodes))
    paths = EnvPaths(request.context().root, request.env)
    with Ledger.open(paths.database) as ledger, working():
        touched = _begin(ledger, request, phase, nodes)
        unseen = _not_yet_visible(ledger, request, phase, nodes)
        results = unseen | _results(request, phase, [node for node in nodes if node not in unseen], paths)
        check_stop()
        _log_results(phase, nodes, results)
        with batch(ledger, nodes) as records:
            for node in nodes:
                _settle_change(records, touched.get(node), results[node])
                _record(records, request, phase, node, results[node])
        _drain(ledger, request, phase, [node for node in nodes if _must_drain(results[node])])
    return {node: _plain(result) for node, result in results.items()}


def _log_results(phase: str, nodes: list[str], results: Mapping[str, NodeResult]) -> None:
    """Log the results, those that are alike in one line: each line is searched for secrets and flushed."""
    alike: dict[tuple[str, str], list[str]] = {}
    for node in nodes:
        alike.setdefault((results[node].outcome.value, results[node].message), []).append(node)
    for (outcome, message), same in alike.items():
        _log.info("%s on %s: %s %s", phase, ", ".join(same), outcome, message)


def _plain(result: NodeResult) -> dict[str, Any]:
    out = {"outcome": result.outcome.value, "message": result.message, "changed": result.changed}
    tasks = [f"{one['role']} : {one['task']}" for one in result.data.get("broken", [])]
    bad = {BROKEN: tasks} if tasks and result.outcome.value not in CONTINUES else {}
    return out | bad | {key: value for key, value in result.data.items() if key in _SHOWN}


def _must_drain(result: NodeResult) -> bool:
    """Return whether a node must be drained for this result.

    Not when it is drained already, nor when it was left as it was for its neighbours' sake.
    """
    return result.outcome.value not in CONTINUES and not result.data.get(DRAINED) and not result.data.get(UNTOUCHED)


def _begin(ledger: Ledger, request: CampaignRequest, phase: str, nodes: list[str]) -> dict[str, int]:
    """Record that a phase begins on nodes. Return the tokens of possible changes, none for a phase that makes none."""
    with batch(ledger, nodes) as records:
        for node in nodes:
            records.event(request.campaign, node, phase, "begins")
            if request.check:
                continue
            row = records.state(node)
            reason = row.reason if row and row.state is NodeState.READY else ""
            state = row.state if row else NodeState.DECLARED
            records.set_state(node, state, reason, phase=phase, campaign=request.campaign)
        return records.changes_begin(phase) if PHASES[phase].touches and not request.check else {}


def _settle_change(ledger: Batch, token: int | None, result: NodeResult) -> None:
    """Record the end of a phase's change.

    Only a phase that ended and reports "unchanged", or that it did not touch the node, surely changed nothing.
    """
    if token is None:
        return
    if result.touched and (result.changed or result.outcome.value not in CONTINUES):
        ledger.done(token, {"outcome": result.outcome.value})
    else:
        ledger.failed(token, "unchanged")


def _not_yet_visible(ledger: Ledger, request: CampaignRequest, phase: str, nodes: list[str]) -> dict[str, NodeResult]:
    """Return a skip for nodes that are not powered on yet: a dry run cannot look into them, and that is no error."""
    if not request.check or phase == "provision":
        return {}
    states = {row.name: row.state for row in ledger.states()}
    words = f"what {phase} would change can be seen once the node is provisioned"
    data = {PLAN: FabricNodePlan(FabricStep.UNSEEN, words).plain()} if phase == "fabric" else {}
    return {
        node: NodeResult(Outcome.SKIP, words, data=dict(data))
        for node in nodes
        if not at_least(states.get(node, NodeState.DECLARED), NodeState.PROVISIONED)
    }


def _results(request: CampaignRequest, phase: str, nodes: list[str], paths: EnvPaths) -> dict[str, NodeResult]:
    try:
        got = PHASES[phase].run(request.context(), nodes) if nodes else {}
    except RackreadyError as error:
        got = dict.fromkeys(nodes, NodeResult(Outcome.ERROR, str(error)))
    except Exception as error:  # noqa: BLE001 - a defect of ours is an error of every node, not the engine's result
        _log.exception("%s: defect in rackready", phase)
        log = log_path(paths, request.campaign)
        text = (
            f"{phase}: defect in rackready - Expected: a result Actual: {error.__class__.__name__}: {error}. "
            f"See {log} and report it."
        )
        got = dict.fromkeys(nodes, NodeResult(Outcome.ERROR, text))
    missing = NodeResult(
        Outcome.ERROR,
        f"{phase}: no result - Expected: one for every node Actual: none. See the logs of campaign {request.campaign}.",
    )
    return {node: got.get(node, missing) for node in nodes}


def _record(ledger: Batch, request: CampaignRequest, phase: str, node: str, result: NodeResult) -> None:
    spec = PHASES[phase]
    good = result.outcome.value in CONTINUES
    words = result.message or (_changed(result, check=request.check) if result.changed else "unchanged")
    bad = FAILED if result.outcome is Outcome.FAIL else "error"
    ledger.event(request.campaign, node, phase, words, "ok" if good else bad)
    if request.check:
        return
    if good:
        _advance(ledger, request, phase, node, result)
        return
    state = _reached(ledger, request, phase, node, result)
    if result.outcome is Outcome.FAIL and spec.fail_quarantines:
        state = NodeState.QUARANTINED
    elif not result.data.get(UNTOUCHED):
        held = _held(result, spec.holds)
        state = held if at_least(state, held) else state
    ledger.set_state(node, state, result.message, phase=phase, campaign=request.campaign)


def _reached(ledger: Batch, request: CampaignRequest, phase: str, node: str, result: NodeResult) -> NodeState:
    """Record the states that a node reached before its fault, and return its state."""
    row = ledger.state(node)
    state = row.state if row else NodeState.DECLARED
    notes = {} if result.data.get(UNTOUCHED) or state not in LIFE else _notes(result)
    for reached, note in notes.items():
        if not at_least(state, reached) or state is reached:
            state = reached
            ledger.set_state(node, state, note, phase=phase, campaign=request.campaign)
    return state


def _held(result: NodeResult, holds: NodeState) -> NodeState:
    """Return the furthest state that a result which is not good leaves to its node."""
    return list(_notes(result) or (holds,))[-1] if result.touched else NodeState.CERTIFIED


def _notes(result: NodeResult) -> dict[NodeState, str]:
    return {NodeState(state): str(note) for state, note in result.data.get(REACHED, {}).items()}


def _drain(ledger: Ledger, request: CampaignRequest, phase: str, nodes: list[str]) -> None:
    """Drain nodes that did not come through: they must not stay on offer from an earlier campaign."""
    if request.check or not nodes:
        return
    rows = {row.name: row for row in ledger.states()}
    fallen = {node: f"{rows[node].state.value}: {rows[node].reason}" for node in nodes}
    try:
        drained = drain_nodes(request.context(), list(fallen), fallen)
    except RackreadyError as error:
        drained = dict.fromkeys(fallen, NodeResult(Outcome.ERROR, str(error)))
    for node, result in drained.items():
        if result.outcome is not Outcome.PASS:
            text = f"could not be drained in the scheduler: {result.message}"
            ledger.event(request.campaign, node, phase, text, "error")


def _changed(result: NodeResult, *, check: bool) -> str:
    """Return the changes of a phase in words: the tasks of a few, the number of many."""
    tasks = [str(task) for task in result.data.get("changes", [])]
    if check or not tasks:
        return "would change" if check else "changed"
    return f"changed: {'; '.join(tasks)}" if len(tasks) <= _FEW else f"changed: {len(tasks)} tasks"


def _advance(ledger: Batch, request: CampaignRequest, phase: str, node: str, result: NodeResult) -> None:
    """Record the phase's state for a node. A node that was further and changed goes back there, to be proven again."""
    spec = PHASES[phase]
    notes = _notes(result)
    for state in spec.reaches:
        row, note = ledger.state(node), notes.get(state, "")
        # A ready node has a reason only where it was left alone earlier, and that no longer holds.
        outdated = row is not None and row.state is state is NodeState.READY and bool(row.reason)
        outdated |= row is not None and row.state is state and (NOTE in result.data or bool(note))
        if row is None or outdated or not at_least(row.state, state) or (spec.touches and result.changed):
            ledger.set_state(
                node, state, note or str(result.data.get(NOTE, "")), phase=phase, campaign=request.campaign
            )
