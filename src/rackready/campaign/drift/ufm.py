"""Compares the partitions in UFM with those of the site, for nodes whose fabric phase passed."""

from __future__ import annotations

from collections.abc import Mapping

from rackready.campaign.drift.applied import Applied
from rackready.campaign.drift.found import DriftReading
from rackready.drivers.ib_fabric.guids import kept_guids
from rackready.drivers.ufm.client import UfmClient
from rackready.drivers.ufm.partitions import compare, read, wanted_partitions
from rackready.model.drift import DriftItem, DriftKind
from rackready.model.problems import RackreadyError
from rackready.model.site import Site
from rackready.paths import EnvPaths


def compare_ufm(paths: EnvPaths, site: Site, applied: Mapping[str, Applied], found: Mapping[str, DriftReading]) -> None:
    """Add ports whose partitions differ in UFM. Their GUIDs are those that the fabric phase read."""
    own = site.fabric.infiniband
    nodes = [node for node, item in applied.items() if "fabric" in item.phases]
    if own is None or own.ufm is None or not nodes or not any(tenant.pkey for tenant in site.tenants):
        return
    guids = kept_guids(paths, site)
    for node in nodes:
        if not guids.get(node):
            found[node].not_asked.append("partitions in UFM: its port GUIDs are not known. Run `rackready fabric`.")
    ours = {int(guid, 16): node for node in nodes for guid in guids.get(node, ())}
    try:
        with UfmClient(own.ufm) as client:
            held = read(client)
    except RackreadyError as error:
        for node in nodes:
            found[node].not_asked.append(f"partitions in UFM: {error}")
        return
    for change in compare(wanted_partitions(site, nodes, guids), held, ours):
        present = held[change.key].members if change.key in held else {}
        for guid in sorted(change.ports):
            found[ours[guid]].items.append(
                DriftItem(
                    kind=DriftKind.NIC,
                    name=f"UFM partition 0x{change.key:04x}, port {guid:016x}",
                    expected=_words(change.join.get(guid)),
                    actual=_words(present.get(guid)),
                    source="UFM",
                    phase="fabric",
                )
            )


def _words(full: bool | None) -> str:  # noqa: FBT001 - a membership
    return "no member" if full is None else "full member" if full else "limited member"
