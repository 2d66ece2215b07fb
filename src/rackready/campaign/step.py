"""One step: one phase for some nodes. It records states and progress, and never raises an expected error (RUNTIME 1)."""

from __future__ import annotations

import logging
from typing import Any

from rackready.campaign.log_file import log_path
from rackready.campaign.phase_table import PHASES
from rackready.campaign.request import CampaignRequest
from rackready.drivers.process import check_stop, working
from rackready.handover.production import HELD, UNTOUCHED
from rackready.handover.run import drain_nodes
from rackready.ledger.store import Ledger
from rackready.model.outcome import CONTINUES, Outcome
from rackready.model.phase import NodeResult
from rackready.model.problems import RackreadyError
from rackready.model.state import NodeState, at_least
from rackready.paths import EnvPaths

_log = logging.getLogger(__name__)
_FEW = 3
"""So many tasks that changed something are named; of more, as in a first install, their number is told."""


def run_phase(request: CampaignRequest, phase: str, nodes: list[str]) -> dict[str, dict[str, Any]]:
    """Run a phase and return node -> {outcome, message, changed}; every node asked for has an entry."""
    check_stop()
    _log.info("%s begins on %s", phase, ", ".join(nodes))
    paths = EnvPaths(request.context().root, request.env)
    with Ledger.open(paths.database) as ledger, working():
        touched = {node: _begin(ledger, request, phase, node) for node in nodes}
        unseen = _not_yet_visible(ledger, request, phase, nodes)
        results = unseen | _results(request, phase, [node for node in nodes if node not in unseen], paths)
        check_stop()
        for node in nodes:
            _log.info("%s on %s: %s %s", phase, node, results[node].outcome.value, results[node].message)
            _settle_change(ledger, touched[node], results[node])
            _record(ledger, request, phase, node, results[node])
        _drain(ledger, request, phase, [node for node in nodes if _falls_out(results[node])])
    return {
        node: {"outcome": result.outcome.value, "message": result.message, "changed": result.changed}
        for node, result in results.items()
    }


def _falls_out(result: NodeResult) -> bool:
    """Whether a node must be held for this result: not when it is drained already, nor when it was left as it was for its neighbours' sake."""
    return result.outcome.value not in CONTINUES and not result.data.get(HELD) and not result.data.get(UNTOUCHED)


def _begin(ledger: Ledger, request: CampaignRequest, phase: str, node: str) -> int | None:
    """Say that a phase begins on a node. Returns the token of the change that it may make, None when it makes none."""
    ledger.event(request.campaign, node, phase, "begins")
    if request.check:
        return None
    row = ledger.state(node)
    reason = row.reason if row and row.state is NodeState.READY else ""
    ledger.set_state(node, row.state if row else NodeState.DECLARED, reason, phase=phase, campaign=request.campaign)
    return ledger.change_begins(node, phase) if PHASES[phase].touches else None


def _settle_change(ledger: Ledger, token: int | None, result: NodeResult) -> None:
    """Only a phase that came to its end and says "unchanged", or says that it did not touch the node, surely changed nothing."""
    if token is None:
        return
    if result.touched and (result.changed or result.outcome.value not in CONTINUES):
        ledger.done(token, {"outcome": result.outcome.value})
    else:
        ledger.failed(token, "unchanged")


def _not_yet_visible(ledger: Ledger, request: CampaignRequest, phase: str, nodes: list[str]) -> dict[str, NodeResult]:
    """A dry run cannot look into a node that is not powered on yet: that is said, and is no error."""
    if not request.check or phase == "provision":
        return {}
    states = {row.name: row.state for row in ledger.states()}
    words = f"what {phase} would change can be seen once the node is provisioned"
    return {
        node: NodeResult(Outcome.SKIP, words)
        for node in nodes
        if not at_least(states.get(node, NodeState.DECLARED), NodeState.PROVISIONED)
    }


def _results(request: CampaignRequest, phase: str, nodes: list[str], paths: EnvPaths) -> dict[str, NodeResult]:
    try:
        got = PHASES[phase].run(request.context(), nodes) if nodes else {}
    except RackreadyError as error:
        got = dict.fromkeys(nodes, NodeResult(Outcome.ERROR, str(error)))
    except Exception as error:  # noqa: BLE001 - a defect of ours in one phase must not be recorded as the engine's result; it is shown as an error of every node
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


def _record(ledger: Ledger, request: CampaignRequest, phase: str, node: str, result: NodeResult) -> None:
    spec = PHASES[phase]
    good = result.outcome.value in CONTINUES
    words = result.message or (_changed(result, check=request.check) if result.changed else "unchanged")
    ledger.event(request.campaign, node, phase, words, "ok" if good else "error")
    if request.check:
        return
    if good:
        _advance(ledger, request, phase, node, result)
        return
    row = ledger.state(node)
    state = row.state if row else NodeState.DECLARED
    if result.outcome is Outcome.FAIL and spec.fail_quarantines:
        state = NodeState.QUARANTINED
    elif not result.data.get(UNTOUCHED) and at_least(state, spec.holds if result.touched else NodeState.CERTIFIED):
        state = spec.holds if result.touched else NodeState.CERTIFIED
    ledger.set_state(node, state, result.message, phase=phase, campaign=request.campaign)


def _drain(ledger: Ledger, request: CampaignRequest, phase: str, nodes: list[str]) -> None:
    """Keep jobs off what fell out: a node that is not good must not stay on offer from an earlier campaign."""
    rows = {row.name: row for row in ledger.states()}
    fallen = {node: f"{rows[node].state.value}: {rows[node].reason}" for node in nodes if not request.check}
    if not fallen:
        return
    try:
        held = drain_nodes(request.context(), list(fallen), fallen)
    except RackreadyError as error:
        held = dict.fromkeys(fallen, NodeResult(Outcome.ERROR, str(error)))
    for node, result in held.items():
        if result.outcome is not Outcome.PASS:
            ledger.event(
                request.campaign, node, phase, f"could not be held in the scheduler: {result.message}", "error"
            )


def _changed(result: NodeResult, *, check: bool) -> str:
    """Return what a phase changed: every task of a few, the number of many."""
    tasks = [str(task) for task in result.data.get("changes", [])]
    if check or not tasks:
        return "would change" if check else "changed"
    return f"changed: {'; '.join(tasks)}" if len(tasks) <= _FEW else f"changed: {len(tasks)} tasks"


def _advance(ledger: Ledger, request: CampaignRequest, phase: str, node: str, result: NodeResult) -> None:
    """A node reaches the phase's state; one that was further and was changed is back there: what came after is to be proven anew."""
    spec = PHASES[phase]
    for state, note in spec.reaches:
        row = ledger.state(node)
        told = (
            row is not None and row.state is state is NodeState.READY and row.reason != note
        )  # why it was left alone earlier is over
        if row is None or told or not at_least(row.state, state) or (spec.touches and result.changed):
            ledger.set_state(node, state, note, phase=phase, campaign=request.campaign)
