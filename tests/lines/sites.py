"""Sites whose switches have command lines: the simulated rack on two leafs, and four units with leafs and spines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from rackready.design.site import parse_site
from rackready.design.switch_systems import SYSTEMS
from rackready.design.wiring import trunk_ends
from rackready.model.site import Site

ROOT = Path(__file__).resolve().parents[2]
MODELS = {"arista_eos": "dcs_7060x6_64pe", "cisco_nxos": "n9k_c9364d_gx2a"}
_PORTS = {"arista_eos": "Ethernet{}/1", "cisco_nxos": "Ethernet1/{}"}


def rack(os: str, **fabric: object) -> Site:
    """Return the simulated rack: rails 1-4 on leaf01, 5-8 on leaf02, rails L2 only."""
    raw = _read("inventories/sim/site.yml")
    for switch in raw["switches"]:
        switch |= {"os": os, "model": MODELS[os], "username": "admin"}
    for link in raw["links"]:
        ends = [_PORTS[os].format(end.removeprefix("swp")) for end in link["ports"].split("-")]
        link["ports"] = "-".join(ends)
    raw["fabric"] |= {"switch_mtu": SYSTEMS[os].most_mtu} | fabric
    return parse_site(raw, source="site.yml", base=ROOT)


def pod(os: str, links: str, model: str = "") -> tuple[Site, str, str]:
    """Return four scalable units with one leaf and one spine to configure, and the names of both."""
    raw = _read("inventories/examples/b200-4su-roce.yml")
    raw["topology"] = {"leaf": {"model": model or MODELS[os]}, "su_nodes": 32}
    raw["networks"]["underlay"] = {"links": links} | ({"pool": "10.31.0.0/16"} if links == "numbered" else {})
    raw["fabric"]["switch_mtu"] = SYSTEMS[os].most_mtu
    raw["tenants"] = []  # neither system isolates them
    names = sorted(trunk_ends(parse_site(raw, source="site.yml", base=ROOT)))
    leaf, spine = next(name for name in names if "leaf" in name), next(name for name in names if "spine" in name)
    base = {"os": os, "model": model or MODELS[os], "password": {"env": "P"}}
    raw["switches"] = [
        base | {"name": leaf, "address": "10.20.3.200"},
        base | {"name": spine, "address": "10.20.3.201"},
    ]
    return parse_site(raw, source="site.yml", base=ROOT), leaf, spine


def _read(path: str) -> dict[str, Any]:
    raw: dict[str, Any] = yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))
    return raw
