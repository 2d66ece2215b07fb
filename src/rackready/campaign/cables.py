"""The cabling check as a part of the fabric phase: its progress, and the nodes that do not go on."""

from __future__ import annotations

from dataclasses import replace

from rackready.campaign.drained_phase import Results
from rackready.drivers.switch.cabling import ONE_END, check_cabling
from rackready.ledger.store import Ledger
from rackready.model.outcome import Outcome
from rackready.model.phase import NodeResult, PhaseContext
from rackready.paths import EnvPaths

_PHASE = "fabric"


def wrong_cables(ctx: PhaseContext, nodes: list[str]) -> Results:
    """Return the nodes with wrong cables -> why they do not go on. What only needs a look is told as a warning.

    A node whose cables are right is in it, as a pass, where one end alone told of some of them.
    """
    if not nodes:
        return {}
    with Ledger.open(EnvPaths(ctx.root, ctx.env).database) as ledger:
        found = check_cabling(ctx, nodes, lambda node, text: ledger.event(ctx.campaign, node, _PHASE, text))
        for node, notes in found.notes.items():
            for note in notes:
                ledger.event(ctx.campaign, node, _PHASE, note, "warn")
    return {node: found.result(node) for node in {**found.findings, **found.one_end}}


def beside(cabling: NodeResult, before: NodeResult) -> NodeResult:
    """Return the result of a node with wrong cables; what was done to it before stays in it.

    Right cables change nothing but the data.
    """
    data = before.data | cabling.data
    return (
        replace(before, data=data)
        if cabling.outcome is Outcome.PASS
        else replace(cabling, changed=before.changed, data=data)
    )


def with_ends(result: NodeResult, before: NodeResult) -> NodeResult:
    """Return a later result that also tells which cables were read at one end only."""
    ends = before.data.get(ONE_END)
    if not ends or ONE_END in result.data:
        return result
    return replace(result, message=f"{result.message}; {'; '.join(ends)}", data=result.data | {ONE_END: ends})
