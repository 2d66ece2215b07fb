"""Where a port sits: the cage of its device, and the connectors of the module in it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from rackready.design.topology.ports import breakout_of, port_names
from rackready.model.profile import PlatformProfile, SwitchProfile
from rackready.profiles import loader
from rackready.profiles.scope import Scoped

CONNECTOR_LANES = 4
"""Lanes of one optical connector each way: SR4, DR4 and FR4 all have four."""
_TWIN = re.compile(r"^(?P<cage>[A-Z]+\d+)P(?P<port>[1-8])$")
"""Port labels of servers whose NICs share a cage: OSFP4P2 is the second port of cage OSFP4.

NVIDIA DGX H100 user guide, table of network modules.
"""


class Socket(NamedTuple):
    """One port.

    ``sub``: its first connector in the cage's module, from 0; ``connectors``: those of the whole cage; ``form``: empty
    if unknown.
    """

    port: str
    cage: str
    sub: int
    connectors: int
    form: str


@dataclass(frozen=True, slots=True)
class SwitchPorts:
    """All ports of a switch model at one link rate, in order; ``lanes`` of each link."""

    sockets: tuple[Socket, ...]
    lanes: int
    layer: str


@Scoped
def switch_ports(model: str, rate: int) -> SwitchPorts | None:
    """Return the ports of a switch model for links of that rate, Gb/s; None if it has none."""
    profile = loader.switch(model)
    ways = breakout_of(profile, rate)
    if ways is None:
        return None
    lanes = max(1, (profile.lanes or 1) // ways)
    group = profile.ports_per_cage * ways
    whole = port_names(profile, 1)
    connectors = max(1, profile.ports_per_cage * (profile.lanes or 1) // CONNECTOR_LANES)
    sockets = []
    for place, name in enumerate(port_names(profile, ways)):
        cage, rest = divmod(place, group)
        sub = rest if lanes < CONNECTOR_LANES else rest * lanes // CONNECTOR_LANES
        sockets.append(Socket(name, whole[cage * profile.ports_per_cage], sub, connectors, profile.cage or ""))
    return SwitchPorts(tuple(sockets), lanes, profile.layer)


def flat(form: str | None) -> str:
    """Return the plug for a cage of a profile: a cage with a riding heat sink takes flat-top plugs."""
    return "osfp_flat" if form == "osfp_riding" else form or ""


@Scoped
def nic_socket(platform: str, rail: int, plane: int, planes: int, lanes: int) -> Socket | None:
    """Return where the link of a rail into a plane leaves a server; None if the server has no such NIC.

    ``planes``: planes that each NIC feeds; ``lanes``: lanes of one link.
    """
    profile = loader.platform(platform)
    nic = next((item for item in profile.nics if item.rail == rail), None)
    if nic is None:
        return None
    own = max(1, lanes // CONNECTOR_LANES)
    within = plane - 1 if planes > 1 else 0
    suffix = f".{plane}" if planes > 1 else ""
    match = _TWIN.match(nic.port)
    if match is None:
        name = nic.port or f"rail{rail}"
        return Socket(f"{name}{suffix}", name, within * own, planes * own, flat(nic.cage))
    first = (int(match["port"]) - 1) * planes * own
    return Socket(
        f"{nic.port}{suffix}",
        match["cage"],
        first + within * own,
        sharing(profile, match["cage"]) * planes * own,
        flat(nic.cage),
    )


def sharing(profile: PlatformProfile, cage: str) -> int:
    """Return how many NICs of a server share a cage."""
    return sum(1 for nic in profile.nics if (match := _TWIN.match(nic.port)) and match["cage"] == cage)


def serves(profile: SwitchProfile, rate: int) -> bool:
    """Return whether a switch has ports for links of that rate, Gb/s."""
    return breakout_of(profile, rate) is not None
