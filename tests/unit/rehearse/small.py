"""Shared helpers for tests of rehearsals: a site file as a site, its rehearsal, the parsed rehearsal."""

from __future__ import annotations

import json
from collections.abc import Callable
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import yaml

from rackready.design.own_profiles import Own, read_own
from rackready.design.site import load_site, parse_site
from rackready.design.yaml import dump_yaml
from rackready.model.site import Site
from rackready.profiles import scope
from rackready_sim.plan import RackPlan, build_plan
from rackready_sim.rehearse.scaled import Scaled, scaled

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "inventories" / "examples"
STAND_INS = {"dgx_b200": "dgx_h100", "gb200_nvl72": "dgx_h100", "switches": "cumulus_nvue"}
SITES = {
    "b200-4su-roce": EXAMPLES / "b200-4su-roce.yml",
    "gb200-nvl72-8-racks": EXAMPLES / "gb200-nvl72-8-racks.yml",
    "gpus-100k-three-tier": EXAMPLES / "gpus-100k-three-tier.yml",
    "h100-1su-infiniband": EXAMPLES / "h100-1su-infiniband.yml",
    "lab-4-nodes": EXAMPLES / "lab-4-nodes.yml",
    "mixed-metal-virtual": EXAMPLES / "mixed-metal-virtual.yml",
    "example": ROOT / "inventories/example/site.yml",
    "sim-hgx": ROOT / "inventories/sim-hgx/site.yml",
    "sim-ib": ROOT / "inventories/sim-ib/site.yml",
    "sim-k8s": ROOT / "inventories/sim-k8s/site.yml",
    "sim-metal": ROOT / "inventories/sim-metal/site.yml",
    "sim-sonic": ROOT / "inventories/sim-sonic/site.yml",
    "sim-spine": ROOT / "inventories/sim-spine/site.yml",
}
SMALL = [name for name in SITES if name != "gpus-100k-three-tier"]
"""Sites that are read in no time."""


def site(name: str) -> Site:
    return load_site("unused", site_file=SITES[name], root=ROOT)


def changed(name: str, change: Callable[[dict[str, Any]], None]) -> Site:
    """Return a site whose document was changed."""
    document = yaml.safe_load(SITES[name].read_text(encoding="utf-8"))
    change(document)
    scope.use(())
    return parse_site(document, source="site.yml", base=Path("/base"))


def rehearsal(name: str, **options: Any) -> Scaled:
    return scaled(site(name), **{"most": 4, "stand_ins": STAND_INS, **options})


def own_profiles(small: Scaled, folder: Path, source: Path) -> Own:
    """Return the profiles of a rehearsal, and those of the site itself."""
    for path in source.parent.glob("profiles/*/*.yml"):
        target = folder / path.parent.name / path.name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    for name, document in small.profiles.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(dump_yaml(document), encoding="utf-8")
    return read_own(folder, folder)


def parsed(small: Scaled, own: Own) -> Site:
    made = parse_site(json.loads(json.dumps(small.document)), source="rehearsal", base=ROOT, own=own)
    scope.use(made.own_profiles)
    return made


def plan(made: Site) -> RackPlan:
    return build_plan(made, clone="ab12cd", subnet=IPv4Network("10.64.7.0/24"), loopback="127.9.8")
