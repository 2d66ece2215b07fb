"""Certifies nodes: present fingerprint and evidence, policy, signature."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from rackready.design.check_gates import today
from rackready.design.facts import desired_digest
from rackready.design.pinned import site_of
from rackready.evidence.store import EvidenceStore
from rackready.gates.engine.stage_state import Kept
from rackready.gates.engine.validate import connect
from rackready.gates.records.damaged import set_aside
from rackready.gates.records.fingerprint import gather
from rackready.handover.certificate import issue, read, require, statement
from rackready.handover.keys import Keys, keys_of
from rackready.handover.policy import Decision, Moment, decide
from rackready.handover.read_only_gates import counting_verdicts, look, to_load, unseen
from rackready.handover.read_only_gates import fingerprints as seen_now
from rackready.handover.record_digests import changed_between
from rackready.handover.returned import kept_out
from rackready.ledger.part_history import void_since
from rackready.ledger.store import Ledger
from rackready.model.evidence import COVERAGE, EvidenceRecord, Fingerprint
from rackready.model.outcome import Finding, Outcome
from rackready.model.phase import UNTOUCHED, NodeResult, PhaseContext
from rackready.model.problems import RackreadyError
from rackready.model.profile import GateSetEntry
from rackready.model.site import Site
from rackready.paths import EnvPaths
from rackready.profiles import loader


def fingerprints(site: Site, paths: EnvPaths, nodes: list[str]) -> dict[str, Fingerprint | Finding]:
    """Return every node's present fingerprint, or why it cannot be read."""
    with connect(site, paths, nodes) as (connection, _launcher):
        return dict(gather(connection, site, nodes))


def run_certify(ctx: PhaseContext, nodes: list[str]) -> dict[str, NodeResult]:
    """Give every node that policy allows a signed certificate, and return a result per node.

    An error of one node stops no other. A node that this campaign has not looked at is looked at first. Raises
    Interrupted when the operator stops.
    """
    site = site_of(ctx)
    paths = EnvPaths(ctx.root, ctx.env)
    found, parts = (fingerprints(site, paths, nodes), {}) if ctx.check else seen_now(ctx, site, nodes)
    with Ledger.open(paths.database) as ledger:
        store = EvidenceStore.read_only(ledger, paths.raw)
        desk = Desk(ctx, site, paths, ledger, store)
        out = {
            node: NodeResult(Outcome.ERROR, str(item))
            for node, item in [*found.items(), *parts.items()]
            if isinstance(item, Finding)
        }
        able = {node: item for node, item in found.items() if node not in out and isinstance(item, Fingerprint)}
        seen = {} if ctx.check else look(ctx, desk.unseen(able))
        out |= {node: result for node, result in seen.items() if result.outcome is not Outcome.PASS}
        out |= {node: _tried(desk, node, item) for node, item in able.items() if node not in out}
        if not ctx.check:
            set_aside(store, ledger, ctx.campaign, "certify")
        return out


def _tried(desk: Desk, node: str, found: Fingerprint) -> NodeResult:
    """Return a node's result, an error of its own included. Where its certificate still counts, it stays on offer."""
    try:
        return desk.certify(node, found)
    except (RackreadyError, OSError) as error:
        why = str(error) if isinstance(error, RackreadyError) else f"{node}: certificate: {error}"
    try:
        require(keys_of(desk.site, desk.paths), node, found)
    except (RackreadyError, OSError):
        return NodeResult(Outcome.ERROR, why)
    text = f"{why} Its certificate on file still counts, so it stays as it is."
    return NodeResult(Outcome.ERROR, text, data={UNTOUCHED: True}, touched=False)


@dataclass(frozen=True, slots=True)
class Desk:
    """Makes and verifies certificates, with everything that this takes."""

    ctx: PhaseContext
    site: Site
    paths: EnvPaths
    ledger: Ledger
    store: EvidenceStore

    def unseen(self, found: Mapping[str, Fingerprint]) -> Kept:
        """Return the nodes that need a look and nothing more, each with the verdicts that count."""
        out = {}
        for node, item in found.items():
            decision, records = self.decided(node, item)
            if unseen(decision) and not to_load(entries(self.site), decision):
                out[node] = counting_verdicts(records, decision)
        return out

    def decided(self, node: str, found: Fingerprint) -> tuple[Decision, dict[str, EvidenceRecord]]:
        """Return the policy's decision about a node now, and the evidence for it.

        A dry run looks at nothing: there an earlier look is enough.
        """
        campaign = "" if self.ctx.check else self.ctx.campaign
        (changed, before), voids = self.ledger.last_change(node), void_since(self.ledger, node)
        moment = Moment(time.time(), found.boot_id, changed, campaign, before=before, voids=voids)
        records = self.store.valid(node, desired_digest(self.site, node), found, moment.changed, moment.before)
        return decide(node, entries(self.site), records, self.site.gates.skipped(node, today()), moment), records

    def certify(self, node: str, found: Fingerprint) -> NodeResult:
        """Give a node its certificate when policy allows it."""
        if kept := kept_out(self.ledger, node, found):
            return NodeResult(Outcome.FAIL, str(kept))
        decision, records = self.decided(node, found)
        if not decision.allowed:
            return NodeResult(Outcome.FAIL, "; ".join(decision.refusals))
        if self.ctx.check:
            return NodeResult(Outcome.PASS, _words(decision, "would be certified"))
        about = {"site": self.site.name, "gateSet": self.site.gates.set, "campaign": self.ctx.campaign}
        digests = self.store.digests([record.id for record in records.values()])
        content = statement(decision, found, records, about=about, issued=datetime.now(UTC), digests=digests)
        keys = keys_of(self.site, self.paths)
        if changed := self._changed(keys, content):
            return NodeResult(Outcome.ERROR, "; ".join(changed))
        made = issue(keys, content)
        words = _words(decision, "certified" if made.new else "certificate still counts")
        if made.voided:
            words = f"{words}; made again, since the one on file did not count: {made.voided}"
        return NodeResult(Outcome.PASS, words, made.new, {"certificate": str(made.path)})

    @staticmethod
    def _changed(keys: Keys, content: Mapping[str, Any]) -> list[str]:
        """Return the records that differ from those of the certificate on file, if that can be read."""
        try:
            before = read(keys, content["subject"][0]["name"]).statement
        except RackreadyError:  # none, or damaged: `issue` tells
            return []
        return changed_between(before, content)


def entries(site: Site) -> list[GateSetEntry]:
    """Return the gates that decide: the site's set, and coverage."""
    return [*loader.gates_of(site.gates), GateSetEntry.model_validate({"id": COVERAGE})]


def _words(decision: Decision, verb: str) -> str:
    skips = [f"declared skip of {gate}: {reason}" for gate, reason in sorted(decision.skips.items())]
    return "; ".join(
        [f"{verb}: {len(decision.passed)} gates passed", *skips, *(f"advisory: {text}" for text in decision.advisory)]
    )
