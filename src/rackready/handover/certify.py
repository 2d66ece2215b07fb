"""Certifying nodes: evidence and fingerprint of this moment, policy, signature."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime

from rackready.design.check_gates import today
from rackready.design.facts import desired_digest
from rackready.design.site import load_site
from rackready.evidence.store import EvidenceStore
from rackready.gates.damage import set_aside
from rackready.gates.fingerprint import gather
from rackready.gates.phase import connect
from rackready.handover.certificate import issue, statement
from rackready.handover.policy import Decision, Moment, decide
from rackready.ledger.store import Ledger
from rackready.model.evidence import COVERAGE, Fingerprint
from rackready.model.outcome import Finding, Outcome
from rackready.model.phase import NodeResult, PhaseContext
from rackready.model.profile import GateSetEntry
from rackready.model.site import Site
from rackready.paths import EnvPaths
from rackready.profiles import loader


def fingerprints(site: Site, paths: EnvPaths, nodes: list[str]) -> dict[str, Fingerprint | Finding]:
    """Return what every node is right now, or why that cannot be said."""
    with connect(site, paths, nodes) as (connection, _launcher):
        return dict(gather(connection, site, nodes))


def run_certify(ctx: PhaseContext, nodes: list[str]) -> dict[str, NodeResult]:
    """Give every node that policy lets through a signed certificate; a result per node, and no exception for one of them."""
    site = load_site(ctx.env, root=ctx.root)
    paths = EnvPaths(ctx.root, ctx.env)
    found = fingerprints(site, paths, nodes)
    ledger = Ledger.open(paths.database)
    try:
        store = EvidenceStore.read_only(ledger, paths.raw)
        desk = _Desk(ctx, site, paths, ledger, store)
        out = {node: desk.certify(node, found[node]) for node in nodes}
        if not ctx.check:
            set_aside(store, ledger, ctx.campaign, "certify")
        return out
    finally:
        ledger.close()


@dataclass(frozen=True, slots=True)
class _Desk:
    """Where certificates are made."""

    ctx: PhaseContext
    site: Site
    paths: EnvPaths
    ledger: Ledger
    store: EvidenceStore

    def certify(self, node: str, found: Fingerprint | Finding) -> NodeResult:
        if isinstance(found, Finding):
            return NodeResult(Outcome.ERROR, str(found))
        moment = Moment(time.time(), found.boot_id, self.ledger.last_change(node))
        records = self.store.valid(node, desired_digest(self.site, node), found, moment.changed)
        skips = self.site.gates.skipped(node, today())
        decision = decide(node, entries(self.site), records, skips, moment)
        if not decision.allowed:
            return NodeResult(Outcome.FAIL, "; ".join(decision.refusals))
        if self.ctx.check:
            return NodeResult(Outcome.PASS, _said(decision, "would be certified"))
        about = {"site": self.site.name, "gateSet": self.site.gates.set, "campaign": self.ctx.campaign}
        path, new = issue(self.paths, statement(decision, found, records, about=about, issued=datetime.now(UTC)))
        return NodeResult(Outcome.PASS, _said(decision, "certified" if new else "certificate still counts"), new, {"certificate": str(path)})


def entries(site: Site) -> list[GateSetEntry]:
    """Return the gates that decide: those of the site's set, and coverage."""
    return [*loader.gates_of(site.gates), GateSetEntry.model_validate({"id": COVERAGE})]


def _said(decision: Decision, verb: str) -> str:
    skips = [f"declared skip of {gate}: {reason}" for gate, reason in sorted(decision.skips.items())]
    return "; ".join([f"{verb}: {len(decision.passed)} gates passed", *skips, *(f"advisory: {text}" for text in decision.advisory)])
