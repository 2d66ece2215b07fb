"""Validates: looks at every node anew, and measures under load where valid evidence is missing, and only there."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rackready.design.check_gates import today
from rackready.design.facts import desired_digest
from rackready.design.pinned import site_of
from rackready.drivers.scheduler.base import PREFIX
from rackready.drivers.scheduler.registry import adapter_for
from rackready.evidence.store import EvidenceStore
from rackready.gates.engine.registry import gate
from rackready.gates.engine.validate import run_gates
from rackready.gates.records.damaged import set_aside
from rackready.handover.certify import entries, fingerprints
from rackready.handover.look import fingerprints as seen_now
from rackready.handover.look import kept, look, to_load, unseen
from rackready.handover.policy import Moment, decide
from rackready.handover.production import in_production, take_out
from rackready.handover.run import DRAIN, RELEASE, run_handover
from rackready.ledger.store import Ledger
from rackready.model.evidence import EvidenceRecord, Fingerprint
from rackready.model.outcome import Finding, Outcome, Verdict
from rackready.model.phase import NodeResult, PhaseContext
from rackready.model.problems import RackreadyError
from rackready.model.site import Site
from rackready.model.state import NodeState, at_least
from rackready.paths import EnvPaths
from rackready.profiles import loader

_SEEN_BEFORE = "seen again by this run already: evidence of this very node still counts"
_WOULD_LOOK = "would be looked at anew; what was measured under load still counts"

_PARTNER = "partner in the measurement of"
"""Begins the reason with which a partner is drained: a run that was killed is known by it."""


@dataclass(frozen=True, slots=True)
class NodeEvidence:
    """What is on record for a node as it is now. ``why``: why it must be measured under load, empty when what was measured so is complete and counts."""

    node: str
    why: str
    kept: Mapping[str, Verdict]
    """Gate -> the verdict that counts: it is not run again."""
    failed: str = ""
    """The fail on record since the node was last changed or repaired."""
    unseen: bool = False
    """Whether gates that only look are due: they load nothing, and are run on nodes in production, too."""

    def due(self, gates: Iterable[str]) -> set[str]:
        """Return those of the gates that must be run on it."""
        return {name for name in gates if name not in self.kept} if self.why or self.unseen else set()


def run_where_needed(ctx: PhaseContext, nodes: list[str]) -> dict[str, NodeResult]:
    """Look at all nodes anew, and run the gates that load on those whose evidence is missing, void or too old.

    A node that failed as it is now is not measured again: measuring until it passes would launder a fault. One in
    production is taken out of it before it is loaded, and so is a partner; a node that keeps its jobs is left alone.
    What a look finds decides at once.
    """
    site = site_of(ctx)
    standings, out = _standings(ctx, site, nodes)
    out |= {item.node: NodeResult(Outcome.FAIL, _recorded(item)) for item in standings if item.failed}
    lacking = [item for item in standings if item.why and not item.failed]
    whole = [item for item in standings if not item.why and not item.failed]
    if ctx.check:
        out |= {item.node: NodeResult(Outcome.PASS, _WOULD_LOOK) for item in whole}
        return out | {item.node: NodeResult(Outcome.NOT_RUN, f"would be measured: {item.why}") for item in lacking}
    out |= _look(ctx, whole)
    fit = [item.node for item in whole if out[item.node].outcome is Outcome.PASS]
    lent = _lent_before(ctx, site, fit)
    try:
        return out | _measure(ctx, site, lacking, fit, lent)
    finally:
        _give_back(ctx, lent)


def _look(ctx: PhaseContext, whole: Sequence[NodeEvidence]) -> dict[str, NodeResult]:
    """Run the gates that only look on nodes of which nothing else is due, in production or not."""
    out = {item.node: NodeResult(Outcome.PASS, _SEEN_BEFORE) for item in whole if not item.unseen}
    return out | look(ctx, {item.node: item.kept for item in whole if item.unseen})


def _measure(
    ctx: PhaseContext, site: Site, lacking: list[NodeEvidence], fit: list[str], lent: list[str]
) -> dict[str, NodeResult]:
    """Run the gates that are due. What is taken out of production as a partner, from among ``fit``, is added to ``lent`` first."""
    out = _out_of_production(ctx, [item.node for item in lacking], "is measured again")
    able = [item for item in lacking if item.node not in out]
    if not able:
        return out
    partners = _partners(ctx, site, fit, able)
    busy, absent = in_production(ctx, partners)
    lent += [node for node in busy if node not in lent]
    absent |= take_out(ctx, dict.fromkeys(busy, f"{_PARTNER} {', '.join(item.node for item in able)}"))
    _tell(ctx, {node: f"it does not serve as a partner: {result.message}" for node, result in absent.items()}, "warn")
    helping = [node for node in partners if node not in absent]
    return out | run_gates(
        ctx, [item.node for item in able], partners=helping, kept={item.node: item.kept for item in able}
    )


def _lent_before(ctx: PhaseContext, site: Site, nodes: list[str]) -> list[str]:
    """Return the nodes that a killed run took out of production as partners, and that are drained for that still.

    Only those are asked about which were drained by us after they were released, as far as the ledger knows.
    """
    paths = EnvPaths(ctx.root, ctx.env)
    with Ledger.open(paths.database) as ledger:
        last = {
            node: [
                entry.operation
                for entry in ledger.entries(node)
                if entry.operation in {DRAIN, RELEASE} and entry.status != "failed"
            ]
            for node in nodes
        }
    asked = [node for node in nodes if last[node][-1:] == [DRAIN]]
    if not asked:
        return []
    try:
        with adapter_for(site, paths) as adapter:
            shown = {node: adapter.show(node) for node in asked}
    except RackreadyError as error:
        _tell(
            ctx, dict.fromkeys(asked, f"whether it is drained as a partner still could not be asked: {error}"), "warn"
        )
        return []
    return [node for node, now in shown.items() if now.drained and now.reason.startswith(f"{PREFIX} {_PARTNER}")]


def _tell(ctx: PhaseContext, words: Mapping[str, str], level: str) -> None:
    with Ledger.open(EnvPaths(ctx.root, ctx.env).database) as ledger:
        for node, text in words.items():
            ledger.event(ctx.campaign, node, "validate", text, level)


def _out_of_production(ctx: PhaseContext, nodes: list[str], why: str) -> dict[str, NodeResult]:
    """Empty those of the nodes that are in production. Returns the ones for which that did not work, or is not known to be needed."""
    busy, unknown = in_production(ctx, nodes)
    return unknown | take_out(ctx, dict.fromkeys(busy, why))


def _give_back(ctx: PhaseContext, lent: list[str]) -> None:
    """Hand partners that were in production over again; one for which that does not work stays held, and that is said."""
    if not lent:
        return
    with Ledger.open(EnvPaths(ctx.root, ctx.env).database) as ledger:
        for node, result in run_handover(ctx, lent).items():
            if result.outcome is Outcome.PASS:
                ledger.set_state(node, NodeState.READY, phase="validate", campaign=ctx.campaign)
            else:
                ledger.event(
                    ctx.campaign,
                    node,
                    "validate",
                    f"it helped to measure and could not be handed over again: {result.message}",
                    "error",
                )


def _standings(ctx: PhaseContext, site: Site, nodes: list[str]) -> tuple[list[NodeEvidence], dict[str, NodeResult]]:
    """Return how each node stands, saying of each that must be measured why; and an error for each whose parts cannot be seen any more."""
    paths = EnvPaths(ctx.root, ctx.env)
    prints, parts = (fingerprints(site, paths, nodes), {}) if ctx.check else seen_now(ctx, site, nodes)
    unsaid = {
        node: NodeResult(Outcome.ERROR, str(found)) for node, found in parts.items() if isinstance(found, Finding)
    }
    with Ledger.open(paths.database) as ledger:
        store = EvidenceStore.read_only(ledger, paths.raw)
        out = [
            standing(site, store, ledger, node, prints[node], campaign=ctx.campaign, again=ctx.again)
            for node in nodes
            if node not in unsaid
        ]
        if not ctx.check:
            set_aside(store, ledger, ctx.campaign, "validate")
        for item in out:
            if item.why and not item.failed:
                ledger.event(ctx.campaign, item.node, "validate", f"to be measured: {item.why}")
        return out, unsaid


def standing(  # noqa: PLR0913 - what is on record, and of what
    site: Site,
    store: EvidenceStore,
    ledger: Ledger,
    node: str,
    found: Fingerprint | Finding,
    *,
    campaign: str = "",
    again: bool = False,
) -> NodeEvidence:
    """Return how a node stands: its evidence is read once, and judged as handover judges it.

    ``campaign``: by which gates that only look must have been run. With ``again`` nothing is kept, but a fail on record
    stays one.
    """
    if isinstance(found, Finding):
        return NodeEvidence(node, f"what it is could not be read ({found})", {})
    moment = Moment(time.time(), found.boot_id, ledger.last_change(node), campaign)
    records = store.valid(node, desired_digest(site, node), found, moment.changed)
    failed = _failed(site, node, records, moment.changed)
    if again:
        return NodeEvidence(node, f"{node}: measured anew as asked for", {}, failed)
    gates = entries(site)
    decision = decide(node, gates, records, site.gates.skipped(node, today()), moment)
    return NodeEvidence(node, to_load(gates, decision), kept(records, decision), failed, unseen=unseen(decision))


def _failed(site: Site, node: str, records: Mapping[str, EvidenceRecord], since: float) -> str:
    """Return the fail that is on record for this very node, as it is now, since it was last changed or repaired."""
    for entry in entries(site):
        record = records.get(entry.id)
        if (
            entry.required
            and record is not None
            and record.verdict.outcome is Outcome.FAIL
            and record.started.timestamp() >= since
        ):
            return str(record.verdict.findings[0]) if record.verdict.findings else f"{node}: {entry.id} failed"
    return ""


def _recorded(item: NodeEvidence) -> str:
    return (
        f"{item.failed} (measured before and not again: when it is repaired, `rackready repair {item.node} --reason "
        "'...'`)"
    )


def _partners(ctx: PhaseContext, site: Site, nodes: Sequence[str], lacking: Sequence[NodeEvidence]) -> list[str]:
    """Choose who serves as the other end when too few nodes are to be measured: rather one that is not in production.

    Only the gates that are due ask for partners.
    """
    ids = [entry.id for entry in loader.gates_of(site.gates)]
    due = set[str]().union(*(item.due(ids) for item in lacking))
    wanted = max((gate(name, {}).min_nodes for name in due), default=1) - len(lacking)
    if wanted <= 0:
        return []
    with Ledger.open(EnvPaths(ctx.root, ctx.env).database) as ledger:
        states = {row.name: row.state for row in ledger.states()}
    return sorted(nodes, key=lambda node: at_least(states.get(node, NodeState.DECLARED), NodeState.READY))[:wanted]
