"""Reads what the plan of the validate phase depends on: evidence, nodes in production, partners of a killed run."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

from rackready.campaign.evidence_plan import EvidenceReadings, EvidenceStep, NodeEvidence, candidates, possible_partners
from rackready.design.check_gates import today
from rackready.design.facts import desired_digest
from rackready.design.handover_of import by_scheduler, part_of
from rackready.drivers.scheduler.base import SchedulerAdapter, UnknownNodeError
from rackready.drivers.scheduler.places import DRAIN
from rackready.drivers.scheduler.registry import adapter_for
from rackready.evidence.record_precedence import failed_since
from rackready.evidence.store import EvidenceStore
from rackready.gates.engine.registry import gate
from rackready.gates.records.damaged import set_aside
from rackready.handover.certify import entries, fingerprints
from rackready.handover.partners import drained_as_partner, last_word
from rackready.handover.policy import Moment, decide
from rackready.handover.production import in_production
from rackready.handover.read_only_gates import counting_verdicts, to_load, unseen
from rackready.handover.read_only_gates import fingerprints as seen_now
from rackready.ledger.part_history import void_since
from rackready.ledger.store import Ledger, LedgerEntry
from rackready.model.evidence import EvidenceRecord, Fingerprint
from rackready.model.outcome import Finding, Outcome
from rackready.model.phase import NodeResult, PhaseContext
from rackready.model.problems import RackreadyError
from rackready.model.site import Site
from rackready.model.state import NodeState, at_least
from rackready.paths import EnvPaths
from rackready.profiles import loader


def on_record(ctx: PhaseContext, site: Site, nodes: list[str]) -> EvidenceReadings:
    """Return the evidence of each node, with the gates that are due; an error for each whose parts cannot be read.

    A node beside the campaign is among them only where it can be a partner: it is read, and its evidence counts.
    """
    paths = EnvPaths(ctx.root, ctx.env)
    beside = [node for node in ctx.beside if node not in nodes]
    everybody = [*nodes, *beside]
    prints, parts = (fingerprints(site, paths, everybody), {}) if ctx.check else seen_now(ctx, site, everybody)
    unreadable = {
        node: NodeResult(Outcome.ERROR, str(found)) for node, found in parts.items() if isinstance(found, Finding)
    }
    no_partner = {node: unreadable.pop(node).message for node in beside if node in unreadable}
    with Ledger.open(paths.database) as ledger:
        store = EvidenceStore.read_only(ledger, paths.raw)
        found = tuple(
            evidence_of(site, store, ledger, node, prints[node], campaign=ctx.campaign, again=ctx.again)
            for node in everybody
            if node not in unreadable and node not in no_partner
        )
        if not ctx.check:
            set_aside(store, ledger, ctx.campaign, "validate")
    fit = (EvidenceStep.KEEP, EvidenceStep.LOOK)
    no_partner |= {item.node: item.failed or item.why for item in found if item.node in beside and item.step not in fit}
    tell(ctx, {node: f"does not serve as a partner: {why}" for node, why in no_partner.items()}, "warn")
    found = tuple(item for item in found if item.node not in no_partner)
    seen = EvidenceReadings(found, unreadable, parts={node: part_of(site, node) for node in everybody})
    measured = seen.at(EvidenceStep.MEASURE)
    ids = [entry.id for entry in loader.gates_of(site.gates)]
    due = set[str]().union(*(item.due(ids) for item in measured))
    return replace(seen, min_nodes={name: gate(name, {}).min_nodes for name in sorted(due)})


def with_production(ctx: PhaseContext, site: Site, seen: EvidenceReadings) -> EvidenceReadings:
    """Return what was seen with the nodes in production, and the partners that a killed run left drained."""
    with Ledger.open(EnvPaths(ctx.root, ctx.env).database) as ledger:
        states = {row.name: row.state for row in ledger.states()}
    fit = candidates(seen)
    seen = replace(
        seen,
        ready=frozenset(node for node in fit if at_least(states.get(node, NodeState.DECLARED), NodeState.READY)),
        lent=tuple(lent_before(ctx, site, fit)),
    )
    loaded = [] if seen.later else [item.node for item in seen.at(EvidenceStep.MEASURE)]
    busy, unknown = in_production(ctx, loaded)
    seen = replace(seen, busy=frozenset(busy), unknown=unknown)
    also_busy, also_unknown = in_production(ctx, possible_partners(seen))
    return replace(seen, busy=seen.busy | {*also_busy}, unknown=unknown | also_unknown)


def evidence_of(  # noqa: PLR0913 - the record, and the node that it is about
    site: Site,
    store: EvidenceStore,
    ledger: Ledger,
    node: str,
    found: Fingerprint | Finding,
    *,
    campaign: str = "",
    again: bool = False,
) -> NodeEvidence:
    """Return a node's evidence: it is read once, and judged as handover judges it.

    ``campaign``: the one that must have run the gates that only read. With ``again`` nothing is kept, but a fail on
    record stays one.
    """
    if isinstance(found, Finding):
        return NodeEvidence(node, f"its fingerprint could not be read ({found})", {})
    (changed, before), voids = ledger.last_change(node), void_since(ledger, node)
    moment = Moment(time.time(), found.boot_id, changed, campaign, before=before, voids=voids)
    records = store.valid(node, desired_digest(site, node), found, moment.changed, before)
    failed = _failed(site, node, records, moment.changed, before)
    if again:
        return NodeEvidence(node, f"{node}: --again measures everything again", {}, failed)
    gates = entries(site)
    decision = decide(node, gates, records, site.gates.skipped(node, today()), moment)
    return NodeEvidence(
        node, to_load(gates, decision), counting_verdicts(records, decision), failed, unseen=unseen(decision)
    )


def _failed(site: Site, node: str, records: Mapping[str, EvidenceRecord], since: float, before: str) -> str:
    """Return the fail on record for the node as it is now, since its last change or repair, "" when there is none."""
    for entry in entries(site):
        record = records.get(entry.id)
        if entry.required and record is not None and failed_since(record, since, before):
            return str(record.verdict.findings[0]) if record.verdict.findings else f"{node}: {entry.id} failed"
    return ""


def lent_before(ctx: PhaseContext, site: Site, nodes: list[str]) -> list[str]:
    """Return the nodes that a killed run drained as partners and that are still drained for that.

    The scheduler is asked only about nodes that we drained after we released them, as far as the ledger knows.
    """
    paths = EnvPaths(ctx.root, ctx.env)
    with Ledger.open(paths.database) as ledger:
        last = {node: last_word(ledger.entries(node)) for node in nodes}
    drains = {node: entry for node, entry in last.items() if entry is not None and entry.operation == DRAIN}
    if not drains:
        return []
    lent = []
    for view in by_scheduler(site, drains):
        try:
            with adapter_for(view.site, paths) as adapter:
                lent += [node for node in view.nodes if _still_lent(adapter, drains[node])]
        except RackreadyError as error:
            text = f"the scheduler did not tell whether it is drained as a partner: {error}"
            tell(ctx, dict.fromkeys(view.nodes, text), "warn")
    return [node for node in drains if node in lent]


def _still_lent(adapter: SchedulerAdapter, drain: LedgerEntry) -> bool:
    """Return whether a node is still drained by this entry. One that its scheduler does not know any more is not."""
    try:
        return drained_as_partner(drain, adapter.show(drain.node))
    except UnknownNodeError:
        return False


def tell(ctx: PhaseContext, words: Mapping[str, str], level: str = "info") -> None:
    """Record a line of progress about each node."""
    with Ledger.open(EnvPaths(ctx.root, ctx.env).database) as ledger:
        for node, text in words.items():
            ledger.event(ctx.campaign, node, "validate", text, level)
