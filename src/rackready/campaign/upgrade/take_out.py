"""The phase before an upgrade's install: nodes are drained, and their version set is recorded.

A node on which jobs run is waited for, never interrupted. One that keeps its jobs, or that somebody else drained, is
left out: its set stays as it was. So do the other nodes of its NVLink domain, which have one driver.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from rackready.campaign.upgrade.order import units
from rackready.design.handover_of import HandoverView
from rackready.design.node_sets import NodeSet, choice_of
from rackready.design.pinned import site_of
from rackready.design.site import load_site
from rackready.drivers.scheduler.base import UnknownNodeError
from rackready.drivers.scheduler.places import places
from rackready.drivers.scheduler.registry import adapter_for
from rackready.handover.production import in_production, take_out
from rackready.ledger.node_sets import assign, assigned
from rackready.ledger.store import Ledger
from rackready.model.outcome import Outcome
from rackready.model.phase import DRAINED, TOGETHER, UNTOUCHED, NodeResult, PhaseContext
from rackready.model.problems import Message, RackreadyError
from rackready.model.site import FileHandover, Site
from rackready.model.state import NodeState
from rackready.model.upgrade import SetChoice
from rackready.paths import EnvPaths

PHASE = "take-out"


def run_take_out(ctx: PhaseContext, nodes: list[str]) -> dict[str, NodeResult]:
    """Drain the nodes that are in production, then record the set that this campaign's site gives each. No node raises.

    A node that is ready with that set already stays as it is: a killed run had brought it there.
    """
    site, paths = site_of(ctx), EnvPaths(ctx.root, ctx.env)
    written = load_site(ctx.env, root=ctx.root, written=True)
    wanted = {node: choice_of(site, node) for node in nodes}
    out: dict[str, NodeResult] = {}
    with Ledger.open(paths.database) as ledger:
        there = _there(ledger, wanted)
        left = [node for node in nodes if node not in there]
        out |= {node: NodeResult(Outcome.PASS, f"{node}: ready with {wanted[node]}", touched=False) for node in there}
        if ctx.check:
            return out | {node: NodeResult(Outcome.PASS, touched=False) for node in left}
        out |= _of_others(ctx, ledger, left)
        busy, unknown = in_production(ctx, [node for node in left if node not in out])
        out |= unknown
        kept = take_out(ctx, {node: f"upgrade: moves to {wanted[node]}" for node in busy})
        out |= kept
        sets = {name: found.now for name, found in assigned(ledger).items()}
        moving = [node for node in left if node not in out and sets.get(node, choice_of(written, node)) != wanted[node]]
        out |= _together(site, moving, out, busy)
        for node in left:
            if node not in out:
                assign(ledger, paths, node, NodeSet(wanted[node], choice_of(written, node)))
                out[node] = NodeResult(Outcome.PASS, f"{node}: empty; its set is {wanted[node]}", touched=False)
    return out


def _together(
    site: Site, moving: Collection[str], out: Mapping[str, NodeResult], drained: Collection[str]
) -> dict[str, NodeResult]:
    """Return the nodes that keep their set because another one of their NVLink domain does: it has one driver."""
    found: dict[str, NodeResult] = {}
    for unit in units(site):
        behind = next((node for node in unit if node in out and out[node].outcome is not Outcome.PASS), "")
        for node in unit if behind else ():
            if node in moving:
                step = f"It keeps its set. Run with --failed-only when {behind} can go."
                expected = "taken out together: their drivers must be the same"
                text = str(Message(node, "nodes of its NVLink domain", expected, f"{behind} stays", step))
                data = {TOGETHER: behind, DRAINED if node in drained else UNTOUCHED: True}
                found[node] = NodeResult(Outcome.ERROR, text, data=data, touched=False)
    return found


def _there(ledger: Ledger, wanted: Mapping[str, SetChoice]) -> set[str]:
    ready = {row.name for row in ledger.states() if row.state is NodeState.READY}
    return {node for node, found in assigned(ledger).items() if node in ready and wanted.get(node) == found.now}


def _of_others(ctx: PhaseContext, ledger: Ledger, nodes: list[str]) -> dict[str, NodeResult]:
    """Return the nodes that somebody else drained, also where they were handed over before: they are not ours."""
    out: dict[str, NodeResult] = {}
    for view in places(site_of(ctx), ledger, nodes):
        if not isinstance(view.site.handover, FileHandover):
            out |= _of_others_in(view, EnvPaths(ctx.root, ctx.env))
    return out


def _of_others_in(view: HandoverView, paths: EnvPaths) -> dict[str, NodeResult]:
    out: dict[str, NodeResult] = {}
    try:
        with adapter_for(view.site, paths) as adapter:
            for node in view.nodes:
                try:
                    now = adapter.show(node)
                except UnknownNodeError:
                    continue
                if now.drained and not now.ours:
                    step = "It was left out. Ask who drained it, release it, then run with --failed-only."
                    actual = f"{now.reason or 'no reason'}{f', by {now.by}' if now.by else ''}"
                    text = str(Message(node, "drained by somebody else", "offered, or drained by us", actual, step))
                    out[node] = NodeResult(Outcome.ERROR, text, data={UNTOUCHED: True}, touched=False)
    except RackreadyError as error:
        found = NodeResult(Outcome.ERROR, str(error), data={UNTOUCHED: True}, touched=False)
        return {node: replace(found) for node in view.nodes}
    return out
