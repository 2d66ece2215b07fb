"""One wave as a campaign: the phases from take-out to handover, on the site as its nodes are meant to be."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rackready.campaign.applied import record_ready
from rackready.campaign.controller import Finished, Reporter, run_campaign
from rackready.campaign.request import UPGRADE, UPGRADE_FIRMWARE, CampaignRequest, new_request
from rackready.campaign.summary import NodeSummary, summarise
from rackready.campaign.upgrade.durations import KIND
from rackready.design.handover_of import with_drain_wait
from rackready.design.node_sets import regrouped
from rackready.design.site import load_site
from rackready.evidence.store import EvidenceStore
from rackready.ledger.store import Ledger
from rackready.model.outcome import CONTINUES
from rackready.model.phase import BROKEN
from rackready.model.site import Site
from rackready.model.state import NodeState
from rackready.model.upgrade import SetChoice, UpgradeRecord
from rackready.paths import EnvPaths

_OUT = frozenset({NodeState.QUARANTINED, NodeState.RETIRED})


@dataclass(frozen=True, slots=True)
class Moves:
    """Runs waves. ``drain_s``: the longest wait for jobs; None: the site's."""

    env: str
    paths: EnvPaths
    record: UpgradeRecord
    command: str
    reporter: Reporter
    report: Callable[[Site, str], None]
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
            wave_size=len(able),
            stop_above_pct=100,
        )
        finished = run_campaign(
            self.paths, request, command=self.command, reporter=self.reporter, verbose=self.verbose, locked=True
        )
        return out | self._results(site, request, finished, able)

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
            kinds = sorted(_of_gates(node, row.campaign, store)) or [f"{row.phase} fail"]
            out[node] = {"outcome": "fail", "phase": row.phase, "message": row.reason, "kinds": kinds}
    return out


def _result(row: NodeSummary, finished: Finished, store: EvidenceStore) -> dict[str, Any]:
    result = finished.results.get(row.name, {})
    kinds = [] if row.outcome in CONTINUES else _kinds(row, result, finished.campaign, store)
    return {"outcome": row.outcome, "phase": row.phase, "message": row.reason, "kinds": kinds}


def _kinds(row: NodeSummary, result: dict[str, Any], campaign: str, store: EvidenceStore) -> list[str]:
    """Return what went wrong by code: of gates, of the phase, of the task that failed; else the phase and outcome."""
    found = _of_gates(row.name, campaign, store)
    findings: Sequence[object] = row.findings or []  # the gates' are words: their codes are in the evidence
    found |= {f"{row.phase} {one['code']}" for one in findings if isinstance(one, dict) and one.get("code")}
    found |= {f"{row.phase} {task}" for task in result.get(BROKEN, [])}
    return sorted(found) or [f"{row.phase} {row.outcome}"]


def _of_gates(node: str, campaign: str, store: EvidenceStore) -> set[str]:
    """Return gate and code of what gates found on a node in a campaign."""
    return {
        f"{record.gate} {finding.code or record.verdict.outcome.value}"
        for record in store.records(node=node, campaign=campaign)
        if record.verdict.outcome.value not in CONTINUES
        for finding in record.verdict.findings
    }
