"""Before a node is offered: no other scheduler of the site may offer it, and none may still run its jobs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial

from rackready.design.handover_of import HandoverView, handover_site, handover_views, part_of, place_of
from rackready.drivers.ansible import run_playbook
from rackready.drivers.scheduler.base import SchedulerNode, UnknownNodeError
from rackready.drivers.scheduler.look import look_at_all
from rackready.drivers.scheduler.places import handed_to, moved, stranded
from rackready.drivers.scheduler.registry import adapter_for, reader_for
from rackready.handover.offer import ASK_S
from rackready.handover.production import changes_words, not_told, still_there, take_out
from rackready.handover.run import drain_nodes
from rackready.ledger.store import Ledger
from rackready.model.outcome import CONTINUES, Outcome
from rackready.model.phase import UNTOUCHED, NodeResult, PhaseContext
from rackready.model.problems import Message, RackreadyError, quoted
from rackready.model.several import SeveralHandover
from rackready.model.site import Site
from rackready.paths import EnvPaths

PHASE = "handover"
INSTALL = "install.yml"


def clear_elsewhere(ctx: PhaseContext, site: Site, paths: EnvPaths, nodes: Sequence[str]) -> dict[str, NodeResult]:
    """Drain nodes in the schedulers that they were handed over to before, and return those that cannot be offered.

    A node that rackready never handed over is only looked at: what others let run there stays. A dry run drains
    nothing, and returns what would be drained.
    """
    with Ledger.open(paths.database) as ledger:
        lost = {node: why for node in nodes if (why := stranded(site, ledger, node)) is not None}
        out = {node: _stays(str(why)) for node, why in lost.items()}
        if not isinstance(site.handover, SeveralHandover):
            return out
        rest = [node for node in nodes if node not in out]
        before = moved(site, ledger, rest)
        records = {node: handed_to(ledger, node) for node in rest}
    fresh = [node for node, record in records.items() if record is None]
    out |= _unprepared(ctx, site, before, {node for node, record in records.items() if record and record.place})
    before = [HandoverView(view.site, tuple(node for node in view.nodes if node not in out)) for view in before]
    return out | _moved(ctx, site, paths, before) | _offered_elsewhere(ctx, site, paths, fresh)


def _unprepared(
    ctx: PhaseContext, site: Site, before: Sequence[HandoverView], known: Collection[str]
) -> dict[str, NodeResult]:
    """Return the nodes that install did not prepare for their new kind of scheduler; they stay where they are.

    Kubernetes needs another containerd than Slurm, and no certificate tells: a dry run of install does. ``known``:
    nodes of which the ledger has the former scheduler.
    """
    kinds = {node: view.site.handover.kind for view in before for node in view.nodes if node in known}
    to = {node: handover_site(site, node) for node in kinds}
    nodes = [node for node, kind in kinds.items() if to[node].handover.kind != kind]
    looked = run_playbook(replace(ctx, check=True), INSTALL, nodes) if nodes else {}
    out = {}
    for node, result in looked.items():
        if result.outcome in CONTINUES and not result.changed:
            continue
        found = result.data.get("differs") or result.data.get("changes") or ["something that its dry run does not name"]
        words = changes_words("install", [str(item) for item in found])
        message = Message(
            node,
            f"install for {to[node].handover.kind}",
            expected=f"done, before it leaves {kinds[node]}",
            actual=words if result.outcome in CONTINUES else f"its dry run failed: {quoted(result.message)}",
            next_step=f"Nothing was changed. Run `rackready deploy --env {ctx.env} --limit {node}`: it installs first.",
        )
        out[node] = _stays(str(message))
    return out


def _moved(ctx: PhaseContext, site: Site, paths: EnvPaths, before: Sequence[HandoverView]) -> dict[str, NodeResult]:
    busy, unknown = still_there(before, paths)
    bad = {node: not_told(node, error) for node, error in unknown.items()}
    there = [HandoverView(view.site, tuple(node for node in view.nodes if node in busy)) for view in before]
    reasons = {
        node: f"moves from part {view.called} to part {part_of(site, node)}" for view in there for node in view.nodes
    }
    if not ctx.check:
        kept = take_out(ctx, reasons, views=there)
        drain_nodes(ctx, list(kept), {node: reasons[node] for node in kept})  # in its own, too: it may be on offer
        return bad | kept
    would = {
        node: NodeResult(Outcome.PASS, f"{node}: would be drained first, then released: {reason}")
        for node, reason in reasons.items()
    }
    return bad | would


def _offered_elsewhere(ctx: PhaseContext, site: Site, paths: EnvPaths, nodes: Sequence[str]) -> dict[str, NodeResult]:
    """Return the nodes that another scheduler of the site offers, though rackready never handed them over to it."""
    if not nodes:
        return {}
    connect = reader_for if ctx.check else adapter_for
    views = {view.called: view for view in handover_views(site)}
    asked = {
        called: (partial(connect, view.site, paths), [node for node in nodes if node not in view.nodes])
        for called, view in views.items()
    }
    out: dict[str, NodeResult] = {}
    for called, answers in look_at_all({name: way for name, way in asked.items() if way[1]}, ASK_S).items():
        here = f"part {called} ({place_of(views[called].site)})"
        for node, answer in answers.items():
            if isinstance(answer, SchedulerNode) and answer.on_offer:
                out[node] = NodeResult(Outcome.ERROR, str(_twice(site, node, here, answer.state)))
            elif isinstance(answer, RackreadyError) and not isinstance(answer, UnknownNodeError):
                text = f"{here} did not tell whether it offers the node: {answer}"
                with Ledger.open(paths.database) as ledger:
                    ledger.event(ctx.campaign, node, PHASE, text, "warn")
    return out


def _twice(site: Site, node: str, here: str, state: str) -> Message:
    own = handover_site(site, node)
    return Message(
        node,
        f"offered by {here}",
        expected=f"offered by its own part {part_of(own)} ({place_of(own)}) only",
        actual=state,
        next_step="It was not offered. Drain it there or take it out of that cluster; or name it in that part.",
    )


def _stays(text: str) -> NodeResult:
    return NodeResult(Outcome.ERROR, text, data={UNTOUCHED: True}, touched=False)
