"""Checks of the power and cooling of racks: voltages, kinds of feeds and of cooling, contradictory limits."""

from __future__ import annotations

import math
from collections.abc import Iterator

from rackready.design.capacity import circuits, findings
from rackready.design.capacity.from_site import platform_model
from rackready.design.capacity.parts import DeviceModel
from rackready.design.capacity.remedies import WAYS
from rackready.design.check_names import Loc
from rackready.design.site_flaws import Flaw, Subject
from rackready.model.facility import Feed, PowerNode, Rated
from rackready.model.site import Rack, Site
from rackready.model.supply import InputVolts
from rackready.profiles import loader

ROUNDED = 0.025
"""Tolerance for rounded nominal voltages: 416 V three-phase is 240.2 V to neutral, 420 V is 242.5 V. Judgement."""

SERVER = InputVolts(
    low=200,
    high=240,
    source="judgement: kilowatt power supplies reach their rated output at 200-240 V "
    "(NVIDIA DGX H100/H200 and B200 user guides)",
)
"""Input of a GPU server whose power supplies have no published input."""
OTHER = InputVolts(
    low=100,
    high=250,
    source="IEC 60038: 100 V is the lowest nominal mains; IEC 60320-1: appliance couplers are rated for 250 V at most",
)
"""Input of switches and devices."""

THREE = 3


def check_power(subject: Subject) -> list[Flaw]:
    """Return problems with the power and cooling of racks."""
    site, known = subject.site, set(loader.known("platform"))
    sources = {node.name: node for node in (site.facility.power if site.facility is not None else ())}
    beside = _beside(site)
    out: list[Flaw] = []
    for r, rack in enumerate(site.racks):
        here: Loc = ("racks", r)
        models = [
            platform_model(name)
            for name in sorted({node.platform for node in rack.nodes if node.kind == "metal"} & known)
        ]
        for k, feed in enumerate(rack.feeds):
            out += _feed(feed, (*here, "feeds", k))
            out += _volts(feed, _inputs(models, beside.get(rack.name, {})), (*here, "feeds", k, "volts"))
            out += _from(feed, sources.get(feed.source), (*here, "feeds", k))
        out += [*_kinds(rack, models, here, whole=not subject.lost.any("feeds")), *_limits(rack, here)]
    return out


def _beside(site: Site) -> dict[str, dict[str, InputVolts]]:
    """Return the other equipment that is plugged in, by rack, with the voltages that it takes."""
    out: dict[str, dict[str, InputVolts]] = {}
    known = set(loader.known("switch"))
    for switch in site.switches:
        if switch.rack is not None and switch.model in known:
            out.setdefault(switch.rack, {})[switch.model] = _published(switch.model)
    topology = site.topology
    if topology is not None:
        switches = {"leaf": topology.leaf, "spine": topology.spine_switches(), "core": topology.core_switches()}
        for slot in site.switch_slots:
            model = switches[slot.tier].model
            if model in known:
                out.setdefault(slot.rack, {})[model] = _published(model)
    for device in site.devices:
        if device.rack is not None and device.kind not in _NO_CORD:
            out.setdefault(device.rack, {})[device.name] = OTHER
    return out


_NO_CORD = frozenset({"power_shelf", "pdu", "patch_panel", "cdu"})
"""Devices that feed the rack, are passive, or are wired to their own circuit."""


def _published(switch: str) -> InputVolts:
    psus = loader.switch(switch).psus
    return psus.input if psus is not None and psus.input is not None else OTHER


def _inputs(models: list[DeviceModel], beside: dict[str, InputVolts]) -> dict[str, InputVolts]:
    """Return the equipment plugged into PDUs of a rack, with the voltages that it takes."""
    out: dict[str, InputVolts] = {}
    for model in models:
        psus = loader.platform(model.id).psus
        if model.fed != "bus_bar":
            out[model.id] = psus.input if psus is not None and psus.input is not None else SERVER
    return out | beside


def outlet_volts(feed: Rated) -> float:
    """Return the voltage at the outlets of a feed's PDU, V.

    This is line to neutral where that is high enough for power supplies, else the voltage of the circuit.
    """
    volts = feed.volts or 0.0
    return volts / math.sqrt(THREE) if feed.phases == THREE and circuits.line_to_neutral(feed) else volts


def _volts(feed: Feed, inputs: dict[str, InputVolts], loc: Loc) -> Iterator[Flaw]:
    if feed.volts is None or feed.kind != "pdu":
        return
    have = outlet_volts(feed)
    for name, takes in inputs.items():
        if takes.low * (1 - ROUNDED) <= have <= takes.high * (1 + ROUNDED):
            continue
        phases = "three-phase" if feed.phases == THREE else "single-phase"
        yield Flaw.of(
            loc,
            f"{feed.volts:g} V {phases} gives {have:.0f} V at the outlets, but {name} takes "
            f"{takes.low:g} to {takes.high:g} V",
            "Correct volts (line to line for three phases), or add a transformer between the circuit and the rack.",
            expected=f"{takes.low:g} to {takes.high:g} V at the outlets",
            actual=f"{have:.0f} V",
            kind="outlets",
        )
        return  # other equipment there would repeat it


def _feed(feed: Feed, here: Loc) -> Iterator[Flaw]:
    """Yield settings of outlets on a power shelf, which has none and would ignore them."""
    for key in ("outlet", "cord_m", "psus") if feed.kind == "shelf" else ():
        if getattr(feed, key) is not None:
            yield Flaw.of(
                (*here, key),
                f"feed {feed.name} is a power shelf but has {key}",
                f"Remove {key}, or correct the kind.",
                expected=f"a feed of kind pdu, or no {key}",
                actual="shelf",
                reads=((*here, "kind"),),
            )


_BUSWAYS = frozenset({"busway", "rpp", "pdu"})
"""Kinds of power node with no transformer between them and a rack."""
_NEAR = 0.05
"""Relative tolerance: 400 and 415 V name one circuit (IEC 60038), other nominal voltages differ more. Judgement."""


def _from(feed: Feed, source: PowerNode | None, here: Loc) -> Iterator[Flaw]:
    """Compare a feed with the power node at its other end."""
    if source is None or source.kind not in _BUSWAYS:
        return
    if feed.phases == THREE and source.phases != THREE:
        yield Flaw.of(
            (*here, "phases"),
            f"feed {feed.name} is three-phase, but {source.name} is single-phase",
            "Correct phases of one of the two.",
            expected="phases: 1",
            actual="3",
        )
    elif feed.volts is not None and source.volts is not None:
        offered = _offered(feed, source)
        if not any(abs(feed.volts - volts) <= _NEAR * volts for volts in offered):
            expected = " or ".join(f"{volts:.0f} V" for volts in offered)
            yield Flaw.of(
                (*here, "volts"),
                f"feed {feed.name} comes from {source.name}, a {source.kind} of {source.volts:g} V",
                "Correct one of the two voltages, or declare the transformer between them.",
                expected=expected,
                actual=f"{feed.volts:g} V",
            )


def _offered(feed: Feed, source: PowerNode) -> list[float]:
    """Return the voltages that a feed can have from a node, V."""
    volts = source.volts or 0.0
    if feed.phases == source.phases:
        return [volts]
    if feed.phase is not None:
        return [volts] if "-" in feed.phase else [volts / math.sqrt(THREE)]
    return [volts / math.sqrt(THREE), volts]


def _kinds(rack: Rack, models: list[DeviceModel], here: Loc, *, whole: bool) -> Iterator[Flaw]:
    cooling, feeds = rack.cooling.kind if rack.cooling is not None else None, {feed.kind for feed in rack.feeds}
    for model in models:
        warm = findings.cooling_misfit(cooling, model)
        if warm is not None:
            yield Flaw((*here, "cooling", "kind"), warm.message, WAYS[warm.topic], about=warm.about)
        fed = findings.feed_misfit(feeds, model) if whole else None
        if fed is not None:
            yield Flaw((*here, "feeds"), fed.message, WAYS[fed.topic], about=fed.about)


def _limits(rack: Rack, here: Loc) -> Iterator[Flaw]:
    """Yield limits on a part of the heat that exceed the limit on all of it."""
    limits = rack.cooling
    if limits is None or limits.max_kw is None:
        return
    for key, way in (("max_air_kw", "air"), ("max_liquid_kw", "liquid")):
        part = getattr(limits, key)
        if part is not None and part > limits.max_kw:
            yield Flaw.of(
                (*here, "cooling", key),
                f"{way} may remove more heat than the rack may give off in total (max_kw)",
                f"Lower {key}, or raise max_kw.",
                expected=f"at most {limits.max_kw:.12g} kW",
                actual=f"{part:.12g} kW",
                reads=((*here, "cooling", "max_kw"),),
            )
