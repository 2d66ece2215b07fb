"""Checks of given addresses: they must be usable by hosts and free of subnets, gateways and NICs of rails."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from ipaddress import IPv4Address, IPv4Network, collapse_addresses

from rackready.design.address_space import foreign, span, unusable
from rackready.design.assign import FIRST_HOST
from rackready.design.check_names import Loc
from rackready.design.handover_of import handover_places
from rackready.design.site_flaws import ADDRESS, Flaw, Subject
from rackready.model.network import Networks
from rackready.model.site import Site
from rackready.profiles import loader

GATEWAY_HOST = 1
"""Host number of the gateway in a block or subnet."""

MANAGED = ("oob", "in_band", "storage")

Given = Iterator[tuple[IPv4Address, Loc, str]]
"""(address, location in the site file, owner)."""


def given_addresses(site: Site) -> Given:
    """Yield the addresses of nodes, BMCs, switches, devices and the Slurm controller."""
    for r, rack in enumerate(site.racks):
        for n, node in enumerate(rack.nodes):
            here: Loc = ("racks", r, "nodes", n)
            yield node.address, (*here, "address"), f"node {node.name}"
            if node.bmc.address is not None:
                yield node.bmc.address, (*here, "bmc", "address"), f"the BMC of {node.name}"
    for s, switch in enumerate(site.switches):
        if switch.address is not None:
            yield switch.address, ("switches", s, "address"), f"switch {switch.name}"
    for d, device in enumerate(site.devices):
        if device.address is not None:
            yield device.address, ("devices", d, "address"), f"device {device.name}"
    controllers: set[IPv4Address] = set()
    for place, view in handover_places(site):
        if view.handover.kind == "slurm" and view.handover.controller not in controllers:
            controllers.add(view.handover.controller)  # two parts with one controller: check_parts reports that
            of_part = f" of part {view.part.called}" if view.part is not None else ""
            yield view.handover.controller, (*place, "controller"), f"the Slurm controller{of_part}"


def check_given(subject: Subject) -> list[Flaw]:
    """Return given addresses that a host cannot use or that something else already has.

    These are addresses that no host can have, that belong to others, to a subnet itself, to its gateway or to a NIC of
    a rail.

    Addresses outside all pools and rails are not compared with any: their subnets are not known.
    """
    site, networks = subject.site, subject.site.networks
    given = [*given_addresses(site), *(_servers(networks) if networks is not None else ())]
    out = _space(subject, given)
    wrong = {found.loc for found in out}
    given = [item for item in given if item[1] not in wrong]
    pools = [*(_pools(networks) if networks is not None else ()), *_rails(site)]
    return out + (_own(given, pools) + _nics(site, given) if pools else [])


def _space(subject: Subject, given: list[tuple[IPv4Address, Loc, str]]) -> list[Flaw]:
    """Return addresses and pools that hosts cannot use, or that are public and not listed in ``public_space``.

    Public ones may be in an entry of ``public_space`` that was removed because of its shape.
    """
    site, out = subject.site, list[Flaw]()
    held = [span(network) for network in collapse_addresses(site.public_space)]
    unknown = subject.lost.any("public_space")
    for address, loc, who in given:
        here = (int(address), int(address))
        why = unusable(here, loopback=False)
        if why:
            out.append(
                Flaw.of(
                    loc,
                    f"address {address} of {who} is {why}",
                    "Correct it.",
                    expected="an address of a host",
                    actual=address,
                    about=ADDRESS,
                    kind="unusable",
                )
            )
        elif not unknown and foreign(here, held):
            text = _public(f"address {address} of {who}", str(address))
            out.append(Flaw(loc, text, _HELD, (("public_space",),), ADDRESS))
    for who, loc, pool in site_pools(site):
        why = unusable(span(pool), loopback=True)
        if why:
            out.append(
                Flaw.of(loc, f"{pool} of {who} is {why}", "Correct it.", expected="addresses of hosts", actual=pool)
            )
        elif not unknown and foreign(span(pool), held):
            out.append(Flaw(loc, _public(f"{pool} of {who}", str(pool)), _HELD, (("public_space",),)))
    for k, space in enumerate(site.public_space):
        why = unusable(span(space), loopback=True)
        if why or not foreign(span(space), ()):
            out.append(
                Flaw.of(
                    ("public_space", k),
                    f"{space} is {why or 'not public'}",
                    "Remove it.",
                    expected="public space that the site holds",
                    actual=space,
                )
            )
    return out


_HELD = "Correct it. If a registry assigned that space to you, list it in public_space."


def _public(what: str, actual: str) -> str:
    return (
        f"{what} is public - Expected: private (10/8, 172.16/12, 192.168/16) or shared (100.64/10) space "
        f"Actual: {actual}."
    )


def site_pools(site: Site) -> Iterator[tuple[str, Loc, IPv4Network]]:
    """Yield (name, location in the site file, addresses) of every network's pool and every rail's subnet."""
    networks = site.networks
    for role in (*MANAGED, "compute"):
        network = getattr(networks, role, None)
        if network is not None:
            yield f"networks.{role}", ("networks", role, "pool"), network.pool
    if networks is not None and networks.loopbacks is not None:
        yield "networks.loopbacks", ("networks", "loopbacks"), networks.loopbacks
    if networks is not None and networks.underlay.pool is not None:
        yield "networks.underlay", ("networks", "underlay", "pool"), networks.underlay.pool
    for k, rail in enumerate(site.fabric.rails):
        yield f"rail {rail.rail}", ("fabric", "rails", k, "subnet"), rail.subnet


def _own(given: list[tuple[IPv4Address, Loc, str]], pools: list[tuple[int, int, int, str]]) -> list[Flaw]:
    """Return addresses that belong to a subnet itself (network or broadcast address) or to its gateway."""
    out = []
    for address, loc, who in given:
        number = int(address)
        for first, last, size, noun in pools:
            if not first <= number <= last:
                continue
            host = (number - first) % size
            what = {0: "network address", size - 1: "broadcast address", GATEWAY_HOST: "gateway"}.get(host)
            if what:
                block = IPv4Network((number - host, 33 - size.bit_length()))
                out.append(
                    Flaw(
                        loc,
                        f"address {address} of {who} is the {what} of {block} ({noun}).",
                        f"Give {who} another address.",
                        about=ADDRESS,
                        kind=what,
                    )
                )
    return out


def _nics(site: Site, given: list[tuple[IPv4Address, Loc, str]]) -> list[Flaw]:
    """Return addresses that a compute NIC has.

    Node k has host 10 + k in the subnet of each rail (``facts.node_facts``).
    """
    rails = [(rail.rail, rail.subnet) for rail in site.fabric.rails]
    inside = [
        (address, loc, who, rail, subnet) for address, loc, who in given for rail, subnet in rails if address in subnet
    ]
    owners = _owners(site) if inside else {}
    out = []
    for address, loc, who, rail, subnet in inside:
        owner = owners.get((int(address) - int(subnet.network_address) - FIRST_HOST, rail))
        if owner is not None:
            out.append(
                Flaw(
                    loc,
                    f"address {address} of {who} is already used by {owner} on rail {rail} ({subnet}).",
                    f"Give {who} another address.",
                    about=ADDRESS,
                    kind="NIC",
                )
            )
    return out


def _owners(site: Site) -> Mapping[tuple[int, int], str]:
    """Return (number of the node, rail) -> node, for nodes of known platforms that have their own NICs."""
    known = set(loader.known("platform"))
    nodes = [node for node in site.nodes() if node.kind == "metal" and node.platform in known]
    return {
        (site.position_of(node.name), nic.rail): node.name
        for node in nodes
        for nic in loader.platform(node.platform).nics
    }


def _rails(site: Site) -> Iterator[tuple[int, int, int, str]]:
    """Yield the subnets of rails in the form that ``_pools`` uses for networks."""
    for rail in site.fabric.rails:
        subnet = rail.subnet
        yield int(subnet.network_address), int(subnet.broadcast_address), subnet.num_addresses, f"rail {rail.rail}"


def _pools(networks: Networks) -> Iterator[tuple[int, int, int, str]]:
    """Yield (first address, last address, size of a subnet, name) of every network whose subnets have gateways."""
    for role in MANAGED:
        network = getattr(networks, role)
        if network is not None:
            prefix = max(network.per_rack, network.pool.prefixlen) if network.routed else network.pool.prefixlen
            yield (
                int(network.pool.network_address),
                int(network.pool.broadcast_address),
                1 << (32 - prefix),
                f"networks.{role}",
            )
    compute = networks.compute
    if compute is not None:
        size = 1 << (32 - max(compute.per_unit, compute.pool.prefixlen))
        yield int(compute.pool.network_address), int(compute.pool.broadcast_address), size, "networks.compute"


def _servers(networks: Networks) -> Given:
    for role in MANAGED:
        network = getattr(networks, role)
        for k, server in enumerate(network.dhcp_servers if network is not None else ()):
            yield server, ("networks", role, "dhcp_servers", k), f"DHCP server {server}"
