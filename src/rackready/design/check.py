"""Checks of the meaning of a site file: its parts must agree with each other and with the profiles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain

from rackready.design.check_addresses import check_given, given_addresses
from rackready.design.check_fabric import check_fabric, check_links, check_ports
from rackready.design.check_figures import check_figures
from rackready.design.check_gates import check_gates
from rackready.design.check_groups import check_groups
from rackready.design.check_kubernetes import check_kubernetes
from rackready.design.check_nccl import check_nccl
from rackready.design.check_networks import check_networks
from rackready.design.check_nics import check_nic_plans
from rackready.design.check_other_fabrics import check_other_fabrics
from rackready.design.check_outlets import check_outlets
from rackready.design.check_parts import check_parts
from rackready.design.check_power import check_power
from rackready.design.check_provisioning import check_provisioning
from rackready.design.check_pull import check_pull
from rackready.design.check_racks import check_places, check_units
from rackready.design.check_secrets import check_secrets
from rackready.design.check_slurm import check_slurm
from rackready.design.check_software import check_software
from rackready.design.check_virtual import check_virtual
from rackready.design.check_watch import check_watch
from rackready.design.names import listed
from rackready.design.site_flaws import ADDRESS, Flaw, Loc, Lost, Subject
from rackready.model.near import among
from rackready.model.site import Site
from rackready.model.switch import Switch
from rackready.profiles import loader

__all__ = ["Flaw", "check"]


def check(site: Site, lost: Lost | None = None) -> list[Flaw]:
    """Return every contradiction in a site, as (location, message, hint).

    ``lost``: parts that were removed because their shape is wrong. Items that seem to be missing and may be among
    them are not reported.
    """
    subject = Subject(site, _with_twins(site, lost or Lost()))
    return _causes([replace(found, rule=rule.__name__) for rule in _RULES for found in rule(subject)])


def _causes(found: list[Flaw]) -> list[Flaw]:
    """Return problems without addresses given twice, if blocks that are too small for their racks give them."""
    small = any(flaw.about == ADDRESS and flaw.loc[-1] == "per_rack" for flaw in found)
    return [flaw for flaw in found if not small or flaw.about != ADDRESS or flaw.loc[-1] == "per_rack"]


def _with_twins(site: Site, lost: Lost) -> Lost:
    """Return the lost parts with lists that give a name twice: a name that nobody has may be that of one of the two."""
    names = {
        "nodes": [node.name for node in site.nodes()],
        "switches": [switch.name for switch in site.switches],
        "devices": [device.name for device in site.devices],
    }
    count = Counter(chain.from_iterable(names.values()))
    twins = {family for family, own in names.items() if any(count[name] > 1 for name in own)}
    return replace(lost, nameless=lost.nameless | twins)


@dataclass(frozen=True, slots=True)
class _Use:
    value: str
    loc: Loc
    what: str


def _twice(uses: Iterator[_Use], noun: str, about: tuple[str, ...] = ()) -> list[Flaw]:
    first: dict[str, _Use] = {}
    out = []
    for use in uses:
        before = first.setdefault(use.value, use)
        if before is not use:
            text, step = f"{noun} {use.value} is already used by {before.what}.", f"Give {use.what} its own."
            if use.what == before.what and use.loc[-1] == "name":  # the owner's name tells the two not apart
                text, step = f"{use.what} is given twice.", "Give each its own name."
            out.append(Flaw(use.loc, text, step, (before.loc,), about))
    return out


def _names(subject: Subject) -> list[Flaw]:
    site = subject.site

    def hosts() -> Iterator[_Use]:
        for r, rack in enumerate(site.racks):
            for n, node in enumerate(rack.nodes):
                yield _Use(node.name, ("racks", r, "nodes", n, "name"), f"node {node.name}")
        for s, switch in enumerate(site.switches):
            yield _Use(switch.name, ("switches", s, "name"), f"switch {switch.name}")
        for d, device in enumerate(site.devices):
            yield _Use(device.name, ("devices", d, "name"), f"device {device.name}")

    racks = (_Use(rack.name, ("racks", r, "name"), f"rack {r + 1}") for r, rack in enumerate(site.racks))
    serials = (
        _Use(node.serial, ("racks", r, "nodes", n, "serial"), f"node {node.name}")
        for r, rack in enumerate(site.racks)
        for n, node in enumerate(rack.nodes)
        if node.serial is not None
    )
    macs = (
        _Use(node.bmc.mac, ("racks", r, "nodes", n, "bmc", "mac"), f"node {node.name}")
        for r, rack in enumerate(site.racks)
        for n, node in enumerate(rack.nodes)
        if node.bmc.mac is not None
    )
    boot_macs = (
        _Use(node.boot_mac, ("racks", r, "nodes", n, "boot_mac"), f"node {node.name}")
        for r, rack in enumerate(site.racks)
        for n, node in enumerate(rack.nodes)
        if node.boot_mac is not None
    )
    return (
        _twice(hosts(), "name")
        + _twice(racks, "name")
        + _twice(serials, "serial number")
        + _twice(macs, "BMC MAC address")
        + _twice(boot_macs, "boot MAC address")
    )


def _upstreams(subject: Subject) -> list[Flaw]:
    """Return upstreams with one name, and those of systems that no version set has: no mirror copies from these."""
    upstreams = subject.site.software.upstreams
    uses = (
        _Use(item.name, ("software", "upstreams", u, "name"), f"upstream {u + 1}") for u, item in enumerate(upstreams)
    )
    named = any(item.systems for item in upstreams)
    systems = sorted({loader.software(name).os for name in loader.known("software")}) if named else []
    return _twice(uses, "upstream") + [
        Flaw.of(
            ("software", "upstreams", u, "systems"),
            f"no version set is for {listed(strange)}",
            "Correct the name, or leave it out.",
            expected=f"some of {listed(systems)}",
        )
        for u, item in enumerate(upstreams)
        if (strange := [name for name in item.systems if name not in systems])
    ]


def _addresses(subject: Subject) -> list[Flaw]:
    again = _numbered_again(subject.site)
    uses = (_Use(str(address), loc, who) for address, loc, who in given_addresses(subject.site) if loc[:2] not in again)
    return _twice(uses, "address", ADDRESS)


def _numbered_again(site: Site) -> set[Loc]:
    """Return the places of racks with the number of one before: it gives them equal addresses, which is one problem."""
    if site.networks is None:
        return set()
    first: dict[int | None, int] = {None: -1}
    return {("racks", r) for r, rack in enumerate(site.racks) if first.setdefault(rack.index, r) not in {r, -1}}


def _profiles(subject: Subject) -> list[Flaw]:
    site = subject.site
    out: list[Flaw] = []

    catalogue = {family: loader.known(family) for family in ("gate_sets", "platform", "switch")}

    def known(family: str, wanted: str, loc: Loc) -> bool:
        ids = catalogue[family]
        if wanted not in ids:
            out.append(
                Flaw.of(
                    loc,
                    f"{family} profile {wanted!r} does not exist",
                    "Correct the id or add the profile.",
                    expected=f"one of {among(ids, wanted)}",
                    profile=(family, wanted),
                )
            )
        return wanted in ids

    known("gate_sets", site.gates.set, ("gates", "set"))
    known("gate_sets", site.hand_back.gate_set, ("hand_back", "gate_set"))
    for r, rack in enumerate(site.racks):
        for n, node in enumerate(rack.nodes):
            known("platform", node.platform, ("racks", r, "nodes", n, "platform"))
    for platform in site.baselines:
        known("platform", platform, ("baselines", platform))
    for s, switch in enumerate(site.switches):
        if known("switch", switch.model, ("switches", s, "model")):
            out += _system(s, switch)
    return out + _nameplates(site, {*catalogue["platform"], *catalogue["switch"]})


def _system(s: int, switch: Switch) -> list[Flaw]:
    """Return what is wrong with the system of a switch: InfiniBand switches have none, Ethernet ones need theirs."""
    systems, layer = loader.switch(switch.model).os, loader.switch(switch.model).layer
    loc: Loc = ("switches", s, "os")
    if not switch.os and layer == "ethernet":
        loc, what, hint = (
            ("switches", s),
            f"login of {switch.name}",
            "Add them: rackready configures every Ethernet switch.",
        )
        expected, actual = "os, address and password", "none"
    elif switch.os and not systems:
        what, hint = (
            f"rackready configures no {switch.model}",
            "Remove all three: rackready reads its ports through the subnet.",
        )
        expected, actual = "no os, address and password", switch.os
    elif switch.os and switch.os not in systems:
        what, hint = f"{switch.model} does not run {switch.os!r}", "Correct it."
        expected, actual = f"one of {', '.join(systems)}", ""
    else:
        return []
    return [Flaw.of(loc, what, hint, expected=expected, actual=actual, reads=(("switches", s, "model"),))]


def _guids(subject: Subject) -> list[Flaw]:
    """Return GUIDs of switches that are no InfiniBand switches, and GUIDs given twice."""
    given = [(s, switch) for s, switch in enumerate(subject.site.switches) if switch.guid is not None]
    twice = _twice((_Use(f"{own.guid}", ("switches", s, "guid"), f"switch {own.name}") for s, own in given), "GUID")
    known = loader.known("switch")
    return twice + [
        Flaw.of(
            ("switches", s, "guid"),
            f"{switch.model} is no InfiniBand switch",
            "Remove the GUID, or correct the model.",
            expected="no GUID",
            actual=switch.guid,
            reads=(("switches", s, "model"),),
        )
        for s, switch in given
        if switch.model in known and loader.switch(switch.model).layer == "ethernet"
    ]


def _nameplates(site: Site, known: set[str]) -> list[Flaw]:
    out: list[Flaw] = []
    seen: set[str] = set()
    for k, plate in enumerate(site.facility.nameplates if site.facility is not None else ()):
        here = ("facility", "nameplates", k, "model")
        if plate.model not in known:
            out.append(
                Flaw.of(
                    here,
                    f"no server or switch profile is called {plate.model!r}",
                    "Correct the id; for devices, set max_power_w instead.",
                    expected=f"one of {among(sorted(known), plate.model)}",
                )
            )
        elif plate.model in seen:
            out.append(Flaw(here, f"{plate.model} has a nameplate already.", "Keep one nameplate per model."))
        seen.add(plate.model)
    return out


_RULES: tuple[Callable[[Subject], list[Flaw]], ...] = (
    _names,
    _addresses,
    _guids,
    _profiles,
    _upstreams,
    check_software,
    check_gates,
    check_parts,
    check_kubernetes,
    check_slurm,
    check_units,
    check_places,
    check_outlets,
    check_power,
    check_provisioning,
    check_figures,
    check_ports,
    check_links,
    check_fabric,
    check_networks,
    check_given,
    check_nic_plans,
    check_nccl,
    check_other_fabrics,
    check_groups,
    check_virtual,
    check_watch,
    check_pull,
    check_secrets,
)
