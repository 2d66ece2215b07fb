"""Checks of fabrics beside the compute fabric: references, served racks, and uplinks."""

from __future__ import annotations

from collections.abc import Iterator

from rackready.design.check_names import Loc, members, names_twice, unknown
from rackready.design.endpoints import rack_number
from rackready.design.other_fabrics import CALLED, OtherSwitch, other_layout, racks_of_fabric
from rackready.design.site_flaws import Flaw, Subject
from rackready.model.near import among
from rackready.model.other_fabric import OtherFabric
from rackready.model.site import Site
from rackready.profiles import loader


def check_other_fabrics(subject: Subject) -> list[Flaw]:
    """Return problems with other fabrics, with the slots of their switches, and with ports of devices."""
    site = subject.site
    out = names_twice((fabric.name for fabric in site.other_fabrics), "other_fabrics", "fabric")
    out += [
        found
        for place, fabric in enumerate(site.other_fabrics)
        for found in _fabric(subject, fabric, ("other_fabrics", place))
    ]
    out += _slots(subject) + _device_ports(site)
    if (
        not out
        and not subject.lost.any("racks", "nodes", "nic_plans", "switches", "switch_slots", "devices", "other_fabrics")
        and _known(site)
    ):
        out += [*_racks(site), *_switch_names(site)]
    return out


def _known(site: Site) -> bool:
    """Return whether the profiles of all nodes exist. Missing profiles are reported elsewhere."""
    return {node.platform for node in site.nodes()} <= set(loader.known("platform"))


def _fabric(subject: Subject, fabric: OtherFabric, here: Loc) -> list[Flaw]:
    site, models = subject.site, loader.known("switch")
    out: list[Flaw] = []
    for key, model in (("leaf", fabric.leaf), ("spine", fabric.spine)):
        if model is not None and model not in models:
            out.append(
                Flaw.of(
                    (*here, key),
                    f"switch profile {model!r} does not exist",
                    "Correct the id or add the profile.",
                    expected=f"one of {among(models, model)}",
                    profile=("switch", model),
                )
            )
    if not subject.lost.any("racks"):
        out += members(fabric.racks, {rack.name for rack in site.racks}, (*here, "racks"), "rack")[1]
    others = dict.fromkeys(other.name for other in site.other_fabrics if other.name != fabric.name)
    out += unknown(fabric.uplink_to, others, (*here, "uplink_to"), "other fabric", subject.lost.of("other_fabrics"))
    if not out and _leads_back(site, fabric):
        out.append(
            Flaw(
                (*here, "uplink_to"),
                f"the uplinks of {fabric.name} form a loop back to it.",
                "Give one of these fabrics spines, or remove its uplinks.",
            )
        )
    return out


def _leads_back(site: Site, fabric: OtherFabric) -> bool:
    to = {other.name: other.uplink_to for other in site.other_fabrics}
    seen, above = {fabric.name}, fabric.uplink_to
    while above is not None and above not in seen:
        seen.add(above)
        above = to.get(above)
    return above is not None


def _slots(subject: Subject) -> list[Flaw]:
    site, gone = subject.site, subject.lost.of("other_fabrics")
    known = dict.fromkeys(fabric.name for fabric in site.other_fabrics)
    out: list[Flaw] = []
    for place, slot in enumerate(site.switch_slots):
        out += unknown(slot.fabric, known, ("switch_slots", place, "fabric"), "other fabric", gone)
        if slot.fabric is not None and slot.tier == "core":
            out.append(
                Flaw.of(
                    ("switch_slots", place, "tier"),
                    f"{slot.fabric} has no core switches",
                    "Correct the tier, or omit fabric for a slot of the compute fabric.",
                    expected="leaf or spine",
                    reads=(("switch_slots", place, "fabric"),),
                )
            )
    return out


def _device_ports(site: Site) -> list[Flaw]:
    out = []
    for place, device in enumerate(site.devices):
        seen = {device.management.name} if device.management is not None else set()
        for number, port in enumerate(device.ports):
            if port.name in seen:
                text = f"port {port.name} of {device.name} is given twice."
                out.append(Flaw(("devices", place, "ports", number, "name"), text, "Give each port its own name."))
            seen.add(port.name)
    return out


def _racks(site: Site) -> Iterator[Flaw]:
    """Yield racks without a number, with the number of another rack, or served by two fabrics of one network."""
    served: dict[tuple[str, str], str] = {}
    for place, fabric in enumerate(site.other_fabrics):
        here: Loc = ("other_fabrics", place, "racks")
        numbers: dict[int, str] = {}
        for rack in racks_of_fabric(site, fabric):
            number = rack_number(rack)
            before = served.setdefault((fabric.role, rack.name), fabric.name)
            if before != fabric.name:
                text = f"rack {rack.name} is already served by {before}, which is also {CALLED[fabric.role]}."
                hint = "List the racks of each fabric, so that only one of them serves each rack."
                yield Flaw(here, text, hint, kind="served")
            if number is None:
                yield Flaw(
                    here,
                    f"index of rack {rack.name} is required and missing: its name has no number to derive ports from.",
                    "Add the index to the rack.",
                    kind="no index",
                )
            elif numbers.setdefault(number, rack.name) != rack.name and site.networks is None:
                # With networks, two racks of one number are a problem of their own (check_racks).
                yield Flaw(
                    here,
                    f"racks {numbers[number]} and {rack.name} both have number {number}.",
                    "Give one of the racks another index.",
                )


def _switch_names(site: Site) -> Iterator[Flaw]:
    """Yield switch names that a node or device also has, and switch entries that contradict the fabric."""
    made: dict[str, OtherSwitch] = {}
    place_of = {fabric.name: place for place, fabric in enumerate(site.other_fabrics)}
    for switch in other_layout(site).switches:
        here: Loc = ("other_fabrics", place_of[switch.fabric], "name")
        before = made.setdefault(switch.name, switch)
        if before is not switch:
            yield Flaw(
                here,
                f"{before.fabric} and {switch.fabric} both have a switch named {switch.name}.",
                "Give one of them another name.",
                kind="switches",
            )
    taken = {node.name for node in site.nodes()} | {device.name for device in site.devices}
    for name in sorted(taken & made.keys()):
        text = f"its switch {name} has the same name as a node or device."
        yield Flaw(("other_fabrics", place_of[made[name].fabric], "name"), text, "Give one of them another name.")
    for place, written in enumerate(site.switches):
        own = made.get(written.name)
        if own is not None and (own.model, own.role) != (written.model, written.role):
            yield Flaw.of(
                ("switches", place),
                f"{written.name} is a switch of {own.fabric}",
                "Make them equal, or rename it.",
                expected=f"model {own.model}, role {own.role}",
                actual=f"{written.model}, {written.role}",
            )
