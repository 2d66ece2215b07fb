"""Heat of one rack: the shares of air and liquid, and the flows that carry them."""

from __future__ import annotations

from dataclasses import dataclass

from rackready.design.capacity.parts import PoweredDevice, RackInput

BTU_H_PER_W = 3.412
"""1 W = 3.412 BTU/h (1 BTU = 1055.06 J)."""
BTU_H_PER_TON = 12000
"""One ton of refrigeration, by definition."""
AIR_M3_H_K_PER_W = 3.0
"""m3/h = 3.0 x W / rise in K. Derived: 3600 s / (1.2 kg/m3 x 1005 J/(kg K)) = 2.99."""
WATER_L_MIN_K_PER_KW = 14.3
"""L/min = 14.3 x kW / rise in K. Derived: 60 s / (4.19 kJ/(kg K) x 1 kg/L) = 14.3."""


@dataclass(frozen=True, slots=True)
class Heat:
    """Heat at the highest draw. None: a share is not published, so the split of the heat is not known."""

    total_w: float
    liquid_w: float | None

    @property
    def air_w(self) -> float | None:
        """Return the heat that air must carry, W."""
        return None if self.liquid_w is None else self.total_w - self.liquid_w

    @property
    def btu_h(self) -> float:
        """Return all heat in BTU/h."""
        return self.total_w * BTU_H_PER_W

    @property
    def tons(self) -> float:
        """Return all heat in tons of refrigeration."""
        return self.btu_h / BTU_H_PER_TON


def air_flow_m3_h(air_w: float, rise_k: float) -> float:
    """Return the air that carries ``air_w`` with a rise of ``rise_k``, m3/h."""
    return AIR_M3_H_K_PER_W * air_w / rise_k


def liquid_flow_l_min(liquid_w: float, rise_k: float) -> float:
    """Return the water that carries ``liquid_w`` with a rise of ``rise_k``, L/min."""
    return WATER_L_MIN_K_PER_KW * liquid_w / 1000 / rise_k


def share_of(rack: RackInput, device: PoweredDevice) -> float | None:
    """Return the share of a device's heat that goes into liquid.

    It is 0 in an air-cooled rack and 1 in a liquid-cooled one, else the figure of the rack or the profile.

    The rack's figure applies to its nodes, and to other equipment in it without its own figure.
    """
    cooling = rack.cooling
    if cooling is not None and cooling.kind != "hybrid":
        return 0.0 if cooling.kind == "air" else 1.0
    if (
        cooling is not None
        and cooling.liquid_share is not None
        and (device.kind == "node" or device.model.liquid_share is None)
    ):
        return cooling.liquid_share
    return device.model.liquid_share


@dataclass(frozen=True, slots=True)
class Known:
    """The known part of the heat that goes one way, and the models without figures."""

    watts: float
    draw: tuple[str, ...]
    """Models whose highest draw is not published."""
    share: tuple[str, ...]
    """Models whose liquid share is not published."""

    @property
    def partial(self) -> bool:
        """Return whether ``watts`` is incomplete."""
        return bool(self.draw or self.share)


def known(rack: RackInput, way: str) -> Known:
    """Return the known heat of a rack: total (``way`` is empty), into ``air`` or into ``liquid``.

    A device without figures adds 0.
    """
    watts, draw, share_lacks = 0.0, set(), set()
    for device in rack.devices:
        share, label = share_of(rack, device), device.model.label
        part = 1.0 if not way else None if share is None else share if way == "liquid" else 1.0 - share
        if part is None and device.model.max_w != 0:
            share_lacks.add(label)
        if part != 0 and device.model.max_w is None:
            draw.add(label)
        watts += (part or 0.0) * (device.model.max_w or 0.0)
    return Known(watts, tuple(sorted(draw)), tuple(sorted(share_lacks)))


def heat(rack: RackInput) -> Heat:
    """Return the heat of a rack: all power that goes in comes out as heat."""
    liquid: float | None = 0.0
    for device in rack.devices:
        share = share_of(rack, device)
        liquid = None if liquid is None or share is None else liquid + share * (device.model.max_w or 0.0)
    return Heat(rack.max_w, liquid)
