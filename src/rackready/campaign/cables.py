"""The cabling check as a part of the fabric phase: its progress, and the nodes that do not go on."""

from __future__ import annotations

from dataclasses import replace

from rackready.campaign.drained_phase import Results
from rackready.drivers.switch.cabling import check_cabling
from rackready.ledger.store import Ledger
from rackready.model.phase import NodeResult, PhaseContext
from rackready.paths import EnvPaths

_PHASE = "fabric"


def wrong_cables(ctx: PhaseContext, nodes: list[str]) -> Results:
    """Return the nodes with wrong cables -> why they do not go on. What only needs a look is told as a warning."""
    if not nodes:
        return {}
    with Ledger.open(EnvPaths(ctx.root, ctx.env).database) as ledger:
        found = check_cabling(ctx, nodes, lambda node, text: ledger.event(ctx.campaign, node, _PHASE, text))
        for node, notes in found.notes.items():
            for note in notes:
                ledger.event(ctx.campaign, node, _PHASE, note, "warn")
    return {node: found.result(node) for node in found.findings}


def beside(wrong: NodeResult, before: NodeResult) -> NodeResult:
    """Return the result of a node with wrong cables; what was done to it before stays in it."""
    return replace(wrong, changed=before.changed, data=before.data | wrong.data)
