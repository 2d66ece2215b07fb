"""Records what a deploy applied: the facts of nodes that are ready and of switches that were verified."""

from __future__ import annotations

from collections.abc import Sequence

from rackready.campaign.controller import Finished
from rackready.campaign.request import DEPLOY, CampaignRequest
from rackready.campaign.summary import NodeSummary
from rackready.design.device_facts import device_facts
from rackready.design.facts import node_facts
from rackready.design.plan import lay
from rackready.ledger.applied import read, record
from rackready.model.outcome import CONTINUES
from rackready.model.site import Site
from rackready.model.state import NodeState
from rackready.paths import EnvPaths


def record_applied(
    paths: EnvPaths, site: Site, request: CampaignRequest, finished: Finished, rows: Sequence[NodeSummary]
) -> list[str]:
    """Record what this campaign applied, and return its keys.

    Only a deploy applies the whole plan: other kinds and dry runs record nothing.
    """
    if request.kind != "deploy" or request.check:
        return []
    # Nodes that the campaign did not reach (quarantine, a wave that was stopped) still show an earlier one's phase.
    done = applied_keys(site, [row for row in rows if row.name in finished.results])
    if done:
        # Only applied facts are compared later: capacity and orders are not planned here.
        record(
            paths.state,
            device_facts(lay(site), {*done, *read(paths.state).facts}),
            done,
            finished.campaign,
            site=site.name,
        )
    return done


def record_ready(paths: EnvPaths, site: Site, request: CampaignRequest, rows: Sequence[NodeSummary]) -> None:
    """Record the facts of the nodes that a wave of an upgrade brought to production; it applies nothing else."""
    done = [f"node {name}" for name in _ready(rows)]
    if done:
        planned = device_facts(lay(site), {*done, *read(paths.state).facts})
        record(paths.state, planned, done, request.campaign, site=site.name)


def _ready(rows: Sequence[NodeSummary]) -> list[str]:
    """Return the nodes that a campaign brought to production."""
    return [row.name for row in rows if row.state == NodeState.READY.value and row.outcome in CONTINUES]


def applied_keys(site: Site, rows: Sequence[NodeSummary]) -> list[str]:
    """Return the keys (``node gpu01``, ``switch leaf01``) of everything that a deploy's rows show as applied."""
    ready = _ready(rows)
    # A node passes the fabric phase only when every switch that it is cabled to was committed and read back.
    behind = {nic.switch for row in rows if _past_fabric(row) for nic in node_facts(site, row.name).nics if nic.switch}
    return [f"node {name}" for name in ready] + [f"switch {name}" for name in sorted(behind)]


def _past_fabric(row: NodeSummary) -> bool:
    """Return whether a node came through the fabric phase in this campaign."""
    if row.phase not in DEPLOY:
        return False
    place, fabric = DEPLOY.index(row.phase), DEPLOY.index("fabric")
    return place > fabric or (place == fabric and row.outcome in CONTINUES)
