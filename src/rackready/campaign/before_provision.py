"""What a node must be before it is provisioned: its parts as in the platform profile, its firmware at the baseline."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

from rackready.campaign.baselined import run_baselined
from rackready.campaign.drained_phase import Results, Runner
from rackready.campaign.inventory import run_inventory
from rackready.ledger.history import history
from rackready.ledger.state_notes import Notes, StateNote, keep, notes_of
from rackready.ledger.store import Ledger
from rackready.model.outcome import CONTINUES, Outcome
from rackready.model.phase import REACHED, NodeResult, PhaseContext
from rackready.model.state import NodeState, at_least
from rackready.paths import EnvPaths

_CARRIED = (NodeState.INVENTORIED, NodeState.BASELINED)
_NOT_DONE = "not compared: it was provisioned before that was done"


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
        noted = notes_of(ledger, [node for node in nodes if node not in due])
        old = _of_before(ledger, noted)
    found = {node: _carried({**old[node], **notes}) for node, notes in noted.items()}
    looked = run_inventory(ctx, [node for node in nodes if node in due])
    found |= looked
    based = run_baselined(ctx, [node for node in nodes if _goes_on(found[node])], due)
    found |= {node: _then(found[node], result) for node, result in based.items()}
    if not ctx.check:
        with Ledger.open(paths.database) as ledger:
            for notes in (old, _made(looked), _made(based)):
                keep(ledger, notes)
    then = provision(ctx, [node for node in nodes if _goes_on(found[node])])
    return found | {node: _then(found[node], result) for node, result in then.items()}


def _goes_on(result: NodeResult) -> bool:
    return result.outcome.value in CONTINUES


def _of_before(ledger: Ledger, noted: Notes) -> Notes:
    """Return the notes that a ledger of an earlier release has as reasons only, where there is none of today.

    Such a reason may be carried on already: its day is that of the record.
    """
    out: dict[str, dict[NodeState, StateNote]] = {}
    for node, known in noted.items():
        missing = [state for state in _CARRIED if state not in known]
        rows = [row for row in history(ledger, node) if row.state in missing] if missing else []
        newest = {row.state: row for row in rows}
        out[node] = {state: StateNote(row.reason, row.at) for state, row in newest.items() if row.reason}
    return out


def _carried(notes: Mapping[NodeState, StateNote]) -> NodeResult:
    """Return the result of a node that is not looked at: its notes, with the days on which they were made."""
    words = {}
    for state in _CARRIED:
        note = notes.get(state)
        day = "" if note is None else time.strftime("%Y-%m-%d", time.gmtime(note.at))
        words[state.value] = f"as on {day}: {note.text}" if note is not None and note.text else _NOT_DONE
    return NodeResult(Outcome.PASS, data={REACHED: words}, touched=False)


def _made(results: Results) -> Notes:
    """Return the notes that a look made, on the states that are carried on."""
    now = time.time()
    return {
        node: {
            NodeState(state): StateNote(str(text), now)
            for state, text in result.data.get(REACHED, {}).items()
            if NodeState(state) in _CARRIED
        }
        for node, result in results.items()
    }


def _then(first: NodeResult, then: NodeResult) -> NodeResult:
    """Return the later result with the notes and changes of the one before it."""
    notes = first.data.get(REACHED, {}) | then.data.get(REACHED, {})
    data = {**then.data, REACHED: notes}
    if first.changed:
        data["changes"] = [*first.data.get("changes", []), *then.data.get("changes", [])]
    return replace(
        then, changed=first.changed or then.changed, touched=first.touched or then.touched or first.changed, data=data
    )
