"""The simulated rack as computed from the site: machines, addresses, BMCs, cables. Pure."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path
from typing import Literal

from rackready.design.handover_of import handover_views
from rackready.design.wiring import trunk_ends
from rackready.model.site import Site
from rackready_sim.built import machine_facts
from rackready_sim.errors import describe
from rackready_sim.hardware import port_identity

Role = Literal["node", "switch", "mirror", "controller", "fabric"]

_POOL = IPv4Network("10.64.0.0/10")
_MIRROR, _FABRIC, _CONTROLLER, _SWITCH, _BMC = 2, 4, 5, 20, 100
_FIRST_NODES = 10
_MAX_NODES, _MAX_SWITCHES = 120, 10
BMC_PORT = 8443
MIRROR_PORT = 8080
KUBERNETES_PORT = 6443
FABRIC = "ibfabric"
FABRIC_PORT = 7060
"""Machine with the InfiniBand switches, and the port at which nodes tell it of theirs (programs/hwsim/ib)."""


@dataclass(frozen=True, slots=True)
class Machine:
    """One container: name in the site, kind, address and its last octet."""

    name: str
    role: Role
    octet: int
    address: str
    container: str


@dataclass(frozen=True, slots=True)
class Cable:
    """One cable from a node's NIC to a switch port; ``switch`` is empty if the cable is not plugged in."""

    node: str
    rail: int
    netdev: str
    mac: str
    switch: str
    port: str


@dataclass(frozen=True, slots=True)
class Trunk:
    """One cable between two switches, and the port at each end."""

    lower: str
    lower_port: str
    upper: str
    upper_port: str


@dataclass(frozen=True, slots=True)
class RackPlan:
    """The whole rack."""

    clone: str
    subnet: IPv4Network
    machines: dict[str, Machine]
    cables: dict[str, tuple[Cable, ...]]
    bmcs: dict[str, str]
    trunks: tuple[Trunk, ...] = ()
    metal: tuple[str, ...] = ()
    """Nodes that are machines of QEMU; they have no container."""

    @property
    def bridge(self) -> str:
        """Name of the management bridge on this machine."""
        return f"rr-{self.clone}"

    @property
    def gateway(self) -> str:
        """This machine's own address in the rack."""
        return str(self.subnet[1])

    def of(self, role: Role) -> list[Machine]:
        """Return every machine of one kind, in the order of the site file."""
        return [item for item in self.machines.values() if item.role == role]


def clone_id(root: Path) -> str:
    """Return the identity of a checkout: six hex digits from its absolute path."""
    return hashlib.sha256(str(root.resolve()).encode()).hexdigest()[:6]


def build_plan(
    site: Site, *, clone: str, subnet: IPv4Network, loopback: str, metal: int = 0, bare: bool = False
) -> RackPlan:
    """Return the rack of a site.

    ``loopback`` is the first three octets of the BMCs' network (127.x.y). The first ``metal`` nodes are bare metal;
    ``bare`` leaves out every other machine. Raises SimError if the site is larger than one simulated rack can be, or
    has fewer nodes.
    """
    nodes, switches = site.nodes(), site.switches
    if site.handover.kind == "several" and not bare:
        kinds = ", ".join(view.site.handover.kind for view in handover_views(site))
        step = "Rehearse each part by a site file of its own, with its nodes and its scheduler."
        raise describe("the scheduler of the simulated rack", "one", kinds, step)
    if metal > len(nodes) or (bare and metal < len(nodes)):
        wanted = f"{len(nodes)}, because no other machine is made" if bare else f"at most {len(nodes)}"
        raise describe("bare-metal nodes (--metal)", wanted, str(metal), "Give another number, or another site.")
    if len(nodes) > _MAX_NODES or len(switches) > _MAX_SWITCHES:
        actual = f"{len(nodes)} nodes, {len(switches)} switches"
        raise describe(
            "the simulated rack",
            f"at most {_MAX_NODES} nodes and {_MAX_SWITCHES} switches",
            actual,
            "Rehearse with a smaller site file.",
        )
    machines = {} if bare else _around(site, clone, subnet)
    for index, node in enumerate(nodes, 1):
        machines[node.name] = _machine(clone, subnet, node.name, "node", _node_octet(index))
    chosen = tuple(node.name for node in nodes[:metal])
    cables = {node.name: () if node.name in chosen else _cables(site, node.name) for node in nodes}
    bmcs = {node.name: f"{loopback}.{_BMC + index}" for index, node in enumerate(nodes, 1)}
    return RackPlan(clone, subnet, machines, cables, bmcs, () if bare else _trunks(site), chosen)


def _around(site: Site, clone: str, subnet: IPv4Network) -> dict[str, Machine]:
    """Return every machine that is not a node."""
    machines = {"mirror": _machine(clone, subnet, "mirror", "mirror", _MIRROR)}
    if site.handover.kind == "slurm":
        machines["slurmctl"] = _machine(clone, subnet, "slurmctl", "controller", _CONTROLLER)
    if site.fabric.kind == "infiniband":  # one machine stands for all InfiniBand switches
        machines[FABRIC] = _machine(clone, subnet, FABRIC, "fabric", _FABRIC)
    for index, switch in enumerate(() if site.fabric.kind == "infiniband" else site.switches, 1):
        machines[switch.name] = _machine(clone, subnet, switch.name, "switch", _SWITCH + index)
    return machines


def subnet_candidates(clone: str) -> list[IPv4Network]:
    """Return every /24 of 10.64.0.0/10, starting at one derived from the checkout's identity to avoid collisions."""
    nets = list(_POOL.subnets(new_prefix=24))
    start = int(clone, 16) % len(nets)
    return nets[start:] + nets[:start]


def choose_subnet(clone: str, taken: list[IPv4Network]) -> IPv4Network:
    """Return the first candidate that overlaps no taken network (routes, other networks). Raise SimError if none is."""
    for net in subnet_candidates(clone):
        if not any(net.overlaps(other) for other in taken):
            return net
    actual = "every one overlaps a route of this machine"
    raise describe("network of the simulated rack", f"a free /24 in {_POOL}", actual, "Remove a route, then run again.")


def loopback_candidates(clone: str) -> list[str]:
    """Return loopback networks (three octets) for the BMCs, the checkout's own first; never 127.0.0."""
    start = int(clone, 16)
    return [f"127.{1 + (start + step) % 254}.{(start // 254 + step) % 256}" for step in range(64)]


def _node_octet(index: int) -> int:
    """Return a node's last octet: from .11 for the first ten nodes, from .31 for later ones, beyond the switches."""
    return 10 + index if index <= _FIRST_NODES else 20 + index


def _machine(clone: str, subnet: IPv4Network, name: str, role: Role, octet: int) -> Machine:
    return Machine(name, role, octet, str(subnet[octet]), f"rr-{clone}-{name}")


def _trunks(site: Site) -> tuple[Trunk, ...]:
    """Return the cables between the switches of the site file, each once."""
    known = {switch.name for switch in site.switches}
    return tuple(
        Trunk(switch, end.port, end.peer, end.peer_port)
        for switch, ends in trunk_ends(site).items()
        for end in ends
        if {switch, end.peer} <= known and (switch, end.port) < (end.peer, end.peer_port)
    )


def _cables(site: Site, node: str) -> tuple[Cable, ...]:
    if site.fabric.kind == "infiniband":  # no interface of the kernel is at its end
        return ()
    facts = machine_facts(site, node)
    return tuple(
        Cable(node, nic.rail, nic.netdev, port_identity(facts.index, nic.rail)[0], nic.switch, nic.port)
        for nic in facts.nics
    )
