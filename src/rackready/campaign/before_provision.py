"""What a node must be before it is provisioned: its parts as in the platform profile, its firmware at the baseline."""

from __future__ import annotations

import time
from dataclasses import replace

from rackready.campaign.baselined import run_baselined
from rackready.campaign.drained_phase import Results, Runner
from rackready.campaign.inventory import run_inventory
from rackready.ledger.history import history
from rackready.ledger.store import Ledger
from rackready.model.outcome import CONTINUES, Outcome
from rackready.model.phase import REACHED, NodeResult, PhaseContext
from rackready.model.state import NodeState, at_least
from rackready.paths import EnvPaths

_CARRIED = (NodeState.INVENTORIED, NodeState.BASELINED)
_AS_ON = "as on "


def run_prepared(ctx: PhaseContext, nodes: list[str], provision: Runner) -> Results:
    """Look at nodes that are not provisioned yet, or are to be erased, and provision those that are as they must be.

    The results have notes on the states before ``provisioned``. A node that was provisioned before keeps its notes.
    """
    paths = EnvPaths(ctx.root, ctx.env)
    with Ledger.open(paths.database) as ledger:
        states = {row.name: row.state for row in ledger.states()}
        due = {
            node
            for node in nodes
            if node in ctx.erase or not at_least(states.get(node, NodeState.DECLARED), NodeState.PROVISIONED)
        }
        found = {node: _earlier(ledger, node) for node in nodes if node not in due}
    found |= run_inventory(ctx, [node for node in nodes if node in due])
    based = run_baselined(ctx, [node for node in nodes if _goes_on(found[node])], due)
    found |= {node: _then(found[node], result) for node, result in based.items()}
    then = provision(ctx, [node for node in nodes if _goes_on(found[node])])
    return found | {node: _then(found[node], result) for node, result in then.items()}


def _goes_on(result: NodeResult) -> bool:
    return result.outcome.value in CONTINUES


def _earlier(ledger: Ledger, node: str) -> NodeResult:
    """Return the notes of a node that was provisioned before: a change takes it through these states again."""
    notes = {}
    for state in _CARRIED:
        row = next((row for row in reversed(history(ledger, node)) if row.state is state), None)
        day = time.strftime("%Y-%m-%d", time.gmtime(row.at)) if row is not None else ""
        text = row.reason if row is not None and row.reason else "not compared: it was provisioned before that was done"
        notes[state.value] = text if text.startswith(_AS_ON) or not day else f"{_AS_ON}{day}: {text}"
    return NodeResult(Outcome.PASS, data={REACHED: notes}, touched=False)


def _then(first: NodeResult, then: NodeResult) -> NodeResult:
    """Return the later result with the notes and changes of the one before it."""
    notes = first.data.get(REACHED, {}) | then.data.get(REACHED, {})
    data = {**then.data, REACHED: notes}
    if first.changed:
        data["changes"] = [*first.data.get("changes", []), *then.data.get("changes", [])]
    return replace(
        then, changed=first.changed or then.changed, touched=first.touched or then.touched or first.changed, data=data
    )
