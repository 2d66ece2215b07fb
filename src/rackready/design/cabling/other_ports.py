"""Ports of switches in other fabrics: windows of racks on a leaf, uplinks, peer links and downlinks.

Main ports of a leaf, from the last one down: uplinks and peer links (unless the model has uplink ports of its own),
then, where it has no spines, ``downlinks``. The racks of its group share the rest in equal windows of ``(ports left) //
racks_per_leaf``. In a window, from below: ``rack_slots`` places for nodes, then devices in the order of the site file;
from above: management ports of switches by rack unit.
"""

from __future__ import annotations

from dataclasses import dataclass

from rackready.design.cabling.sockets import Socket, SwitchPorts, switch_ports
from rackready.design.nic_use import used_ports
from rackready.design.other_fabrics import Served
from rackready.model.base import expand_range
from rackready.model.other_fabric import OtherFabric
from rackready.model.site import Rack, Site
from rackready.profiles import loader
from rackready.profiles.scope import Scoped

_LANES = {"rj45": 1, "sfp28": 1, "qsfp28": 4, "qsfp56": 4, "qsfp112": 4, "osfp_finned": 8, "osfp_flat": 4}
"""Electrical lanes of an uplink by cage: one for SFP and RJ45, four for QSFP (SFF-8665), eight for twin-port OSFP."""
_PLUG = {25: "qsfp28", 50: "qsfp56", 100: "qsfp112"}
"""Plug of a QSFP cage by the rate of a lane, Gb/s."""


@Scoped
def uplink_ports(model: str) -> SwitchPorts | None:
    """Return the dedicated uplink ports of a switch model; None if it has none."""
    profile = loader.switch(model)
    if profile.uplinks is None or profile.uplink_cage is None:
        return None
    cage = profile.uplink_cage
    lanes = _LANES[cage]
    return SwitchPorts(
        tuple(Socket(name, name, 0, max(1, lanes // 4), cage) for name in expand_range(profile.uplinks)),
        lanes,
        profile.layer,
    )


def plug(cage: str, rate: int, lanes: int) -> str:
    """Return the plug that a QSFP cage takes at a lower rate (Gb/s over that many lanes).

    Cages take the plugs of slower QSFP generations.

    NVIDIA LinkX 100G-PAM4 product line overview: QSFP112 cages of ConnectX-7 and BlueField-3 take QSFP56 at 4 x
    50G-PAM4 and QSFP28 at 4 x 25G-NRZ.
    """
    return _PLUG.get(rate // lanes, cage) if cage.startswith("qsfp") else cage


@dataclass(frozen=True, slots=True)
class LeafPorts:
    """How the main ports of a leaf of a fabric are assigned. ``window``: ports of one rack; 0 if there are too few."""

    ports: SwitchPorts
    rate: int
    top: int
    window: int
    own_uplinks: bool
    """Uplinks and peer links use main ports."""

    def number(self, served: Served, offset: int) -> int:
        """Return the number (from 0) of a port of a rack's window; a negative offset counts from its end."""
        return served.position * self.window + (offset if offset >= 0 else self.window + offset)


def leaf_ports(fabric: OtherFabric, rate: int) -> LeafPorts | None:
    """Return how the leafs' ports are assigned for links of that rate, Gb/s; None if the model has no such ports."""
    ports = switch_ports(fabric.leaf, rate)
    if ports is None:
        return None
    own = uplink_ports(fabric.leaf) is None
    top = (fabric.uplinks + fabric.peer_links if own else 0) + (0 if fabric.spines else fabric.downlinks)
    return LeafPorts(ports, rate, top, max(0, (len(ports.sockets) - top) // fabric.racks_per_leaf), own)


def rate_of(site: Site, fabric: OtherFabric, racks: list[Rack]) -> int:
    """Return the rate of a fabric's links to nodes and devices, Gb/s.

    It is the rate in the site file, else 1 out of band, else that of the fastest port; 0 if the fabric serves none.
    """
    if fabric.rate is not None or fabric.role == "oob":
        return fabric.rate or 1
    names = {rack.name for rack in racks}
    rates = {
        port.rate
        for device in site.devices
        if device.rack in names
        for port in device.ports
        if port.network == fabric.role
    }
    seen: set[tuple[str, str | None]] = set()
    for rack in racks:
        for node in rack.nodes:
            if node.kind == "metal" and (node.platform, node.nic_plan) not in seen:
                seen.add((node.platform, node.nic_plan))
                rates |= {nic.rate for nic, role in used_ports(site, node) if role == fabric.role}
    return max(rates, default=0)
