"""The validate phase: looks at every node, and measures under load where valid evidence is missing, and only there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rackready.campaign.drained_phase import Results
from rackready.campaign.drift.applied import tuned
from rackready.campaign.evidence_plan import EvidencePlan, EvidenceReadings, EvidenceStep, dry_results, plan
from rackready.campaign.evidence_reader import on_record, tell, with_production
from rackready.design.pinned import site_of
from rackready.gates.engine.validate import run_gates
from rackready.handover.production import take_out
from rackready.handover.read_only_gates import look, look_after, look_first, looking
from rackready.handover.run import run_handover
from rackready.ledger.store import Ledger
from rackready.model.outcome import Outcome
from rackready.model.phase import PhaseContext
from rackready.model.site import Site
from rackready.model.state import NodeState
from rackready.paths import EnvPaths


def run_where_needed(ctx: PhaseContext, nodes: list[str]) -> Results:
    """Look at all nodes, plan, and carry the plan out. A dry run shows the plan and looks at nothing.

    Looks come before the plan: they disturb no job, and a node whose look does not pass is no partner. A node with a
    fail on record is not measured again: re-measuring until it passes would hide a fault. A node in production is
    drained before it is loaded, and so is a partner. A node that keeps its jobs is left alone. Nodes beside the
    campaign (``ctx.beside``) are looked at and may serve as partners; they have no result.
    """
    site = site_of(ctx)
    return _run(ctx, site, on_record(ctx, site, nodes), nodes)


def run_before_optimize(ctx: PhaseContext, nodes: list[str]) -> Results:
    """Do the same, but load no node that a later phase of the campaign optimizes for the first time.

    That changes the node, so everything would be measured twice. Such nodes are only looked at. If one of the nodes to
    be measured was optimized before, all are measured: it may need the others as partners.
    """
    site = site_of(ctx)
    seen = on_record(ctx, site, nodes)
    due = [item.node for item in seen.at(EvidenceStep.MEASURE)]
    first = due and "optimize" in ctx.phases and not tuned(ctx, due)
    if first and all(looking(site, node) for node in due):
        seen = replace(seen, later=True, min_nodes={})
    return _run(ctx, site, seen, nodes)


def _run(ctx: PhaseContext, site: Site, seen: EvidenceReadings, nodes: list[str]) -> Results:
    if not seen.later:
        tell(ctx, {item.node: f"to be measured: {item.why}" for item in seen.at(EvidenceStep.MEASURE)})
    if not ctx.check:
        looked = look(ctx, {item.node: item.kept for item in seen.at(EvidenceStep.LOOK)})
        early = {item.node: item.kept for item in seen.at(EvidenceStep.MEASURE)} if seen.later else {}
        seen = replace(seen, looked=looked | look_first(ctx, site, early))
        tell(ctx, _unfit(ctx, looked), "warn")
    found = plan(with_production(ctx, site, seen))
    out = dry_results(found) if ctx.check else _carry_out(ctx, site, found)
    return {node: result for node, result in out.items() if node in nodes}


def _unfit(ctx: PhaseContext, looked: Results) -> dict[str, str]:
    """Return the nodes beside the campaign whose look did not pass: the next deploy of them acts on it."""
    bad = {node: result for node, result in looked.items() if node in ctx.beside and result.outcome is not Outcome.PASS}
    return {node: f"does not serve as a partner: {result.message}" for node, result in bad.items()}


def _carry_out(ctx: PhaseContext, site: Site, found: EvidencePlan) -> Results:
    """Drain, measure, and hand over again all partners that were lent, by this run or by one that was killed."""
    borrowed = list(found.give_back)
    try:
        kept = take_out(ctx, found.drain)
        work = found.after(kept)
        out = found.settled() | kept
        if not work.measure:
            return out
        borrowed += [node for node in work.lend if node not in borrowed]
        absent = work.absent | take_out(ctx, work.lend, partner_of=tuple(work.measure))
        tell(ctx, {node: f"does not serve as a partner: {result.message}" for node, result in absent.items()}, "warn")
        partners = [node for node in work.partners if node not in absent]
        out |= run_gates(ctx, list(work.measure), partners=partners, kept=work.measure)
        return out | look_after(ctx, site, [node for node in work.measure if out[node].outcome is Outcome.PASS])
    finally:
        _give_back(ctx, borrowed)


def _give_back(ctx: PhaseContext, borrowed: Sequence[str]) -> None:
    """Hand partners over again. A partner for which that does not work stays drained, and an event reports it."""
    if not borrowed:
        return
    with Ledger.open(EnvPaths(ctx.root, ctx.env).database) as ledger:
        for node, result in run_handover(ctx, list(borrowed)).items():
            if result.outcome is Outcome.PASS:
                ledger.set_state(node, NodeState.READY, phase="validate", campaign=ctx.campaign)
            else:
                text = f"served as a partner and could not be handed over again: {result.message}"
                ledger.event(ctx.campaign, node, "validate", text, "error")
