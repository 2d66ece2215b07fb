"""Notes on NVLink between servers: its cables are part of the rack."""

from __future__ import annotations

from collections import Counter

from rackready.model.site import Site
from rackready.profiles import loader

_SOURCE = (
    "NVIDIA NVOS user manual for NVLink switches, chassis information and inventory: the cable cartridge is a part "
    "of the rack"
)


def nvlink_notes(site: Site) -> list[str]:
    """Return notes on NVLink connections by server model, and on domains across racks without listed cables."""
    trays: Counter[str] = Counter()
    racks: Counter[str] = Counter()
    for rack in site.racks:
        own = Counter(node.platform for node in rack.nodes if node.kind == "metal" and _spans(node.platform))
        trays += own
        racks.update(dict.fromkeys(own, 1))
    notes = [
        f"NVLink: {count} {platform} trays are connected inside their {racks[platform]} racks by cable cartridges, "
        "which come with the rack: "
        f"no cable is pulled or ordered for them, and no part number is published ({_SOURCE})."
        for platform, count in sorted(trays.items())
    ]
    across = [domain.name for domain in site.nvlink_domains if domain.across_racks]
    return notes + [
        f"NVLink: cables between the racks of domain {name} are not listed: the site file does not define them."
        for name in across
    ]


def _spans(platform: str) -> bool:
    profile = loader.platform(platform)
    return profile.nvlink_domain is not None and profile.nvlink_domain > profile.gpus
