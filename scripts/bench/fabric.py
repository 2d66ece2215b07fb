"""Measure judging a fabric once its readings are in. usage: scripts/bench/fabric.py [PORTS ...].

``cabling_seconds``: planned cables against what both ends hear by LLDP; ``ends_seconds``: every setting at both ends.
One cable in a hundred is crossed with its neighbour, and one in a hundred has a wrong setting at one end. One JSON line
per case.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from scripts.bench.cases import Clock, Line, each

if TYPE_CHECKING:
    from rackready.design.switches import SwitchConfig
    from rackready.drivers.cabling_check.types import PlannedCable
    from rackready.drivers.switch.base import Neighbour
    from rackready.drivers.switch.lldp_seen import Told

CASES = (2_000, 10_000)
RAILS = 8
LEAF = 128
"""Ports of a leaf: an SN5600 in halves. Each leaf carries one rail."""
EVERY = 100
"""One cable of so many is crossed with the next one of its leaf, and one has a wrong setting."""
HOST_MTU, SWITCH_MTU, RATE = 9000, 9216, 400


@dataclass(frozen=True)
class Hall:
    """Cables of a fabric, and its switches."""

    cables: list[PlannedCable]
    configs: list[SwitchConfig]

    @property
    def nodes(self) -> list[str]:
        """Return the nodes, each once."""
        return list(dict.fromkeys(cable.a.device for cable in self.cables))


def hall(ports: int) -> Hall:
    """Return a fabric with so many cabled ports: RAILS cables a node, each to the leaf of its rail."""
    from rackready.design.qos import QosFacts  # noqa: PLC0415 - only the measuring process needs it
    from rackready.design.switches import PortConfig, SwitchConfig  # noqa: PLC0415
    from rackready.drivers.cabling_check.types import PlannedCable, PlannedEnd  # noqa: PLC0415

    qos = QosFacts(26, 3, 48, 6, 106, tuple(priority == 3 for priority in range(8)))  # noqa: PLR2004
    cables, by_leaf = [], dict[str, list[PortConfig]]()
    for number in range(ports):
        node, rail = number // RAILS, number % RAILS + 1
        leaf, port = f"leaf-{node // LEAF:03d}-{rail}", f"swp{node % LEAF + 1}"
        near = PlannedEnd(f"node{node:05d}", f"rail{rail}np0", f"g{node // 4:04d}", node % 4 * 8 + 1, rail)
        cables.append(PlannedCable(near, PlannedEnd(leaf, port, "net", 1, rail), RATE))
        ours = PortConfig(port, near.device, near.port, rail, 900 + rail, SWITCH_MTU, "bench", RATE, "rs")
        by_leaf.setdefault(leaf, []).append(ours)
    switches = [SwitchConfig(name, "bench", (), tuple(own), qos) for name, own in by_leaf.items()]
    return Hall(cables, switches)


def readings(built: Hall) -> list[Told]:
    """Return what every device hears, with some cables crossed."""
    from rackready.drivers.switch.base import Neighbour  # noqa: PLC0415
    from rackready.drivers.switch.lldp_seen import Told  # noqa: PLC0415

    ends = [(cable.a, cable.b) for cable in built.cables]
    for first in range(0, len(ends) - RAILS, EVERY * RAILS):
        (one, here), (other, there) = ends[first], ends[first + RAILS]
        ends[first], ends[first + RAILS] = (one, there), (other, here)
    heard: dict[str, dict[str, list[Neighbour]]] = {}
    for one, other in ends:
        for near, far in ((one, other), (other, one)):
            said = Neighbour(far.device, f"chassis-{far.device}", far.port, "ifname")
            heard.setdefault(near.device, {})[near.port] = [said]
    return [Told(name, own, (f"chassis-{name}",), rates=dict.fromkeys(own, RATE)) for name, own in heard.items()]


def ends(built: Hall) -> int:
    """Compare every setting of every cable; return the number of findings."""
    from rackready.drivers.switch.agreement import compare  # noqa: PLC0415
    from rackready.drivers.switch.base import PortState, RoceState, SwitchState  # noqa: PLC0415
    from rackready.drivers.switch.ends import HostQos, Intent  # noqa: PLC0415

    mapping = {dscp: dscp // 8 for dscp in range(64)}
    roce = RoceState("lossless", frozenset({3}), trusts_dscp=True, dscp_priority=mapping, ecn=frozenset({0, 3}))
    good = HostQos(
        "dscp", frozenset({3}), HOST_MTU, mapping, ecn=True, speed=RATE, fec="rs", cm_version="v2", cm_tos=106,
        verbs_tos=106, gid_types=("RoCE v2",), gid_index=3,
    )  # fmt: skip
    bad = replace(good, mtu=1500)
    found = 0
    for config in built.configs:
        state = SwitchState(
            {port.name: PortState(True, True, SWITCH_MTU, port.vlan, RATE, "rs") for port in config.ports},  # noqa: FBT003
            roce,
        )
        intent = Intent(config.qos, HOST_MTU, RATE)
        for place, port in enumerate(config.ports):
            host = bad if place % EVERY == 0 else good
            found += len(compare(port.node, config, state, [(port, host)], {port.netdev: intent})[0])
    return found


def measure(ports: int) -> Line:
    """Judge a fabric of so many ports; return wall-clock and process seconds, MiB, and what was found."""
    from rackready.drivers.switch.cabling import judged  # noqa: PLC0415

    built = hall(ports)
    told = readings(built)
    clock, cabling = Clock(), Clock()
    found = judged(built.cables, told, built.nodes)
    first = cabling.line()["seconds"]
    second = Clock()
    differing = ends(built)
    crossed = {str(item) for items in found.findings.values() for item in items}
    expected = len(range(0, ports - RAILS, EVERY * RAILS))
    if len(crossed) != expected or not differing:
        raise SystemExit(f"{len(crossed)} crossed pairs found, {expected} made; {differing} settings found")
    return {
        "bench": "fabric",
        "n": ports,
        **clock.line(),
        "cabling_seconds": first,
        "ends_seconds": second.line()["seconds"],
        "crossed": len(crossed),
        "settings": differing,
    }


if __name__ == "__main__":
    each(__file__, CASES, measure)
