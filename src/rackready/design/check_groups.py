"""Checks of groups of nodes and racks: tenants, NVLink domains, deliveries, maintenance windows."""

from __future__ import annotations

from collections.abc import Collection
from itertools import combinations
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from rackready.design.check_names import Loc, members, names_twice, twice, unknown
from rackready.design.names import listed
from rackready.design.site_flaws import Flaw, Lost, Subject
from rackready.design.tenants import FULL_MEMBER
from rackready.model.base import expand_names
from rackready.model.operations import MaintenanceWindow
from rackready.model.site import NvlinkDomain, Site
from rackready.profiles import loader

_DEFAULT_PKEY = 0x7FFF


def check_groups(subject: Subject) -> list[Flaw]:
    """Return problems with tenants, NVLink domains, deliveries and maintenance windows."""
    site = subject.site
    out = names_twice((item.name for item in site.tenants), "tenants", "tenant")
    out += names_twice((item.name for item in site.nvlink_domains), "nvlink_domains", "NVLink domain")
    out += names_twice((item.name for item in site.deliveries), "deliveries", "delivery")
    out += names_twice((item.name for item in site.maintenance), "maintenance", "maintenance window")
    out += names_twice((item.name for item in site.nic_plans), "nic_plans", "NIC plan")
    out += _keys(site) + _windows(site)
    return (
        out
        + _tenants(site, subject.lost)
        + _domains(site, subject.lost)
        + _deliveries(site, subject.lost)
        + _window_racks(site, subject.lost)
    )


def _keys(site: Site) -> list[Flaw]:
    """Check VRFs, VNIs and partition keys: one owner each, within their range, and of the right kind of fabric."""
    out: list[Flaw] = []
    for noun, key in (("VRF", "vrf"), ("VNI", "vni"), ("partition key", "pkey")):
        out += twice(
            (
                (getattr(tenant, key), ("tenants", k, key), f"tenant {tenant.name}")
                for k, tenant in enumerate(site.tenants)
            ),
            noun,
        )
    for k, tenant in enumerate(site.tenants):
        foreign = ["pkey"] if site.fabric.kind == "roce" else ["vlan", "vrf", "vni"]
        for key in foreign:
            if getattr(tenant, key) is not None:
                other = "vlan, vrf or vni" if site.fabric.kind == "roce" else "pkey"
                text = f"{key} of tenant {tenant.name} is not for a fabric of kind {site.fabric.kind}."
                out.append(Flaw(("tenants", k, key), text, f"Use {other}.", (("fabric", "kind"),)))
        if tenant.pkey is not None:
            out += _pkey(int(tenant.pkey, 16), tenant.pkey, ("tenants", k, "pkey"))
    return out


def _pkey(value: int, text: str, loc: Loc) -> list[Flaw]:
    if value & FULL_MEMBER:
        plain = f"0x{value & ~FULL_MEMBER:04x}"
        return [
            Flaw(
                loc,
                f"partition key {text} includes the full-membership bit (0x8000).",
                f"Write {plain} and set full_member instead.",
                kind="full member",
            )
        ]
    if value in {0, _DEFAULT_PKEY}:
        what = "belongs to the default partition" if value else "is invalid"
        return [
            Flaw.of(loc, f"partition key {text} {what}", "Choose another.", expected="0x0001 to 0x7ffe", kind="range")
        ]
    return []


def _tenants(site: Site, lost: Lost) -> list[Flaw]:
    nodes = {node.name for node in site.nodes()}
    racks = {rack.name: [node.name for node in rack.nodes] for rack in site.racks}
    owner: dict[str, str] = {}
    out: list[Flaw] = []
    for k, tenant in enumerate(site.tenants):
        named, nowhere = members(tenant.nodes, nodes, ("tenants", k, "nodes"), "node", lost.of("nodes"))
        whole, missing = members(tenant.racks, racks, ("tenants", k, "racks"), "rack", lost.of("racks"))
        out += nowhere + missing
        theirs = dict.fromkeys([*named, *(node for rack in whole for node in racks[rack])])
        taken = [name for name in theirs if owner.setdefault(name, tenant.name) != tenant.name]
        if taken:
            out.append(
                Flaw(
                    ("tenants", k),
                    f"{listed(taken)} of tenant {tenant.name} already belongs to tenant {owner[taken[0]]}.",
                    "Assign each node to one tenant.",
                    kind="taken",
                )
            )
    return out


def domain_nodes(site: Site, domain: NvlinkDomain) -> list[str]:
    """Return the existing nodes of an NVLink domain."""
    by_rack = site.remember("by_rack", lambda: {rack.name: [node.name for node in rack.nodes] for rack in site.racks})
    named = [name for text in domain.nodes for name in expand_names(text)]
    return named if domain.nodes else by_rack.get(domain.rack or "", [])


def domains_of_nodes(site: Site) -> dict[str, NvlinkDomain]:
    """Return node -> the NVLink domain that the site file puts it in."""
    return site.remember(
        "NVLink domain of nodes",
        lambda: {node: domain for domain in site.nvlink_domains for node in domain_nodes(site, domain)},
    )


def _domains(site: Site, lost: Lost) -> list[Flaw]:
    nodes = {node.name: node for node in site.nodes()}
    racks = dict.fromkeys(rack.name for rack in site.racks)
    owner: dict[str, str] = {}
    out: list[Flaw] = []
    for k, domain in enumerate(site.nvlink_domains):
        here: Loc = ("nvlink_domains", k)
        out += unknown(domain.rack, racks, (*here, "rack"), "rack", lost.of("racks"))
        _, missing = members(domain.nodes, nodes, (*here, "nodes"), "node", lost.of("nodes"))
        out += missing
        theirs = [name for name in domain_nodes(site, domain) if name in nodes]
        taken = [name for name in theirs if owner.setdefault(name, domain.name) != domain.name]
        if taken:
            out.append(
                Flaw(
                    here,
                    f"{listed(taken)} is already in NVLink domain {owner[taken[0]]}.",
                    "Put each node in one domain.",
                    kind="taken",
                )
            )
        stands = sorted({site.rack_of(name).name for name in theirs})
        if len(stands) > 1 and not domain.across_racks:
            what = f"nodes of NVLink domain {domain.name} are in racks {listed(stands)}"
            hint, reads = "Correct the nodes, or set across_racks: true.", ((*here, "across_racks"),)
            out.append(Flaw.of(here, what, hint, expected="one rack", reads=reads))
        out += (
            _domain_size(here, domain, [nodes[name].platform for name in theirs])
            if theirs or not lost.any("racks", "nodes")
            else []
        )
    return out


def _domain_size(here: Loc, domain: NvlinkDomain, platforms: list[str]) -> list[Flaw]:
    known = set(loader.known("platform"))
    profiles = [loader.platform(platform) for platform in platforms if platform in known]
    sizes = {profile.nvlink_domain for profile in profiles}
    single = sorted({profile.id for profile in profiles if profile.nvlink_domain is None})
    if single:
        return [
            Flaw(
                here,
                f"{listed(single)} has NVLink only within the server.",
                "Remove its nodes from the domain.",
                kind="single",
            )
        ]
    gpus = sum(profile.gpus for profile in profiles)
    most = max((size for size in sizes if size is not None), default=gpus)
    if not gpus:
        return [Flaw(here, f"NVLink domain {domain.name} has no nodes.", "Add a rack or nodes.", ((*here, "rack"),))]
    if gpus > most:
        return [
            Flaw.of(
                here, f"NVLink domain {domain.name} has {gpus} GPUs", "Correct its nodes.", expected=f"at most {most}"
            )
        ]
    return []


def _deliveries(site: Site, lost: Lost) -> list[Flaw]:
    racks = dict.fromkeys(rack.name for rack in site.racks)
    batch: dict[str, str] = {}
    out: list[Flaw] = []
    for k, delivery in enumerate(site.deliveries):
        theirs, missing = members(delivery.racks, racks, ("deliveries", k, "racks"), "rack", lost.of("racks"))
        out += missing
        taken = [name for name in theirs if batch.setdefault(name, delivery.name) != delivery.name]
        if taken:
            out.append(
                Flaw(
                    ("deliveries", k, "racks"),
                    f"{listed(taken)} is already in delivery {batch[taken[0]]}.",
                    "List each rack once.",
                )
            )
    left = [rack.name for rack in site.racks if rack.name not in batch]
    if site.deliveries and left and not lost.any("deliveries"):
        verb = "comes" if len(left) == 1 else "come"
        out.append(
            Flaw(("deliveries",), f"{listed(left)} {verb} in no delivery.", "Add it to a delivery.", (("racks",),))
        )
    return out


def _windows(site: Site) -> list[Flaw]:
    out: list[Flaw] = []
    for k, window in enumerate(site.maintenance):
        if not _is_zone(window.timezone):
            text = f"time zone {window.timezone} does not exist."
            out.append(Flaw(("maintenance", k, "timezone"), text, "Use an IANA name such as Europe/Berlin, or UTC."))
        if window.begins is not None and window.ends is not None and window.ends < window.begins:
            out.append(
                Flaw(
                    ("maintenance", k, "ends"),
                    f"the window ends on {window.ends}, before it begins on {window.begins}.",
                    "Correct one of the two dates.",
                    (("maintenance", k, "begins"),),
                )
            )
        if len(set(window.days)) < len(window.days):
            out.append(Flaw(("maintenance", k, "days"), "a day is given twice.", "Remove one."))
    for (first, one), (second, other) in combinations(enumerate(site.maintenance), 2):
        if _same_start(one, other):
            text = f"windows {one.name} and {other.name} begin at the same time for the same racks."
            reads = tuple(("maintenance", k, key) for k in (first, second) for key in ("begins", "ends"))
            out.append(Flaw(("maintenance", second), text, "Remove one, or change its racks or days.", reads))
    return out


def _is_zone(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):  # the name of a folder of zones raises OSError
        return False
    return True


def _same_start(one: MaintenanceWindow, other: MaintenanceWindow) -> bool:
    apart = (one.ends is not None and other.begins is not None and one.ends < other.begins) or (
        other.ends is not None and one.begins is not None and other.ends < one.begins
    )
    same = one.start == other.start and one.timezone == other.timezone and bool(set(one.days) & set(other.days))
    return same and not apart and _overlap(one.racks, other.racks)


def _overlap(one: list[str], other: list[str]) -> bool:
    if not one or not other:
        return True
    return bool(_expanded(one) & _expanded(other))


def _expanded(texts: Collection[str]) -> set[str]:
    return {name for text in texts for name in expand_names(text)}


def _window_racks(site: Site, lost: Lost) -> list[Flaw]:
    racks = dict.fromkeys(rack.name for rack in site.racks)
    out: list[Flaw] = []
    for k, window in enumerate(site.maintenance):
        out += members(window.racks, racks, ("maintenance", k, "racks"), "rack", lost.of("racks"))[1]
    return out
