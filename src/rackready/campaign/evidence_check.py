"""Validates where valid evidence is missing, and only there: what was measured on this very node, as it is now, counts on."""

from __future__ import annotations

from collections.abc import Mapping

from rackready.design.facts import desired_digest
from rackready.design.site import load_site
from rackready.evidence.store import EvidenceStore
from rackready.gates.phase import run_gates
from rackready.gates.registry import gate
from rackready.handover.certify import entries, fingerprints
from rackready.handover.phase import hold_nodes
from rackready.handover.policy import decide, declared_skips
from rackready.ledger.store import Ledger
from rackready.model.evidence import Fingerprint
from rackready.model.outcome import Finding, Outcome
from rackready.model.phase import NodeResult, PhaseContext
from rackready.model.site import Site
from rackready.model.state import NodeState
from rackready.paths import EnvPaths
from rackready.profiles import loader


def run_where_needed(ctx: PhaseContext, nodes: list[str]) -> dict[str, NodeResult]:
    """Run the gate set on the nodes whose evidence is missing or void; the others pass with the words that say why."""
    site = load_site(ctx.env, root=ctx.root)
    paths = EnvPaths(ctx.root, ctx.env)
    prints = fingerprints(site, paths, nodes)
    ledger = Ledger.open(paths.database)
    try:
        lacking = {node: why for node in nodes if (why := missing(site, paths, ledger, node, prints[node]))}
        for node, why in lacking.items():
            ledger.event(ctx.campaign, node, "validate", f"to be measured: {why}")
        partners = _partners(ctx, site, ledger, nodes, lacking)
    finally:
        ledger.close()
    out = {node: NodeResult(Outcome.PASS, "evidence of this very node still counts: nothing was measured again") for node in nodes if node not in lacking}
    return out | (run_gates(ctx, list(lacking), partners=partners) if lacking else {})


def missing(site: Site, paths: EnvPaths, ledger: Ledger, node: str, found: Fingerprint | Finding) -> str:
    """Return why a node must be measured (empty when its evidence is complete and counts): what handover would object to."""
    if isinstance(found, Finding):
        return f"what it is could not be read ({found})"
    records = EvidenceStore.read_only(ledger, paths.raw).valid(node, desired_digest(site, node), found)
    changed = ledger.latest(node, "changed")
    decision = decide(node, entries(site), records, declared_skips(site.gates.skip, node), not_before=changed.begun if changed else 0.0)
    return decision.refusals[0] if decision.refusals else ""


def _partners(ctx: PhaseContext, site: Site, ledger: Ledger, nodes: list[str], lacking: Mapping[str, str]) -> list[str]:
    """Choose who serves as the other end when too few nodes are to be measured: rather one that carries no jobs yet.

    A partner that is in production is held first; the handover phase of the same campaign gives it back.
    """
    ids = [entry.id for entry in loader.gate_set(site.gates.set).gates]
    wanted = max((gate(wanted_id, {}).min_nodes for wanted_id in ids), default=1) - len(lacking)
    if not lacking or wanted <= 0:
        return []
    states = {row.name: row.state for row in ledger.states()}
    able = sorted((node for node in nodes if node not in lacking), key=lambda node: states.get(node) is NodeState.READY)
    chosen = able[:wanted]
    busy = [node for node in chosen if states.get(node) is NodeState.READY]
    if busy:
        hold_nodes(ctx, busy, dict.fromkeys(busy, f"partner in the measurement of {', '.join(lacking)}"))
    return chosen
