"""Switch operating systems: one entry each, and plug-ins (entry points ``rackready.switches``).

An entry is data: a plan names ports and checks settings without importing a driver.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rackready.design import eos_limits, nvue_preset, nxos_limits
from rackready.design.ecn import EcnThresholds
from rackready.design.qos import QosFacts, QosProblem
from rackready.entry_points import SWITCHES, named, names


def _no_problems(_qos: QosFacts) -> list[QosProblem]:
    return []


@dataclass(frozen=True, slots=True)
class SwitchSystem:
    """A switch operating system.

    ``driver``: class of ``SwitchDriver``, as ``module:Class``. ``username``: its own first user. ``port``: name of a
    whole port; None: the name in the switch profile. ``sub_port``: name of a sub-port of a port that is split. In
    both, ``{port}`` is the profile's name of the whole port, ``{cage}`` its number from 1, ``{sub}`` the number of the
    sub-port from 0, ``{place}`` from 1, ``{lane}`` its first electrical lane on the switch, from 0, and ``{within}``
    the same lane in its cage, from 1. ``qos_problems``: the values of ``fabric.qos`` that its driver cannot apply.
    ``routes``: whether the driver configures routing, breakout, speed and FEC. ``most_mtu``: largest MTU of a port,
    bytes. ``underlay``: the kinds of links between switches over which its driver routes (``networks.underlay.links``).
    ``adaptive``: the switch chips and speeds of links (Gb/s) between which its driver sets adaptive routing.
    ``sets_ecn``: whether its driver sets the thresholds of ``fabric.qos.ecn``. ``own_ecn``: the thresholds that the
    system has by itself at every speed, to compare with what it reports; None: not known, or by speed. ``isolates``:
    whether its driver gives tenants VRFs of their own.
    """

    driver: str
    username: str = "admin"
    sub_port: str = "{port}/{place}"
    qos_problems: Callable[[QosFacts], list[QosProblem]] = _no_problems
    port: str | None = None
    routes: bool = False
    most_mtu: int = 9216
    underlay: frozenset[str] = frozenset({"unnumbered", "numbered"})
    adaptive: frozenset[tuple[str, int]] = frozenset()
    sets_ecn: bool = False
    own_ecn: EcnThresholds | None = None
    isolates: bool = False

    def problems(self, os: str, qos: QosFacts) -> list[QosProblem]:
        """Return the values of ``fabric.qos`` that its driver cannot apply. ``os``: its name."""
        found = self.qos_problems(qos)
        if qos.ecn and not self.sets_ecn:
            what = f"rackready gives all ports of {os} the same ECN thresholds"
            speeds = f"those of {', '.join(str(one.speed) for one in qos.ecn)} Gb/s"
            found = [*found, QosProblem("ecn", what, "none in the site", speeds, "Leave it out.")]
        return found


SYSTEMS: dict[str, SwitchSystem] = {
    # Sub-ports: Cumulus Linux, "Switch Port Attributes", breakout ports: swp1s0 to swp1s3.
    "cumulus_nvue": SwitchSystem(
        "rackready.drivers.switch.cumulus_nvue:CumulusNvue",
        "cumulus",
        "{port}s{sub}",
        nvue_preset.problems,
        routes=True,
        # Cumulus Linux 5.15, "Equal Cost Multipath Load Sharing", Adaptive Routing: Spectrum-4 at 400G and 200G.
        adaptive=frozenset({("Spectrum-4", 200), ("Spectrum-4", 400)}),
        sets_ecn=True,
        own_ecn=nvue_preset.ECN,
        isolates=True,
    ),
    # Ports by their first electrical lane: sonic-buildimage @086b03bd70 device/mellanox/*/platform.json.
    "sonic": SwitchSystem(
        "rackready.drivers.switch.sonic:Sonic",
        "admin",
        "Ethernet{lane}",
        port="Ethernet{lane}",
        routes=True,
        sets_ecn=True,
    ),
    # Lanes of a cage are ports: Ethernet1/1 and Ethernet1/5 when split in two (Arista, transceiver TOI). MTU: EOS user
    # manual, `mtu` takes 68 to 9214.
    "arista_eos": SwitchSystem(
        "rackready.drivers.switch.arista_eos:AristaEos",
        "admin",
        "Ethernet{cage}/{within}",
        eos_limits.problems,
        "Ethernet{cage}/1",
        routes=True,
        most_mtu=9214,
    ),
    # Sub-ports: Ethernet1/1/1 (Cisco, Nexus 9000 interfaces guide, breakout). Neighbours of a link without addresses
    # are in no source that we found.
    "cisco_nxos": SwitchSystem(
        "rackready.drivers.switch.cisco_nxos:CiscoNxos",
        "admin",
        "Ethernet1/{cage}/{place}",
        nxos_limits.problems,
        "Ethernet1/{cage}",
        routes=True,
        underlay=frozenset({"numbered"}),
    ),
}


def system_of(os: str) -> SwitchSystem | None:
    """Return the entry of a switch operating system, or None. Raises PlugInError for a plug-in that cannot be used."""
    plug_in = named(SWITCHES, os, os in SYSTEMS)
    if plug_in is None:
        return SYSTEMS.get(os)
    system = plug_in.load(SwitchSystem)
    try:
        for pattern in (system.sub_port, system.port or ""):
            pattern.format(port="swp1", cage=1, sub=0, place=1, lane=0, within=1)
    except (LookupError, ValueError) as error:
        fields = "{port}, {cage}, {sub}, {place}, {lane} or {within}"
        plug_in.refuse(f"its port and sub_port use {fields} only", repr(system.sub_port), error)
    return system


def known_systems() -> list[str]:
    """Return the names of all systems, those of plug-ins included."""
    return sorted({*SYSTEMS, *names(SWITCHES)})
