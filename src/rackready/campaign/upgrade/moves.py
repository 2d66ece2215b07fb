"""One wave as a campaign: the phases from take-out to handover, on the site as its nodes are meant to be."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rackready.campaign.applied import record_ready
from rackready.campaign.controller import Finished, Reporter, run_campaign
from rackready.campaign.failure_kinds import kinds, of_gates
from rackready.campaign.request import UPGRADE, UPGRADE_FIRMWARE, CampaignRequest, new_request
from rackready.campaign.summary import NodeSummary, summarise
from rackready.campaign.upgrade.durations import KIND
from rackready.campaign.upgrade.order import Order
from rackready.design.handover_of import with_drain_wait
from rackready.design.node_sets import regrouped
from rackready.design.site import load_site
from rackready.evidence.store import EvidenceStore
from rackready.gates.engine.site_check import nodes_together
from rackready.handover.partners import borrowed
from rackready.ledger.store import Ledger
from rackready.model.phase import FINDINGS, TOGETHER
from rackready.model.site import Site
from rackready.model.state import NodeState
from rackready.model.upgrade import SetChoice, UpgradeRecord
from rackready.paths import EnvPaths

_OUT = frozenset({NodeState.QUARANTINED, NodeState.RETIRED})
_LENT = frozenset({NodeState.CERTIFIED, NodeState.READY})
"""States of a node that a killed run borrowed and drained; it is ready until the drain is recorded."""


@dataclass(frozen=True, slots=True)
class Moves:
    """Runs waves. ``drain_s``: the longest wait for jobs; None: the site's."""

    env: str
    paths: EnvPaths
    record: UpgradeRecord
    command: str
    reporter: Reporter
    report: Callable[[Site, str], None]
    serving: Callable[[], Collection[str]]
    """Returns the nodes in service now."""
    drain_s: int | None = None
    verbose: bool = False

    def move(self, nodes: Sequence[str], back: bool) -> dict[str, dict[str, Any]]:  # noqa: FBT001 - which way
        """Take nodes to the new set, or back to their former ones; return a result for each.

        A node that an earlier try left in quarantine keeps its result: measuring until it passes would hide a fault.
        """
        with Ledger.open(self.paths.database) as ledger:
            out = _out_of_use(ledger, EvidenceStore.open(ledger, self.paths.raw), nodes)
        able = [node for node in nodes if node not in out]
        if not able:
            return out
        site = self.seen(able, back=back)
        request = replace(
            new_request(
                site,
                env=self.env,
                root=self.paths.root,
                kind=KIND,
                phases=UPGRADE_FIRMWARE if self.record.firmware and not back else UPGRADE,
                nodes=tuple(able),
                check=False,
            ),
            nodes=tuple(able),
            beside=self.beside(site, able),
            wave_sizes=(len(able),),
            stop_above_pct=100,
            stop_at_new_kind=False,
        )
        finished = run_campaign(
            self.paths, request, command=self.command, reporter=self.reporter, verbose=self.verbose, locked=True
        )
        return out | self._results(site, request, finished, able)

    def beside(self, site: Site, nodes: Sequence[str]) -> tuple[str, ...]:
        """Return the nodes that a wave may borrow, so that even one node of it has what its gates need, and a spare.

        Those that a killed run borrowed come first: they are handed over again at the end.
        """
        order, serving = Order(site), set(self.serving())
        with Ledger.open(self.paths.database) as ledger:
            states = {row.name: row.state for row in ledger.states() if row.name in order.places}
            out = [name for name, state in states.items() if state in _LENT and name not in serving]
            lent = [name for name in out if name not in nodes and borrowed(ledger.entries(name))]
        needed = nodes_together(site)
        return (*lent, *(order.beside(nodes, serving, needed) if needed > 1 else ()))

    def seen(self, nodes: Iterable[str], *, back: bool) -> Site:
        """Return the site as a wave sees it: its nodes with the set that they go to, the others with theirs."""
        site = load_site(self.env, root=self.paths.root)
        wanted = {node: self._choice(node, back=back) for node in nodes}
        site = regrouped(site, wanted)
        own: dict[str, object] = {}
        if self.drain_s is not None:
            own["handover"] = with_drain_wait(site.handover, self.drain_s)
        if back:
            own["software"] = site.software.model_copy(update={"allow_downgrade": True})
        return site.model_copy(update=own) if own else site

    def _choice(self, node: str, *, back: bool) -> SetChoice:
        return self.record.nodes[node].former if back else self.record.to

    def _results(
        self, site: Site, request: CampaignRequest, finished: Finished, nodes: list[str]
    ) -> dict[str, dict[str, Any]]:
        with Ledger.open(self.paths.database) as ledger:
            rows = summarise(ledger, nodes, finished.results)
            store = EvidenceStore.open(ledger, self.paths.raw)
            found = {row.name: _result(row, finished, store) for row in rows}
        record_ready(self.paths, site, request, rows)
        self.report(site, finished.campaign)
        return found


def _out_of_use(ledger: Ledger, store: EvidenceStore, nodes: Sequence[str]) -> dict[str, dict[str, Any]]:
    rows = {row.name: row for row in ledger.states() if row.state in _OUT}
    out = {}
    for node in nodes:
        if node in rows:
            row = rows[node]
            found = sorted(of_gates(node, row.campaign, store)) or [f"{row.phase} fail"]
            out[node] = {"outcome": "fail", "phase": row.phase, "message": row.reason, "kinds": found}
    return out


def _result(row: NodeSummary, finished: Finished, store: EvidenceStore) -> dict[str, Any]:
    result = finished.results.get(row.name, {})
    seen = {**result, FINDINGS: row.findings, "outcome": row.outcome, "phase": row.phase}
    found = kinds(row.name, seen, finished.campaign, store)
    words = {"outcome": row.outcome, "phase": row.phase, "message": row.reason, "kinds": found}
    return {**words, TOGETHER: result.get(TOGETHER, "")}
