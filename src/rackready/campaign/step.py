"""One step: one phase for some nodes. It records states and progress, and never raises an expected error (RUNTIME 1)."""

from __future__ import annotations

import traceback
from typing import Any

from rackready.campaign.phases import PHASES, Phase
from rackready.campaign.request import Request
from rackready.drivers.process import check_stop
from rackready.handover.phase import hold_nodes
from rackready.ledger.store import Ledger
from rackready.model.outcome import Outcome
from rackready.model.phase import NodeResult
from rackready.model.problems import RackreadyError
from rackready.model.state import NodeState, at_least
from rackready.paths import EnvPaths, private_dir

CONTINUES = {Outcome.PASS.value, Outcome.SKIP.value}
"""A node goes on to the next phase only with one of these."""


def run_phase(request: Request, phase: str, nodes: list[str]) -> dict[str, dict[str, Any]]:
    """Run a phase and return node -> {outcome, message, changed}; every node asked for has an entry."""
    check_stop()
    paths = EnvPaths(request.context().root, request.env)
    ledger = Ledger.open(paths.database)
    try:
        for node in nodes:
            _begin(ledger, request, phase, node)
        results = _results(request, phase, nodes, paths)
        check_stop()
        for node in nodes:
            _record(ledger, request, phase, node, results[node])
        _hold(ledger, request, phase, [node for node in nodes if results[node].outcome.value not in CONTINUES])
    finally:
        ledger.close()
    return {node: {"outcome": result.outcome.value, "message": result.message, "changed": result.changed} for node, result in results.items()}


def _begin(ledger: Ledger, request: Request, phase: str, node: str) -> None:
    row = ledger.state(node)
    ledger.set_state(
        node, row.state if row else NodeState.DECLARED, row.reason if row and row.state is NodeState.READY else "", phase=phase, campaign=request.campaign
    )
    ledger.event(request.campaign, node, phase, "begins")


def _results(request: Request, phase: str, nodes: list[str], paths: EnvPaths) -> dict[str, NodeResult]:
    try:
        got = PHASES[phase].run(request.context(), nodes)
    except RackreadyError as error:
        got = dict.fromkeys(nodes, NodeResult(Outcome.ERROR, str(error)))
    except Exception as error:  # noqa: BLE001 - a defect of ours in one phase must not be recorded as the engine's result; it is shown as an error of every node
        log = private_dir(paths.logs / request.campaign) / f"{phase}-defect.log"
        log.write_text(traceback.format_exc(), encoding="utf-8")
        text = f"{phase}: defect in rackready - Expected: a result Actual: {error.__class__.__name__}: {error}. See {log} and report it."
        got = dict.fromkeys(nodes, NodeResult(Outcome.ERROR, text))
    missing = NodeResult(Outcome.ERROR, f"{phase}: no result - Expected: one for every node Actual: none. See the logs of campaign {request.campaign}.")
    return {node: got.get(node, missing) for node in nodes}


def _record(ledger: Ledger, request: Request, phase: str, node: str, result: NodeResult) -> None:
    spec = PHASES[phase]
    if request.check:
        ledger.event(request.campaign, node, phase, result.message or ("would change" if result.changed else "unchanged"), "ok")
        return
    if result.outcome.value in CONTINUES:
        if result.changed and spec.touches:
            entry = ledger.begin(node, "changed", phase, {})
            ledger.done(entry.token, {"campaign": request.campaign})
        _advance(ledger, request, phase, node, spec)
        ledger.event(request.campaign, node, phase, result.message or ("changed" if result.changed else "unchanged"), "ok")
        return
    row = ledger.state(node)
    quarantine = result.outcome is Outcome.FAIL and spec.fail_quarantines
    state = NodeState.QUARANTINED if quarantine else row.state if row else NodeState.DECLARED
    ledger.set_state(node, state, result.message, phase=phase, campaign=request.campaign)
    ledger.event(request.campaign, node, phase, result.message, "error")


def _hold(ledger: Ledger, request: Request, phase: str, nodes: list[str]) -> None:
    """Keep jobs off what fell out: a node that is not good must not stay on offer from an earlier campaign."""
    rows = {row.name: row for row in ledger.states()}
    fallen = {node: f"{rows[node].state.value}: {rows[node].reason}" for node in nodes if not request.check}
    if not fallen:
        return
    try:
        held = hold_nodes(request.context(), list(fallen), fallen)
    except RackreadyError as error:
        held = dict.fromkeys(fallen, NodeResult(Outcome.ERROR, str(error)))
    for node, result in held.items():
        if result.outcome is not Outcome.PASS:
            ledger.event(request.campaign, node, phase, f"could not be held in the scheduler: {result.message}", "error")


def _advance(ledger: Ledger, request: Request, phase: str, node: str, spec: Phase) -> None:
    for state, note in spec.reaches:
        row = ledger.state(node)
        if row is None or not at_least(row.state, state):
            ledger.set_state(node, state, note, phase=phase, campaign=request.campaign)
