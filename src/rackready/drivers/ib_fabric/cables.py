"""Cables of an InfiniBand fabric as its subnets were read: findings of each node, and adapters of no known node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rackready.design.names import listed
from rackready.design.plan import lay
from rackready.drivers.cabling_check.judge import judge
from rackready.drivers.cabling_check.owners import Owners
from rackready.drivers.cabling_check.types import End
from rackready.drivers.ib.discover import IbFabric
from rackready.drivers.ib.identity import Unnamed, identify, unnamed_finding
from rackready.drivers.ib.planned import planned_cables
from rackready.drivers.ib_fabric.reading import NodeReading, SubnetReading
from rackready.model.outcome import Finding
from rackready.model.site import Site

_SHOWN = 3
Guids = Mapping[str, Sequence[str]]
"""Node -> GUIDs of its ports, 16 hex digits each."""


@dataclass(frozen=True, slots=True)
class Cables:
    """Findings, each with the checked nodes that it concerns: of one about switches, all behind them.

    ``unnamed``: adapters whose cables were not judged, each with the checked nodes at whose ports they may be.
    """

    findings: list[tuple[Finding, set[str]]] = field(default_factory=list)
    unnamed: list[tuple[Unnamed, set[str]]] = field(default_factory=list)

    def of(self, node: str) -> list[Finding]:
        """Return the findings of a checked node."""
        own = [adapter for adapter, concerned in self.unnamed if node in concerned]
        return [*(finding for finding, concerned in self.findings if node in concerned), *unnamed_finding(node, own)]

    def remarks(self, node: str) -> list[str]:
        """Return what is noted of adapters that are not at the node's ports: nothing of it is unproven by them."""
        others = [adapter.words for adapter, concerned in self.unnamed if node not in concerned]
        return [f"adapters of no known node, whose cables were not judged: {listed(others, _SHOWN)}"] if others else []


def compare(
    site: Site,
    nodes: Sequence[str],
    ports: Mapping[str, NodeReading],
    seen: Sequence[SubnetReading],
    kept: Guids | None = None,
) -> Cables:
    """Return the comparison of all subnets that were read with the plan: pure.

    ``kept``: GUIDs of nodes as an earlier run read them: a node that is off tells none, and its adapters may lose their
    descriptions.
    """
    read = [reading.fabric for reading in seen if reading.fabric is not None]
    if not read:
        return Cables()
    whole = IbFabric({guid: node for fabric in read for guid, node in fabric.nodes.items()})
    plan = planned_cables(lay(site))
    owners = Owners(plan.cables, nodes, lambda cable: cable.a.device in plan.ports)
    hosts = {int(guid, 16): node for node, guids in (kept or {}).items() for guid in guids}
    known = identify(plan, whole, _guids(site, ports), hosts)
    found = [*known.findings, *judge(plan.cables, known.seen)]
    checked = frozenset(nodes)
    return Cables(
        [(finding, owners.of(finding)) for finding in found],
        [(adapter, _concerned(adapter, owners) | ({adapter.host} & checked)) for adapter in known.unnamed],
    )


def _concerned(adapter: Unnamed, owners: Owners) -> set[str]:
    """Return the checked nodes at whose ports an adapter is."""
    return {node for end in adapter.at if end is not None for node in owners.at(end)}


def _guids(site: Site, ports: Mapping[str, NodeReading]) -> dict[int, End]:
    """Return GUID -> device: of ports, as the nodes themselves say (a description may be old), and of switches."""
    switches = {int(switch.guid, 16): End(switch.name, "") for switch in site.switches if switch.guid is not None}
    return switches | {
        int(str(port["port_guid"]), 16): End(node, device)
        for node, reading in ports.items()
        for device, port in reading.ports.items()
        if port.get("port_guid")
    }
