"""Switches of the fabrics beside the compute fabric, and the racks that they serve.

Everything follows from rack numbers: rack ``n`` belongs to group ``(n - 1) // racks_per_leaf + 1`` of its fabric and
has position ``(n - 1) % racks_per_leaf`` there. Leaf ``m`` of group ``g`` is number ``(g - 1) x leafs + m``. An added
rack renames and moves nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from rackready.design.endpoints import rack_number
from rackready.design.nic_use import used_ports
from rackready.model.base import expand_names
from rackready.model.other_fabric import OtherFabric, OtherRole
from rackready.model.site import Rack, Site

CALLED = {"in_band": "in-band", "storage": "storage", "oob": "out-of-band"}
"""Names of networks in messages."""


@dataclass(frozen=True, slots=True)
class OtherSwitch:
    """One switch of such a fabric.

    ``index`` counts from 1 within fabric and tier. It stays when racks are added, so it may have gaps.
    """

    name: str
    fabric: str
    role: OtherRole
    tier: Literal["leaf", "spine"]
    index: int
    model: str


@dataclass(frozen=True, slots=True)
class Served:
    """How one rack is served.

    ``position``: from 0 among the racks of its group; ``leafs``: names of the switches that share its ports.
    """

    fabric: OtherFabric
    group: int
    position: int
    leafs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OtherLayout:
    """``switches``: by fabric, leafs first; ``racks``: (network, rack) -> how it is served; ``groups``: by fabric."""

    switches: tuple[OtherSwitch, ...] = ()
    racks: dict[tuple[str, str], Served] = field(default_factory=dict)
    groups: dict[str, dict[int, tuple[str, ...]]] = field(default_factory=dict)

    def of(self, fabric: str, tier: str) -> list[OtherSwitch]:
        """Return the switches of one tier of a fabric."""
        return [switch for switch in self.switches if switch.fabric == fabric and switch.tier == tier]


def other_layout(site: Site) -> OtherLayout:
    """Return the switches of a checked site's other fabrics, and what each serves. Raises UnknownProfileError."""
    return site.remember("other_fabrics", lambda: _layout(site))


def _layout(site: Site) -> OtherLayout:
    out = OtherLayout()
    switches: list[OtherSwitch] = []
    for fabric in site.other_fabrics:
        groups = out.groups.setdefault(fabric.name, {})
        for rack in racks_of_fabric(site, fabric):
            number = rack_number(rack)
            if number is None:
                continue  # check_other_fabrics reports it
            group, position = divmod(number - 1, fabric.racks_per_leaf)
            leafs = groups.setdefault(group + 1, _leafs(fabric, group))
            out.racks.setdefault((fabric.role, rack.name), Served(fabric, group + 1, position, leafs))
        for group in sorted(groups):
            first = (group - 1) * fabric.leafs
            switches += [
                OtherSwitch(name, fabric.name, fabric.role, "leaf", first + place, fabric.leaf)
                for place, name in enumerate(groups[group], 1)
            ]
        switches += [
            OtherSwitch(
                f"{fabric.name}-spine-{number:03d}", fabric.name, fabric.role, "spine", number, fabric.spine or ""
            )
            for number in range(1, fabric.spines + 1)
        ]
    return OtherLayout(tuple(switches), out.racks, out.groups)


def _leafs(fabric: OtherFabric, group: int) -> tuple[str, ...]:
    """Return the names of the leafs of a group, counted from 0."""
    return tuple(f"{fabric.name}-leaf-{group * fabric.leafs + place:03d}" for place in range(1, fabric.leafs + 1))


def racks_of_fabric(site: Site, fabric: OtherFabric) -> list[Rack]:
    """Return the racks that a fabric serves.

    These are the racks that it lists, else all racks that no other fabric of its role lists and that have no own switch
    of that role.
    """
    if fabric.racks:
        wanted = {name for text in fabric.racks for name in expand_names(text)}
        return [rack for rack in site.racks if rack.name in wanted]
    listed = [text for other in site.other_fabrics if other.role == fabric.role for text in other.racks]
    others = {name for text in listed for name in expand_names(text)}
    others |= {
        switch.rack
        for switch in site.switches
        if switch.role == fabric.role and switch.rack is not None and switch.unit is not None
    }
    told = {device.rack for device in site.devices if any(port.network == fabric.role for port in device.ports)}
    free = [rack for rack in site.racks if rack.name not in others]
    return [rack for rack in free if fabric.role == "oob" or rack.name in told or _has_ports(site, rack, fabric.role)]


def _has_ports(site: Site, rack: Rack, role: OtherRole) -> bool:
    return any(
        node.kind == "metal" and any(found == role for _, found in used_ports(site, node)) for node in rack.nodes
    )


def rack_slots(site: Site) -> int:
    """Return how many nodes a rack has room for: from the networks, else the highest slot in any rack."""
    if site.networks is not None:
        return site.networks.rack_slots
    return max((node.slot or place for rack in site.racks for place, node in enumerate(rack.nodes, 1)), default=0)
