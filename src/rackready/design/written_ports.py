"""Ports of switches that the site file writes by hand: their names, and ranges of them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from rackready.design.names import listed
from rackready.design.topology.ports import port_names
from rackready.model.base import expand_range
from rackready.model.network import Link, PortGroup
from rackready.model.problems import Message, RackreadyError
from rackready.model.site import Site, Switch
from rackready.profiles import loader

_NUMBERS = re.compile(r"(\d+)(?:-(\d+))?")


@dataclass(frozen=True, slots=True)
class Ports:
    """Names of a switch's ports in order. ``numbered``: the site may write their numbers from 1 in place of names."""

    names: tuple[str, ...] = ()
    numbered: bool = False

    def listed(self, text: str) -> list[str]:
        """Return the ports of a range, in the order of the switch: Ethernet0-Ethernet16 is three ports on SONiC.

        A range whose ends are not ports of the switch is expanded by number, so that each missing port can be named.
        Raises ValueError when the text is no range.
        """
        first, _, last = text.partition("-")
        found = _NUMBERS.fullmatch(text)
        if found is not None and self.numbered and first not in self.names:
            return [self._numbered(int(number)) for number in expand_range(text)]
        if first in self.names and (last or first) in self.names:
            start, end = self.names.index(first), self.names.index(last or first)
            if start <= end:
                return list(self.names[start : end + 1])
        return expand_range(text)

    def _numbered(self, number: int) -> str:
        return self.names[number - 1] if 1 <= number <= len(self.names) else f"{number}"


def ports_of(switch: Switch) -> Ports:
    """Return the ports of a switch after breakout.

    Those of an InfiniBand switch without a login are known by number, too: ibnetdiscover prints no other name.
    """
    return Ports(tuple(own_ports(switch)), _is_numbered(switch))


def _is_numbered(switch: Switch) -> bool:
    return not switch.os and loader.switch(switch.model).layer == "infiniband"


def whole_ports(switch: Switch) -> tuple[str, ...]:
    """Return the names of all ports of a switch before any breakout, in order."""
    return port_names(loader.switch(switch.model), 1, switch.os)


def group_ports(switch: Switch, group: PortGroup) -> list[str]:
    """Return the whole ports of a group. Raises ValueError when the text is no range."""
    return Ports(whole_ports(switch), _is_numbered(switch)).listed(group.ports)


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


def ways_of(switch: Switch) -> set[int]:
    """Return the breakouts of a switch's ports: {1} without any."""
    split = {port: group.breakout for group in switch.ports for port in group_ports(switch, group)}
    return {split.get(port, 1) for port in whole_ports(switch)}


def mixed_ports(site: Site) -> Message | None:
    """Return the InfiniBand switches that are split in part: how such a switch numbers its ports is not known.

    One whose ports are all split counts its sub-ports: 1, 2 for the first cage's first port (a public ibnetdiscover of
    an MQM9700 with 129 ports of 2xNDR).
    """
    known = loader.known("switch")
    own = [switch for switch in site.switches if switch.role == "compute" and switch.model in known]
    names = [switch.name for switch in own if _is_numbered(switch) and len(ways_of(switch)) > 1]
    if site.topology is not None or not names:
        return None
    step = "Give all of its ports one breakout: rackready does not know yet how a switch with both numbers its ports."
    return Message(listed(names), "breakout", "the same of all ports", "whole ports and sub-ports", next_step=step)


def ports_of_document(switches: Any) -> dict[str, Ports]:  # noqa: ANN401 - a YAML document
    """Return all ports by switch, from a document that was not checked yet.

    A switch whose model, system or port groups are invalid is left out: it is reported when the document is checked.
    """
    out = {}
    for item in switches if isinstance(switches, list) else []:
        try:
            system, model = item.get("os", ""), loader.switch(item["model"])
            if not system or system in model.os:
                groups = [PortGroup.model_validate(group) for group in item.get("ports", [])]
                switch = Switch.model_construct(name=item["name"], os=system, model=item["model"], ports=groups)
                out[switch.name] = ports_of(switch)
        except (AttributeError, KeyError, TypeError, ValueError, RackreadyError):
            continue
    return out


def link_ports(site: Site, link: Link) -> list[str]:
    """Return the switch ports of a link. Raises ValueError when the text is no range."""
    named = site.remember(
        "written ports",
        lambda: {switch.name: ports_of(switch) for switch in site.switches if switch.model in loader.known("switch")},
    )
    return named.get(link.switch, Ports()).listed(link.ports)
