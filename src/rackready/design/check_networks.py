"""Checks of networks: pools that overlap or are too small, VLANs that clash, topologies that do not fit the fabric."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from rackready.design.assign import FIRST_HOST, blocks_in
from rackready.design.check_addresses import site_pools
from rackready.design.check_names import Loc
from rackready.design.compute_addresses import racks_in_subnet, subnet_number
from rackready.design.endpoints import link_rate, rack_number, unit_of
from rackready.design.site_flaws import ADDRESS, RAIL_ADDRESS, Flaw, Subject
from rackready.design.topology.ports import lanes_short
from rackready.model.near import among
from rackready.model.network import ComputeNetwork, Networks
from rackready.model.site import Site
from rackready.model.topology import Topology
from rackready.profiles import loader

_LAST_VLAN = 4094
_ROLES = ("oob", "in_band", "storage")


def check_networks(subject: Subject) -> list[Flaw]:
    """Return problems with networks, and with the topology that depends on them."""
    site = subject.site
    out = _topology(subject) + _vlans(site)
    if site.networks is None:
        return out
    out += _overlaps(site) + _blocks(site, site.networks)
    if site.networks.compute is not None:
        out += _compute(site, site.networks, site.networks.compute)
    return out


def _overlaps(site: Site) -> list[Flaw]:
    out = []
    for (first, before, one), (second, loc, other) in combinations(site_pools(site), 2):
        if _of_rail(before) and _of_rail(loc):
            continue  # check_fabric reports it
        if one.overlaps(other):
            text = f"{other} of {second} overlaps {one} of {first}."
            out.append(Flaw(loc, text, "Give each network its own addresses.", (before,)))
    return out


def _of_rail(loc: Loc) -> bool:
    return loc[:2] == ("fabric", "rails")


def _vlans(site: Site) -> list[Flaw]:
    """Return VLANs that two networks share, among rails and networks whose switches tenants also use."""
    networks = site.networks or Networks()
    seen: dict[int, tuple[str, Loc]] = {}
    out = []

    def uses() -> Iterator[tuple[int | None, str, Loc]]:
        for k, rail in enumerate(site.fabric.rails):
            yield rail.vlan, f"rail {rail.rail}", ("fabric", "rails", k, "vlan")
        compute = networks.compute
        if compute is not None:
            for number in range(compute.planes * compute.rails):
                yield compute.vlan_first + number, "networks.compute", ("networks", "compute", "vlan_first")
        for role in _ROLES:
            network = getattr(networks, role)
            if network is not None:
                yield network.vlan, f"networks.{role}", ("networks", role, "vlan")
        for k, tenant in enumerate(site.tenants):
            yield tenant.vlan, f"tenant {tenant.name}", ("tenants", k, "vlan")

    for vlan, who, loc in uses():
        before, place = seen.setdefault(vlan, (who, loc)) if vlan is not None else (who, loc)
        if before != who and not (_of_rail(loc) and _of_rail(place)):
            text = f"VLAN {vlan} of {who} is already used by {before}."
            out.append(Flaw(loc, text, "Give each its own VLAN.", (place,)))
    return out


def _blocks(site: Site, networks: Networks) -> list[Flaw]:
    dpus = max((len(plan.dpus) for plan in site.nic_plans), default=0)
    out = []
    for role in _ROLES:
        network = getattr(networks, role)
        if network is None:
            continue
        if blocks_in(network) == 0:
            text = f"a rack's block (/{network.per_rack}) is larger than the pool {network.pool}."
            hint = "Make blocks smaller (a longer prefix) or the pool larger."
            out.append(Flaw(("networks", role, "per_rack"), text, hint, (("networks", role, "pool"),)))
        lanes = 1 + (dpus if role != "storage" else 0)
        last, room = FIRST_HOST + lanes * networks.rack_slots, (1 << (32 - network.per_rack)) - 2
        if last > room:
            what = f"{networks.rack_slots} nodes" + (f" with {lanes - 1} DPUs each" if lanes > 1 else "")
            text = f"a rack's block of /{network.per_rack} ends at host {room}, but {what} need hosts up to {last}."
            out.append(
                Flaw(
                    ("networks", role, "per_rack"),
                    text,
                    "Make blocks larger (a shorter prefix), or lower networks.rack_slots.",
                    (("networks", "rack_slots"),),
                    ADDRESS,
                )
            )
    return out


def _compute(site: Site, networks: Networks, network: ComputeNetwork) -> list[Flaw]:
    here: Loc = ("networks", "compute")
    out: list[Flaw] = []
    last = network.vlan_first + network.planes * network.rails - 1
    if last > _LAST_VLAN:
        out.append(
            Flaw.of(
                (*here, "vlan_first"),
                f"{network.planes} planes of {network.rails} rails from VLAN {network.vlan_first} end at VLAN {last}",
                "Start with a lower VLAN.",
                expected=f"at most {_LAST_VLAN}",
            )
        )
    known = set(loader.known("platform"))
    rails = max(
        (
            nic.rail
            for platform in {node.platform for node in site.nodes()} & known
            for nic in loader.platform(platform).nics
        ),
        default=0,
    )
    if rails > network.rails:
        out.append(
            Flaw(
                (*here, "rails"),
                f"the network has room for {network.rails} rails, but nodes have {rails}.",
                f"Raise it to {rails}.",
            )
        )
    planes = site.topology.planes if site.topology is not None and site.topology.planes_by == "port" else 1
    if planes > network.planes:
        out.append(
            Flaw(
                (*here, "planes"),
                f"the network has room for {network.planes} planes, but the topology has {planes}.",
                f"Raise it to {planes}.",
                (("topology", "planes"), ("topology", "planes_by")),
            )
        )
    room = racks_in_subnet(network, networks.rack_slots)
    if room < 1:
        text = (
            f"a subnet of /{network.per_unit} has no room for one rack of {networks.rack_slots} nodes "
            "(networks.rack_slots)."
        )
        hint = "Make subnets larger (a shorter prefix), or lower networks.rack_slots."
        out.append(Flaw((*here, "per_unit"), text, hint, (("networks", "rack_slots"),), RAIL_ADDRESS))
        return out
    return out + _units(site, network, room)


_UNIT: tuple[Loc, ...] = (("networks", "compute"), ("networks", "rack_slots"), ("topology", "su_nodes"))
"""Keys from which the unit of a rack and its subnets follow."""


def _units(site: Site, network: ComputeNetwork, room: int) -> list[Flaw]:
    """Check that racks of one unit have separate parts of its subnets, and that the pool has subnets for every unit."""
    out = []
    seen: dict[tuple[int, int], tuple[str, int]] = {}
    subnets = 1 << max(0, network.per_unit - network.pool.prefixlen)
    units = subnets // (network.planes * network.rails)
    known = set(loader.known("platform"))
    for r, rack in enumerate(site.racks):
        if any(node.platform not in known for node in rack.nodes):
            continue
        number, unit = rack_number(rack), unit_of(site, rack)
        if number is None or not rack.nodes:
            continue
        if subnet_number(network, unit, network.planes, network.rails) >= subnets:
            text = (
                f"rack {rack.name} is in unit {unit}, but networks.compute.pool {network.pool} has subnets "
                f"(/{network.per_unit}) for {units} units."
            )
            hint = "Use a larger pool or smaller subnets in networks.compute."
            out.append(Flaw(("racks", r), text, hint, _UNIT))
        before, theirs = seen.setdefault((unit, (number - 1) % room), (rack.name, number))
        if theirs != number:  # equal numbers are a problem of their own
            text = (
                f"racks {before} and {rack.name} are both in unit {unit}, whose subnets (/{network.per_unit}) have "
                f"room for {room} consecutive racks."
            )
            out.append(
                Flaw(
                    ("racks", r),
                    text,
                    "Number the racks of a unit consecutively, or use larger subnets in networks.compute.",
                    _UNIT,
                    RAIL_ADDRESS,
                    kind="apart",
                )
            )
    return out


def _topology(subject: Subject) -> list[Flaw]:
    site = subject.site
    if site.topology is not None:
        return _made(site, site.topology)
    if subject.lost.any("topology") or all(slot.fabric is not None for slot in site.switch_slots):
        return []
    text = "there is no topology whose switches could be placed there."
    return [
        Flaw(
            ("switch_slots",),
            text,
            "Add a topology, name a fabric of other_fabrics, or place switches by rack and unit.",
            (("topology",),),
        )
    ]


def _made(site: Site, topology: Topology) -> list[Flaw]:
    out = []
    if site.links:
        out.append(
            Flaw.of(
                ("links",),
                "the topology already makes the links of the compute fabric",
                "Remove one of the two.",
                expected="topology or links",
                actual="both",
                reads=(("topology",),),
            )
        )
    if topology.link != site.fabric.kind:
        text = f"link layer {topology.link} does not match fabric.kind ({site.fabric.kind})."
        out.append(Flaw(("topology", "link"), text, "Make them equal.", (("fabric", "kind"),)))
    if topology.tiers == 2 and topology.spine_oversubscription != "1:1":  # noqa: PLR2004 - two tiers
        out.append(
            Flaw.of(
                ("topology", "spine_oversubscription"),
                "with two tiers, spines have no tier above",
                "Remove it, or set tiers: 3.",
                expected="1:1, or tiers: 3",
                actual=f"{topology.spine_oversubscription} with tiers: 2",
                reads=(("topology", "tiers"),),
            )
        )
    platforms = set(loader.known("platform"))
    units = max(
        (
            unit_of(site, rack)
            for rack in site.racks
            if rack.nodes and {node.platform for node in rack.nodes} <= platforms
        ),
        default=1,
    )
    if topology.grow_to_su is not None and topology.grow_to_su < units:
        out.append(
            Flaw.of(
                ("topology", "grow_to_su"),
                f"grow_to_su is {topology.grow_to_su}, but nodes are already in units up to {units}",
                "Raise it, or remove it.",
                expected=f"at least {units}",
                reads=_UNIT,
            )
        )
    known = loader.known("switch")
    for tier in ("leaf", "spine", "core"):
        switches = getattr(topology, tier)
        if switches is None:
            continue
        if switches.model not in known:
            out.append(
                Flaw.of(
                    ("topology", tier, "model"),
                    f"switch profile {switches.model!r} does not exist",
                    "Correct the id or add the profile.",
                    expected=f"one of {among(known, switches.model)}",
                    profile=("switch", switches.model),
                )
            )
            continue
        layer = "infiniband" if topology.link == "infiniband" else "ethernet"
        actual = loader.switch(switches.model).layer
        if actual != layer:
            out.append(
                Flaw.of(
                    ("topology", tier, "model"),
                    f"{switches.model} is an {actual} switch",
                    "Choose another model.",
                    expected=f"{layer} for link: {topology.link}",
                    reads=(("topology", "link"),),
                )
            )
    return out + _lanes(site, topology)


def _lanes(site: Site, topology: Topology) -> list[Flaw]:
    """Check that links of the nodes' NICs have as many lanes at a leaf as at the NIC."""
    if topology.leaf.model not in loader.known("switch"):
        return []
    leaf = loader.switch(topology.leaf.model)
    known = set(loader.known("platform"))
    platforms = sorted({node.platform for node in site.nodes() if node.kind != "virtual"} & known)
    out = []
    for platform in map(loader.platform, platforms):
        cages = {nic.cage for nic in platform.nics}
        found = next(filter(None, (lanes_short(leaf, link_rate(platform, topology), cage) for cage in cages)), None)
        if found is not None:
            out.append(
                Flaw.of(
                    ("topology", "leaf", "model"),
                    f"{leaf.id}: lanes of a link of {link_rate(platform, topology)} Gb/s to the NICs of {platform.id}",
                    "rackready cannot plan switches that run their lanes at half their rate. Use a switch whose ports "
                    "have that rate, such as one with a profile of your own, or describe the cables by links.",
                    expected=f"{found[0]}, as its QSFP56 ports have",
                    actual=f"{found[1]}",
                    reads=(("racks",),),
                )
            )
    return out
