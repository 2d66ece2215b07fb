"""Racks and power graphs for tests of capacity."""

from __future__ import annotations

from rackready.design.capacity.parts import DeviceModel, PoweredDevice, RackInput
from rackready.model.facility import Facility, Feed, PowerNode, RackCooling

DGX = DeviceModel("dgx_h100", 8, 10200.0, None, None, 130.45, psus=6, psu_min=4, psu_max_w=3300.0, liquid_share=0.0)
"""4+2 supplies (NVIDIA DGX H100 user guide)."""
DUAL = DeviceModel("dual", 2, 2000.0, 1200.0, 2600.0, 30.0, psus=2, psu_min=1, psu_max_w=2000.0, liquid_share=0.0)
"""An ordinary 1+1 server; figures of no product."""
TRAY = DeviceModel("tray", 1, 6000.0, liquid_share=0.8)
"""A bus-bar fed tray; figures of no product."""


def rack(
    name: str,
    *devices: PoweredDevice,
    feeds: tuple[Feed, ...] = (),
    height_u: int = 48,
    cooling: RackCooling | None = None,
) -> RackInput:
    return RackInput(name, devices, feeds, height_u, cooling)


def stack(model: DeviceModel, count: int, prefix: str = "n") -> tuple[PoweredDevice, ...]:
    return tuple(
        PoweredDevice(f"{prefix}{number + 1}", model, 1 + number * model.rack_units) for number in range(count)
    )


def pdus(*sources: str, amps: float = 60, volts: float = 415) -> tuple[Feed, ...]:
    return tuple(
        Feed(name=letter, source=source, breaker_a=amps, volts=volts)
        for letter, source in zip("abcdef", sources, strict=False)
    )


def tree(sides: str = "ab", rating_kw: float = 1000) -> Facility:
    """Two utilities, one UPS and one panel for each side."""
    power = [PowerNode(name="grid-1", kind="utility"), PowerNode(name="grid-2", kind="utility")]
    for side in sides:
        power.append(PowerNode(name=f"ups-{side}", kind="ups", fed_by=["grid-1", "grid-2"], rating_kw=rating_kw))
        power.append(PowerNode(name=f"rpp-{side}", kind="rpp", fed_by=[f"ups-{side}"], rating_kw=rating_kw))
    return Facility(power=power)
