"""Checks of the PDU outlets that feed nodes. Outlets switch power, so they must be unambiguous."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import IPv4Address

from rackready.design.check_names import Loc, known_platforms, unknown
from rackready.design.site_flaws import Flaw, Lost, Subject
from rackready.model.site import Device, Node, Outlet
from rackready.profiles import loader

Taken = dict[tuple[IPv4Address, int, str], list[tuple[str | None, str, Loc]]]
"""(address and port of the Redfish service, outlet) -> (PDU of that service, node, place of the outlet).

By address, because two devices may name the same service.
"""


def check_outlets(subject: Subject) -> list[Flaw]:
    """Return outlets that do not exist, cannot be switched or feed two nodes, and supplies without an outlet."""
    site = subject.site
    devices = {device.name: (number, device) for number, device in enumerate(site.devices)}
    supplies = {
        platform: psus.count
        for platform in known_platforms(site)
        if (psus := loader.platform(platform).psus) is not None
    }
    taken: Taken = {}
    out: list[Flaw] = []
    for r, rack in enumerate(site.racks):
        for n, node in enumerate(rack.nodes):
            here: Loc = ("racks", r, "nodes", n, "outlets")
            # If outlets were removed because of their shape, the count of the rest is not meaningful.
            out += (
                _of_node(node, None if subject.lost.any("outlets") else supplies.get(node.platform), here)
                if node.outlets
                else []
            )
            for k, outlet in enumerate(node.outlets):
                out += _outlet(node, outlet, devices, taken, (*here, k), subject.lost)
    return out


def _of_node(node: Node, supplies: int | None, here: Loc) -> list[Flaw]:
    if node.kind == "virtual":
        return [Flaw(here, f"virtual node {node.name} has outlets.", "Remove them: its host has them.", kind="virtual")]
    if supplies is None or len(node.outlets) == supplies:
        return []
    return [
        Flaw.of(
            here,
            f"{node.name} has {len(node.outlets)} outlets, but {node.platform} has {supplies} power supplies",
            "List the outlet of every supply: a supply left out keeps the node powered on.",
            expected=f"{supplies} outlets",
        )
    ]


def _outlet(
    node: Node, outlet: Outlet, devices: Mapping[str, tuple[int, Device]], taken: Taken, here: Loc, lost: Lost
) -> list[Flaw]:
    if outlet.pdu not in devices:
        pdus = [name for name, (_, item) in devices.items() if item.kind == "pdu"]
        return unknown(outlet.pdu, pdus, (*here, "pdu"), "PDU", lost.of("devices"))
    number, device = devices[outlet.pdu]
    if device.kind != "pdu":
        return [
            Flaw.of(
                (*here, "pdu"),
                f"{device.name} is of kind {device.kind}",
                "Name the PDU that the supply is plugged into.",
                expected="pdu",
                reads=(("devices", number, "kind"),),
            )
        ]
    if device.bmc is None:
        return [
            Flaw.of(
                (*here, "pdu"),
                f"bmc of {device.name} is required and missing",
                "Add bmc to the device, or remove the outlets of the node.",
                expected="the Redfish service that switches its outlets",
                reads=(("devices", number, "bmc"),),
            )
        ]
    if (device.bmc.address, device.bmc.port) == (node.bmc.address, node.bmc.port):
        return [
            Flaw(
                (*here, "pdu"),
                f"the bmc of {device.name} has the address of the BMC of {node.name}.",
                "Correct one of the two addresses.",
                (("devices", number, "bmc"), (*here[:-2], "bmc", "address")),
            )
        ]
    others = taken.setdefault((device.bmc.address, device.bmc.port, outlet.outlet), [])
    # Without rack_pdu it may be any PDU of that service, so the outlets count as the same one.
    same = next((entry for entry in others if entry[0] is None or outlet.rack_pdu in {None, entry[0]}), None)
    others.append((outlet.rack_pdu, node.name, here))
    if same is None:
        return []
    _, before, there = same
    what = "is given twice" if before == node.name else f"also feeds {before}"
    text = f"outlet {outlet.outlet} of {device.name} {what}."
    return [
        Flaw(
            (*here, "outlet"),
            text,
            "Give each power supply its own outlet. Omit outlets for nodes that share the supplies of a chassis.",
            ((*here, "rack_pdu"), (*there, "rack_pdu")),
        )
    ]
