"""Port GUIDs of the site's nodes, kept beside the ledger: partitions name those of nodes that are off now, too."""

from __future__ import annotations

import json

from rackready.design.infiniband import infiniband_vars
from rackready.drivers.ib_fabric.reading import Reader
from rackready.model.phase import PhaseContext
from rackready.model.site import Site
from rackready.ondevice.whole_file import replace_file
from rackready.paths import EnvPaths

_FILE = "port-guids.json"


def port_guids(ctx: PhaseContext, site: Site, nodes: list[str]) -> dict[str, list[str]]:
    """Return node -> GUIDs of its ports, 16 hex digits each: of these nodes as read now, of others as read before.

    Empty where the site has no partitions. A dry run keeps nothing.
    """
    if not infiniband_vars(site).get("opensm_partitions"):
        return {}
    paths = EnvPaths(ctx.root, ctx.env)
    reader = Reader(site, paths, nodes)
    try:
        found = kept_guids(paths, site) | reader.guids(nodes)
    finally:
        reader.close()
    known = {node.name: found[node.name] for node in site.nodes() if node.name in found}
    if not ctx.check:
        replace_file(paths.state / _FILE, json.dumps(known, indent=1) + "\n")
    return known


def kept_guids(paths: EnvPaths, site: Site) -> dict[str, list[str]]:
    """Return node -> GUIDs of its ports, as an earlier run read them."""
    file = paths.state / _FILE
    found: dict[str, list[str]] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    return {node.name: found[node.name] for node in site.nodes() if node.name in found}
