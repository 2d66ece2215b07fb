"""InfiniBand sites of whole scalable units for these tests: DGX H100 on QM9700, placed in racks."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from rackready.design.plan import Laid, lay
from rackready.design.site import load_site
from rackready.drivers.ib.planned import IbPlan, planned_cables
from rackready.model.site import Site

_SITE = """
schema: rackready/site/v1
name: twin
access: {{user: root, private_key: id}}
software:
  set: hgx-r580-debian12
  mirror: {{url: "https://mirror.example.com/cuda/debian12/x86_64", suite: /, key: mirror.asc}}
fabric: {{kind: infiniband}}
topology: {{link: infiniband, leaf: {{model: qm9700}}, su_nodes: {unit}}}
networks:
  rack_slots: 4
  oob: {{pool: 10.20.0.0/16, per_rack: 24}}
  in_band: {{pool: 10.21.0.0/16, per_rack: 24}}
  storage: {{pool: 10.22.0.0/16, per_rack: 24}}
templates:
  nodes:
    h100: {{platform: dgx_h100, bmc: {{username: admin, password: {{env: BMC_PASSWORD}}}}}}
  racks:
    gpu: {{height_u: 48}}
racks:
  - name: "a[01-{racks:02}]"
    template: gpu
    nodes: [{{name: "{{rack}}-n[1-4]", template: h100, unit: {{first: 3, step: 10}}}}]
  - name: net99
    height_u: 48
    switch_slots: [{{tier: leaf, units: 1-{leafs}}}, {{tier: spine, units: 30-44}}]
{tenants}
gates: {{set: bringup}}
handover: {{kind: file, path: ready.txt}}
"""


def site_text(nodes: int, unit: int = 32, tenants: str = "") -> str:
    """Return a site of so many nodes, four in a rack, in scalable units of ``unit``."""
    return _SITE.format(unit=unit, racks=nodes // 4, leafs=8 * -(-nodes // unit), tenants=tenants)


def site_of(folder: Path, nodes: int, unit: int = 32, tenants: str = "") -> Site:
    """Return the loaded site."""
    file = folder / "site.yml"
    file.write_text(site_text(nodes, unit, tenants), encoding="utf-8")
    return load_site("twin", site_file=file, root=Path(__file__).resolve().parents[3])


@cache
def plan_of(folder: Path, nodes: int, unit: int = 32) -> tuple[Laid, IbPlan]:
    """Return the plan of a site and its cables."""
    laid = lay(site_of(folder, nodes, unit))
    return laid, planned_cables(laid)
