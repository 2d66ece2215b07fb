"""Whether a campaign that was cut off is the one to resume. It is only where its whole progress is on this machine."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rackready.campaign.abi import CAMPAIGN_ABI
from rackready.campaign.request import CampaignRequest
from rackready.paths import EnvPaths

_ROOTS = "SELECT workflow_uuid FROM workflow_status WHERE name = 'campaign'"
_ENDED_BADLY = (
    "SELECT 1 FROM workflow_status WHERE status NOT IN ('PENDING', 'ENQUEUED', 'DELAYED', 'SUCCESS') "
    "UNION ALL SELECT 1 FROM operation_outputs WHERE error IS NOT NULL LIMIT 1"
)
"""Tables and states of dbos 3.4.0: dbos/_schemas/system_database.py, and WorkflowStatusString in dbos/_sys_db.py."""


def why_not(row: Mapping[str, Any], wanted: CampaignRequest, paths: EnvPaths) -> str:
    """Return why a campaign that was cut off is not the one to resume; empty when it is."""
    before = row["summary"]["request"]
    same = (
        row["kind"] == wanted.kind
        and row["site_digest"] == wanted.site_digest
        and row["nodes"] == list(wanted.nodes)
        and before["phases"] == list(wanted.phases)
        and row["summary"].get("check") == wanted.check
        and before.get("again", False) == wanted.again
        and before.get("full", False) == wanted.full
        and before.get("erase", []) == list(wanted.erase)
    )
    if row["abi"] != CAMPAIGN_ABI:
        return "it was made by another version of rackready"
    if not same:
        return "the site or what was asked for has changed since"
    if unable := _not_in(paths.workflows, row["id"]):
        return unable
    return "" if before.get("root", wanted.root) == wanted.root else f"it began in {before['root']}"


def _not_in(database: Path, campaign: str) -> str:
    """Return why a workflow database cannot carry a campaign on; empty when it can.

    At its start dbos takes up every workflow that is pending in its file (dbos/_dbos.py, ``get_pending_workflows``;
    what is queued begins by itself). Where the file has another campaign, too, that one would run beside ours on the
    same nodes. A recorded error is only raised again (dbos/_core.py): the campaign can never end well.
    """
    elsewhere = "how far it was is not on record on this machine"
    if not database.exists():
        return elsewhere
    try:
        with closing(sqlite3.connect(f"file:{quote(str(database))}?mode=rw", uri=True, timeout=30)) as file:
            roots = {name for (name,) in file.execute(_ROOTS)}
            ended = file.execute(_ENDED_BADLY).fetchone() is not None
    except sqlite3.Error:
        return "its record of progress cannot be read"
    if roots != {campaign}:
        return elsewhere
    return "a step of it ended with an error" if ended else ""


def forget(database: Path) -> None:
    """Remove a workflow database. Nothing is lost: node states are in the ledger."""
    for suffix in ("", "-wal", "-shm"):
        database.with_name(database.name + suffix).unlink(missing_ok=True)
