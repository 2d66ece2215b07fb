"""Sites for the tests of upgrades, as overlays of the simulated rack's site file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from rackready.design.overlays import merge
from rackready.design.site import parse_site
from rackready.model.site import Site
from rackready.model.upgrade import NodeRecord, SetChoice, UpgradeRecord

ROOT = Path(__file__).resolve().parents[4]
OLD, NEW = "hgx-r580-debian12", "next-set"
FORMER = SetChoice(set=OLD)


def site_of(**changes: Any) -> Site:
    """Return the simulated rack's site with changes."""
    document = yaml.safe_load((ROOT / "inventories/sim/site.yml").read_text(encoding="utf-8"))
    return parse_site(merge(document, changes), source="site.yml", base=ROOT)


def record_of(*nodes: str) -> UpgradeRecord:
    """Return a new upgrade of these nodes."""
    return UpgradeRecord(
        id="u1",
        to=SetChoice(set=NEW),
        begun=0.0,
        nodes={node: NodeRecord(former=FORMER, written=FORMER) for node in nodes},
    )
