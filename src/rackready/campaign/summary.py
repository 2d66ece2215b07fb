"""What a campaign came to: a row per node, and the exit code that says it honestly."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

from rackready.ledger.store import Ledger, NodeRow
from rackready.model.outcome import CONTINUES
from rackready.model.state import NodeState


@dataclass(frozen=True, slots=True)
class NodeSummary:
    """One node at the end of a campaign."""

    name: str
    state: str
    phase: str
    outcome: str
    changed: bool
    reason: str


def summarise(ledger: Ledger, nodes: list[str], results: dict[str, dict[str, Any]]) -> list[NodeSummary]:
    """Return a row for every node that the campaign was asked for: also for those it never came to."""
    states = {row.name: row for row in ledger.states()}
    out = []
    for node in nodes:
        row = states.get(node)
        result = results.get(node) or {
            "outcome": "not_run",
            "message": _not_come_to(row),
            "changed": False,
            "phase": "",
        }
        state = row.state if row else NodeState.DECLARED
        good = result["outcome"] in CONTINUES
        reason = (
            ""
            if good
            else (row.reason if row and row.reason and row.state is NodeState.QUARANTINED else result["message"])
        )
        out.append(NodeSummary(node, state.value, result["phase"], result["outcome"], bool(result["changed"]), reason))
    return out


def _not_come_to(row: NodeRow | None) -> str:
    """Say what is on record of a node that was not reached: an earlier wave may have taken it out of production."""
    words = "the campaign did not come to this node"
    return f"{words}; {row.reason}" if row is not None and row.reason else words


def exit_code(rows: list[NodeSummary]) -> int:
    """0 when every node went through; 1 when any did not."""
    return 0 if rows and all(row.outcome in CONTINUES for row in rows) else 1


def document(
    campaign: str, rows: list[NodeSummary], *, seconds: float, resumed: bool, drained: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Return the JSON document of a finished campaign. ``drained``: nodes in quarantine that the scheduler offered when it began."""
    return {
        "campaign": campaign,
        "resumed": resumed,
        "seconds": round(seconds, 1),
        "drained": list(drained),
        "changed": sorted(row.name for row in rows if row.changed),
        "nodes": [asdict(row) for row in rows],
        "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
