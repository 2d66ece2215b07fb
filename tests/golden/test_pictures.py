"""Golden pictures of a site of four nodes. `GOLDENS=rewrite pytest tests/golden` rewrites them: look at the result."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rackready.design.capacity.parts import DeviceModel, PoweredDevice, RackInput
from rackready.design.capacity.report import capacity
from rackready.design.topology.types import EndpointLink, FabricPlan, TopoSwitch
from rackready.model.facility import Facility, Feed, PowerNode
from rackready.render import pictures

HERE = Path(__file__).resolve().parent / "plan"
DGX = DeviceModel("dgx_h100", 8, 10200.0, psus=6, psu_min=4)
SWITCH = DeviceModel("sn5600", 2, None)
RACK = RackInput(
    "rack01",
    (
        *(PoweredDevice(f"node{n:02d}", DGX, 8 * n - 7) for n in range(1, 5)),
        *(PoweredDevice(f"leaf{n:02d}", SWITCH, 38 + 2 * n, "switch") for n in (1, 2)),
    ),
    tuple(Feed(name=name, source=f"rpp-{name}", breaker_a=60, volts=415) for name in "abc"),
)
FACILITY = Facility(power=[PowerNode(name=f"rpp-{name}", kind="rpp", rating_kw=100) for name in "abc"])
FABRIC = FabricPlan(
    switches=tuple(TopoSwitch(f"leaf{n:02d}", "leaf", 1, 1, n, "sn5600", 64) for n in (1, 2)),
    endpoints=tuple(
        EndpointLink(f"node{n:02d}", rail, 1, f"leaf{1 + rail // 5:02d}", 8 * n + rail)
        for n in range(1, 5)
        for rail in range(1, 9)
    ),
    counts={"leaf": 2, "endpoint_cables": 32},
)
PICTURES = {
    "elevation": lambda: pictures.elevation(RACK),
    "fabric": lambda: pictures.fabric(FABRIC),
    "power": lambda: pictures.power_bars(capacity([RACK], FACILITY).nodes),
}


@pytest.mark.parametrize("name", PICTURES)
def test_picture_is_as_reviewed(name: str) -> None:
    text = PICTURES[name]()
    golden = HERE / f"{name}.svg"
    if os.environ.get("GOLDENS") == "rewrite":
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")
