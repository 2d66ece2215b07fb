"""The nodes beside a repaired one, and their gates whose evidence is about what was touched.

Pulling a server moves its cables, and with them the modules at the leaf that it shares with others; a new tray joins
the NVLink domain anew; a measurement between two nodes was made with the parts that one of them no longer has. Only
gates between nodes are void: every run looks at links and counters of each node again anyway.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from rackready.design.cabling.sockets import switch_ports
from rackready.design.check_groups import domain_nodes, domains_of_nodes
from rackready.design.facts import node_facts
from rackready.design.wiring import cables, topology_fabric
from rackready.evidence.store import EvidenceStore
from rackready.gates.engine.registry import gate
from rackready.gates.fabric.domains import spans_nodes
from rackready.ledger.part_history import GateVoid
from rackready.model.evidence import EvidenceRecord
from rackready.model.site import Site
from rackready.profiles import loader
from rackready.profiles.scope import Scoped


@dataclass(slots=True)
class Peer:
    """One node beside the repaired one. ``why``: in words; ``gates``: those whose evidence no longer counts."""

    node: str
    why: list[str] = field(default_factory=list)
    gates: set[str] = field(default_factory=set)

    def add(self, why: str, gates: Sequence[str]) -> None:
        """Add a reason and its gates."""
        self.why += [why] if why not in self.why else []
        self.gates |= set(gates)


def peers(site: Site, store: EvidenceStore, node: str) -> list[Peer]:
    """Return the peers of a node with at least one gate, in the site's order."""
    between = [entry.id for entry in loader.gates_of(site.gates) if gate(entry.id, {}).min_nodes > 1]
    fabric = [name for name in between if name.split("/")[1] == "fabric"]
    found: dict[str, Peer] = {}
    for other in in_domain(site, node):
        found.setdefault(other, Peer(other)).add(f"in the NVLink domain of {node}", between)
    for other, place in beside_at_switch(site, node):
        found.setdefault(other, Peer(other)).add(f"its cable shares {place} with one of {node}", fabric)
    for other, name in measured_with(store, node):
        if name in between:
            found.setdefault(other, Peer(other)).add(f"measured with {node}", [name])
    order = [item.name for item in site.nodes()]
    return sorted((peer for peer in found.values() if peer.gates), key=lambda peer: order.index(peer.node))


def voids(found: Sequence[Peer], node: str, at: float) -> list[GateVoid]:
    """Return what the ledger keeps of it. ``at``: when the node came back, s since 1970."""
    words = f"{node} came back from its vendor"
    return [
        GateVoid(peer.node, name, f"{words} ({'; '.join(peer.why)})", at)
        for peer in found
        for name in sorted(peer.gates)
    ]


def in_domain(site: Site, node: str) -> list[str]:
    """Return the other nodes of a node's NVLink domain; none where a domain is one server."""
    domain = domains_of_nodes(site).get(node)
    out = domain_nodes(site, domain) if domain is not None else []
    if not out and spans_nodes(node_facts(site, node)):
        out = [item.name for item in site.rack_of(node).nodes]
    return [name for name in dict.fromkeys(out) if name != node]


def beside_at_switch(site: Site, node: str) -> Iterator[tuple[str, str]]:
    """Yield the nodes whose cables end in the same cage of a switch as one of a node's: a module with two ports."""
    models = {switch.name: switch.model for switch in topology_fabric(site).switches}
    models |= {switch.name: switch.model for switch in site.switches}
    known, wired = {item.name for item in site.nodes()}, cables(site)
    own = {(end, rail) for (owner, rail), end in wired.items() if owner == node}
    switches = {switch for (switch, _), _ in own}
    cages = {(end[0], _cage(site, models, node, rail, end)) for end, rail in own}
    for (owner, rail), end in wired.items():
        if owner != node and owner in known and end[0] in switches:
            cage = _cage(site, models, owner, rail, end)
            if cage and (end[0], cage) in cages:
                yield owner, f"{end[0]} {cage}"


def _cage(site: Site, models: Mapping[str, str], node: str, rail: int, end: tuple[str, str]) -> str:
    """Return the cage of a port of a switch, "" where the switch's profile does not tell."""
    switch, port = end
    rate = next((nic.rate for nic in loader.platform(site.node(node).platform).nics if nic.rail == rail), 0)
    if not rate or switch not in models:
        return ""
    return _cages(models[switch], rate).get(port, "")


@Scoped
def _cages(model: str, rate: int) -> Mapping[str, str]:
    ports = switch_ports(model, rate)
    return {item.port: item.cage for item in ports.sockets} if ports is not None else {}


def measured_with(store: EvidenceStore, node: str) -> list[tuple[str, str]]:
    """Return (other node, gate) for every newest conclusion about it that a run with this node gave."""
    runs: dict[tuple[str, str, str], EvidenceRecord] = {}
    for record in store.records(node=node):
        for other in record.nodes:
            if other != node:
                runs[other, record.gate, record.campaign] = record
    out = []
    for other in dict.fromkeys(name for name, _, _ in runs):
        newest = store.concluded(other)
        out += [(other, name) for name, record in newest.items() if (other, name, record.campaign) in runs]
    return out
