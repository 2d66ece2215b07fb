"""The result of a campaign: a row per node, and the exit code."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

from rackready.ledger.store import Ledger, NodeRow
from rackready.model.outcome import CONTINUES
from rackready.model.state import NodeState

_OPTIONAL = frozenset({"plan", "findings"})


@dataclass(frozen=True, slots=True)
class NodeSummary:
    """One node at the end of a campaign."""

    name: str
    state: str
    phase: str
    outcome: str
    changed: bool
    reason: str
    plan: dict[str, Any] | None = None
    """Phase -> what a dry run of it would do with the node, for phases that plan node by node: fabric, validate."""
    findings: list[dict[str, Any]] | None = None
    """What its last phase found, with codes, where no gate did (``model.phase.FINDINGS``)."""

    def plain(self) -> dict[str, Any]:
        """Return it as JSON types, plan and findings only where there are some."""
        return {key: value for key, value in asdict(self).items() if key not in _OPTIONAL or value is not None}


def summarise(ledger: Ledger, nodes: list[str], results: dict[str, dict[str, Any]]) -> list[NodeSummary]:
    """Return a row for every node that the campaign was asked for, those that it did not reach included."""
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
        out.append(
            NodeSummary(
                node,
                state.value,
                result["phase"],
                result["outcome"],
                bool(result["changed"]),
                reason,
                result.get("plan"),
                result.get("findings"),
            )
        )
    return out


def _not_come_to(row: NodeRow | None) -> str:
    """Return the words about a node that was not reached. Its reason may show that an earlier wave drained it."""
    words = "the campaign did not reach this node"
    return f"{words}; {row.reason}" if row is not None and row.reason else words


def exit_code(rows: list[NodeSummary], stopped: str = "") -> int:
    """Return 0 when every node came through, 1 when any did not or the campaign ended early."""
    return 0 if rows and not stopped and all(row.outcome in CONTINUES for row in rows) else 1


def document(
    campaign: str,
    rows: list[NodeSummary],
    *,
    seconds: float,
    resumed: bool,
    drained: tuple[str, ...] = (),
    stopped: str = "",
) -> dict[str, Any]:
    """Return the JSON document of a finished campaign.

    ``drained``: nodes in quarantine that the scheduler offered when it began. ``stopped``: why it ended before its last
    wave, "" if it did not.
    """
    return {
        "campaign": campaign,
        "resumed": resumed,
        "stopped": stopped,
        "seconds": round(seconds, 1),
        "drained": list(drained),
        "changed": sorted(row.name for row in rows if row.changed),
        "nodes": [row.plain() for row in rows],
        "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
