"""Which device of the plan each InfiniBand node is: by its GUID where a list of them is given, else by its name.

Hosts are named by rdma-ndd, '<host> <HCA>'; switches by themselves, 'MF0;<name>:<model>/<chip>'. An adapter without
such a name is not guessed from its cable: that is what is to be checked. Names of the site are in lower case; a switch
may tell its own in upper case, so case does not count.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rackready.drivers.cabling_check.types import End, Seen, Sighting
from rackready.drivers.ib import findings as kinds
from rackready.drivers.ib.discover import IbFabric, IbNode, IbPort
from rackready.drivers.ib.planned import IbPlan
from rackready.drivers.ib.text import guid_text
from rackready.model.outcome import Finding

_SWITCH = re.compile(r"(?:[^;]*;)?(?P<name>[^;:]+?)(?::[^:]*)?")
_HCA = re.compile(r"(?P<host>\S+) (?P<hca>\S+)")
_AGGREGATION = "Mellanox Technologies Aggregation Node"
"""Description of the SHARP node inside a switch: port 41 of a QM8700, 65 of a QM9700. No cable leads there."""
_LISTED = 8


class Unnamed(NamedTuple):
    """An adapter whose cables are not judged. ``host``: its node, where only its HCA is unknown; else empty.

    ``at``: the ports at its far ends, None for one that is not known either.
    """

    words: str
    host: str
    at: tuple[End | None, ...]


@dataclass(slots=True)
class Identified:
    """``ends``: (node GUID, port number) -> port in the plan's names; None: not known. ``seen``: for the judge."""

    seen: Seen
    ends: dict[tuple[int, int], End | None]
    findings: list[Finding] = field(default_factory=list)
    unnamed: tuple[Unnamed, ...] = ()


def identify(
    plan: IbPlan, fabric: IbFabric, guids: Mapping[int, End] | None = None, hosts: Mapping[int, str] | None = None
) -> Identified:
    """Return the fabric in the names of the plan, with a finding for every name that cannot be used.

    ``guids``: node or port GUID -> its device and HCA; for a switch, whose port is empty, its node GUID. ``hosts``:
    port GUID -> its node, where the HCA is not known. Adapters without a usable name are apart: ``unnamed_finding``.
    """
    return _Reader(plan, fabric, guids or {}, hosts or {}).read()


def unnamed_finding(where: str, adapters: Sequence[Unnamed]) -> list[Finding]:
    """Return one finding for all adapters without a usable name: most often they have one cause. None for none."""
    if not adapters:
        return []
    more = f"; and {len(adapters) - _LISTED} more" if len(adapters) > _LISTED else ""
    actual = "; ".join(adapter.words for adapter in adapters[:_LISTED]) + more
    return [kinds.HCA_UNNAMED.found(where, "'<host> <HCA>' of the site", actual, count=len(adapters))]


class _Reader:
    """Names of one fabric."""

    def __init__(self, plan: IbPlan, fabric: IbFabric, guids: Mapping[int, End], hosts: Mapping[int, str]) -> None:
        self._plan, self._fabric, self._guids, self._kept = plan, fabric, guids, hosts
        self._switches = {name.casefold(): name for name in plan.ports}
        self._hosts = {name.casefold(): name for name in plan.hcas}
        self._findings: list[Finding] = []
        self._foreign: dict[str, str] = {}
        self._unnamed: dict[int, str] = {}

    def read(self) -> Identified:
        """Return everything."""
        nodes = [node for node in self._fabric.nodes.values() if not _inside(node)]
        names = {node.guid: self._name(node) for node in nodes}
        self._unique(names)
        inside = {node.guid for node in self._fabric.nodes.values() if _inside(node)}
        ends: dict[tuple[int, int], End | None] = {}
        for node in nodes:
            for port in node.ports.values():
                if port.far.node not in inside:
                    ends[node.guid, port.number] = self._end(node, port, names[node.guid])
        return Identified(self._seen(names, ends), ends, self._findings, self._report(ends))

    def _name(self, node: IbNode) -> End | None:
        """Return the device of a node, for an adapter with its HCA; None if neither GUID nor description tells."""
        given = self._given(node)
        told = self._switch(node) if node.type == "switch" else self._adapter(node)
        if given is None:
            if told is None:
                self._unnamed[node.guid] = self._host(node)
            return told
        known = self._plan.ports if node.type == "switch" else self._plan.hcas
        if told is not None and told.device in known and told.device != given.device:
            where = f"{given}".strip()
            self._findings.append(
                kinds.NAME_CONTRADICTS.found(where, f"{given} at GUID {guid_text(node.guid)}", node.description)
            )
        return given

    def _given(self, node: IbNode) -> End | None:
        return next((self._guids[guid] for guid in _own_guids(node) if guid in self._guids), None)

    def _switch(self, node: IbNode) -> End:
        found = _SWITCH.fullmatch(node.description)
        name = self._switches.get(found["name"].casefold()) if found is not None else None
        if name is not None:
            return End(name, "")
        foreign = f"S-{node.guid:016x}"
        self._foreign[foreign] = f"'{node.description}'"
        return End(foreign, "")

    def _adapter(self, node: IbNode) -> End | None:
        found = _HCA.fullmatch(node.description)
        if found is None:
            return None
        host = self._site_host(found["host"])
        if host is None:
            self._foreign[node.description] = f"GUID {guid_text(node.guid)}"
            return End(node.description, "")
        if host in self._plan.unnumbered:
            return End(host, "")
        alike = {name.rstrip("0123456789") for name in self._plan.hcas[host]}
        return End(host, found["hca"]) if found["hca"].rstrip("0123456789") in alike else None

    def _site_host(self, told: str) -> str | None:
        name = told.casefold()
        return self._hosts.get(name) or self._hosts.get(name.partition(".")[0])

    def _host(self, node: IbNode) -> str:
        """Return the node of an adapter whose HCA is not known; empty if that is not known either."""
        found = _HCA.fullmatch(node.description)
        told = self._site_host(found["host"]) if found is not None else None
        return told or next((self._kept[guid] for guid in _own_guids(node) if guid in self._kept), "")

    def _unique(self, names: dict[int, End | None]) -> None:
        """Take a name that several nodes carry from all of them."""
        by_name: dict[End, list[int]] = defaultdict(list)
        for guid, name in names.items():
            if name is not None and name.device not in self._plan.unnumbered:
                by_name[name].append(guid)
        for name, guids in sorted(by_name.items()):
            if len(guids) > 1:
                alike = [self._fabric.nodes[guid] for guid in sorted(guids)]
                told = ", ".join(f"{guid_text(node.guid)} '{node.description}'" for node in alike)
                self._findings.append(kinds.NAME_TWICE.found(str(name), "one GUID", told))
                names.update(dict.fromkeys(guids))

    def _end(self, node: IbNode, port: IbPort, name: End | None) -> End | None:
        if name is None:
            return None
        if node.type == "switch":
            known = name.device in self._plan.ports
            return self._plan.switch_end(name.device, port.number) if known else End(name.device, str(port.number))
        if not name.port:
            return End(name.device, "" if name.device in self._plan.unnumbered else str(port.number))
        # The plan names an HCA by its device; a second port of it is a port of its own.
        return name if port.number == 1 else End(name.device, f"{name.port}/{port.number}")

    def _seen(self, names: Mapping[int, End | None], ends: Mapping[tuple[int, int], End | None]) -> Seen:
        sightings, unidentified = [], set()
        for (guid, number), local in ends.items():
            port = self._fabric.nodes[guid].ports[number]
            remote = ends.get(port.far)
            if local is not None and remote is None:
                unidentified.add(local)
            elif local is not None and remote is not None and local.port:
                sightings.append(Sighting(local, remote, port.rate, port.width, port.words))
        devices = {name.device for name in names.values() if name is not None} - self._plan.unnumbered
        return Seen(frozenset(devices), tuple(sightings), frozenset(unidentified), self._foreign)

    def _report(self, ends: Mapping[tuple[int, int], End | None]) -> tuple[Unnamed, ...]:
        out = []
        for guid, host in sorted(self._unnamed.items()):
            node = self._fabric.nodes[guid]
            at = tuple(ends.get(port.far) for port in node.ports.values())
            far = " and ".join(str(end or "an unknown port") for end in at) or "no port"
            out.append(Unnamed(f"{guid_text(guid)} '{node.description}' at {far}", host, at))
        return tuple(out)


def _own_guids(node: IbNode) -> list[int]:
    return [node.guid, *(port.guid for port in node.ports.values() if port.guid)]


def _inside(node: IbNode) -> bool:
    """Return whether a node is part of a switch, and no cable leads to it."""
    return node.type == "ca" and node.description.startswith(_AGGREGATION)
