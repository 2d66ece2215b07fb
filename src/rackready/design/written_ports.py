"""Ports of switches that the site file writes by hand: their names, and ranges of them."""

from __future__ import annotations

from typing import Any

from rackready.design.topology.ports import port_names
from rackready.model.base import expand_range
from rackready.model.network import Link, PortGroup
from rackready.model.problems import RackreadyError
from rackready.model.site import Site, Switch
from rackready.profiles import loader


def whole_ports(switch: Switch) -> tuple[str, ...]:
    """Return the names of all ports of a switch before any breakout, in order."""
    return port_names(loader.switch(switch.model), 1, switch.os)


def group_ports(switch: Switch, group: PortGroup) -> list[str]:
    """Return the whole ports of a group. Raises ValueError when the text is no range."""
    return port_range(group.ports, whole_ports(switch))


def own_ports(switch: Switch) -> list[str]:
    """Return the names of all ports of a switch, in order; a port with breakout as its sub-ports."""
    profile = loader.switch(switch.model)
    ways = {port: group.breakout for group in switch.ports for port in group_ports(switch, group)}
    split = {way: port_names(profile, way, switch.os) for way in {1, *ways.values()}}
    return [
        name
        for place, port in enumerate(split[1])
        for name in split[ways.get(port, 1)][place * ways.get(port, 1) : (place + 1) * ways.get(port, 1)]
    ]


def ports_of_document(switches: Any) -> dict[str, list[str]]:  # noqa: ANN401 - a YAML document
    """Return the names of all ports by switch, from a document that was not checked yet.

    A switch whose model, system or port groups are invalid is left out: it is reported when the document is checked.
    """
    out = {}
    for item in switches if isinstance(switches, list) else []:
        try:
            system, model = item.get("os", ""), loader.switch(item["model"])
            if not system or system in model.os:
                groups = [PortGroup.model_validate(group) for group in item.get("ports", [])]
                switch = Switch.model_construct(name=item["name"], os=system, model=item["model"], ports=groups)
                out[switch.name] = own_ports(switch)
        except (AttributeError, KeyError, TypeError, ValueError, RackreadyError):
            continue
    return out


def port_range(text: str, names: tuple[str, ...] | list[str]) -> list[str]:
    """Return the ports of a range, in the order of the switch: Ethernet0-Ethernet16 is three ports on SONiC.

    A range whose ends are not ports of the switch is expanded by number, so that each missing port can be named.
    Raises ValueError when the text is no range.
    """
    first, _, last = text.partition("-")
    if first in names and (last or first) in names:
        start, end = names.index(first), names.index(last or first)
        if start <= end:
            return list(names[start : end + 1])
    return expand_range(text)


def link_ports(site: Site, link: Link) -> list[str]:
    """Return the switch ports of a link. Raises ValueError when the text is no range."""
    named = site.remember(
        "written ports",
        lambda: {switch.name: own_ports(switch) for switch in site.switches if switch.model in loader.known("switch")},
    )
    return port_range(link.ports, named.get(link.switch, []))
