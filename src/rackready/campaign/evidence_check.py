"""Validates where valid evidence is missing, and only there: what was measured on this very node, as it is now, counts on."""

from __future__ import annotations

from collections.abc import Mapping

from rackready.design.facts import desired_digest
from rackready.design.site import load_site
from rackready.evidence.store import EvidenceStore
from rackready.gates.phase import run_gates
from rackready.gates.registry import gate
from rackready.handover.certify import entries, fingerprints
from rackready.handover.phase import hold_nodes, run_handover
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
    """Run the gate set on the nodes whose evidence is missing or void; the others pass with the words that say why.

    A node that failed as it is now is not measured again: measuring until it passes would launder a fault.
    """
    site = load_site(ctx.env, root=ctx.root)
    paths = EnvPaths(ctx.root, ctx.env)
    prints = fingerprints(site, paths, nodes)
    ledger = Ledger.open(paths.database)
    try:
        out = {node: failed for node in nodes if (failed := _failed_already(site, paths, ledger, node, prints[node]))}
        lacking = {node: why for node in nodes if node not in out and (why := missing(site, paths, ledger, node, prints[node]))}
        for node, why in lacking.items():
            ledger.event(ctx.campaign, node, "validate", f"to be measured: {why}")
        partners = _partners(site, ledger, [node for node in nodes if node not in out], lacking)
        ready = {row.name for row in ledger.states() if row.state is NodeState.READY}
    finally:
        ledger.close()
    out |= {
        node: NodeResult(Outcome.PASS, "evidence of this very node still counts: nothing was measured again") for node in nodes if node not in lacking | out
    }
    if not lacking:
        return out
    out |= _hold(ctx, [node for node in lacking if node in ready], "is measured again")
    lent = [node for node in partners if node in ready]
    unheld = _hold(ctx, lent, f"partner in the measurement of {', '.join(lacking)}")
    out |= run_gates(ctx, [node for node in lacking if node not in out], partners=[node for node in partners if node not in unheld])
    if lent:
        run_handover(ctx, lent)
    return out


def _hold(ctx: PhaseContext, nodes: list[str], reason: str) -> dict[str, NodeResult]:
    """Take nodes out of production before they are measured. Returns those for which that did not work: they are left alone."""
    held = hold_nodes(ctx, nodes, dict.fromkeys(nodes, reason)) if nodes else {}
    return {node: result for node, result in held.items() if result.outcome is not Outcome.PASS}


def _failed_already(site: Site, paths: EnvPaths, ledger: Ledger, node: str, found: Fingerprint | Finding) -> NodeResult | None:
    """Return the fail that is on record for this very node, as it is now, since it was last changed or repaired."""
    if isinstance(found, Finding):
        return None
    records = EvidenceStore.read_only(ledger, paths.raw).valid(node, desired_digest(site, node), found)
    since = ledger.last_change(node)
    for entry in entries(site):
        record = records.get(entry.id)
        if entry.required and record is not None and record.verdict.outcome is Outcome.FAIL and record.started.timestamp() >= since:
            text = str(record.verdict.findings[0]) if record.verdict.findings else f"{node}: {entry.id} failed"
            return NodeResult(Outcome.FAIL, f"{text} (measured before and not again: when it is repaired, `rackready repair {node} --reason '...'`)")
    return None


def missing(site: Site, paths: EnvPaths, ledger: Ledger, node: str, found: Fingerprint | Finding) -> str:
    """Return why a node must be measured (empty when its evidence is complete and counts): what handover would object to."""
    if isinstance(found, Finding):
        return f"what it is could not be read ({found})"
    records = EvidenceStore.read_only(ledger, paths.raw).valid(node, desired_digest(site, node), found)
    decision = decide(node, entries(site), records, declared_skips(site.gates.skip, node), not_before=ledger.last_change(node))
    return decision.refusals[0] if decision.refusals else ""


def _partners(site: Site, ledger: Ledger, nodes: list[str], lacking: Mapping[str, str]) -> list[str]:
    """Choose who serves as the other end when too few nodes are to be measured: rather one that carries no jobs yet."""
    ids = [entry.id for entry in loader.gate_set(site.gates.set).gates]
    wanted = max((gate(wanted_id, {}).min_nodes for wanted_id in ids), default=1) - len(lacking)
    if not lacking or wanted <= 0:
        return []
    states = {row.name: row.state for row in ledger.states()}
    return sorted((node for node in nodes if node not in lacking), key=lambda node: states.get(node) is NodeState.READY)[:wanted]
