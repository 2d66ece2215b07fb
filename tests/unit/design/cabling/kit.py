"""Small sites, floors and runs for the tests of cabling."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from rackready.design.cabling.catalogue import Catalogue
from rackready.design.cabling.plan import plan_cables
from rackready.design.cabling.types import CablePlace, CablePlan, CableRun, Cage, FloorPlan, HallPlan, Racked
from rackready.design.site import parse_site
from rackready.model.site import Site
from rackready.profiles import loader

ROOT = Path(__file__).resolve().parents[4]
HALL = HallPlan("hall-a", rack_pitch_m=0.6, row_pitch_m=3.0, tray_height_m=2.7)


def catalogue(**stock: list[float]) -> Catalogue:
    return Catalogue([loader.parts("nvidia")], stock)


def floor(**places: tuple[int, int]) -> FloorPlan:
    """Racks of one hall by (row, position); rack ``r`` stands at (0, 0)."""
    racks = {"r": (0, 0), **places}
    return FloorPlan(
        {"hall-a": HALL}, {name: CablePlace("hall-a", *place) for name, place in racks.items()}, slack_m=0.5
    )


class Bench:
    """Makes runs between devices of racks."""

    def __init__(self) -> None:
        self.racked = Racked()
        self.runs: list[CableRun] = []

    def cage(self, where: str, form: str, connectors: int) -> Cage:
        """``rack/unit/device/cage``."""
        rack, unit, device, cage = where.split("/")
        return self.racked.cage(self.racked.device(device, rack, int(unit)), cage, form, connectors)

    def nic(self, where: str, form: str = "osfp_flat") -> Cage:
        return self.cage(where, form, 1)

    def twin(self, where: str, form: str = "osfp_finned") -> Cage:
        return self.cage(where, form, 2)

    def join(
        self,
        a: Cage,
        b: Cage,
        subs: tuple[int, int] = (0, 0),
        *,
        rate: int = 400,
        lanes: int = 4,
        layer: str = "ethernet",
    ) -> CableRun:
        def port(cage: Cage, sub: int) -> str:
            return cage.name if cage.connectors == 1 else f"{cage.name}s{sub}"

        run = CableRun(
            a, port(a, subs[0]), subs[0], b, port(b, subs[1]), subs[1], self.racked.link(rate, lanes, "compute", layer)
        )
        self.runs.append(run)
        return run

    def plan(self, racks: FloorPlan, parts: Catalogue | None = None) -> CablePlan:
        return plan_cables(self.runs, racks, parts or catalogue())


def lab() -> dict[str, Any]:
    """The simulated rack with its switches placed: 4 nodes, 2 leafs, one out-of-band switch, all in one rack."""
    document: dict[str, Any] = yaml.safe_load((ROOT / "inventories/sim/site.yml").read_text(encoding="utf-8"))
    for place, switch in enumerate(document["switches"]):
        switch.update(rack="rack01", unit=40 + 2 * place)
    document["switches"].append(
        {
            **document["switches"][0],
            "name": "oob01",
            "model": "sn2201",
            "role": "oob",
            "unit": 44,
            "address": "192.0.2.23",
        }
    )
    document["halls"] = [{"name": "hall-a", "rows": ["a"], "row_pitch_m": 3.0, "tray_height_m": 2.7}]
    document["racks"][0].update(hall="hall-a", row="a", position=1)
    return document


def parse(document: dict[str, Any]) -> Site:
    return parse_site(document, source="site.yml", base=Path("/base"))
