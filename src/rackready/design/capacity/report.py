"""The complete capacity report: loads per rack, every single loss, problems, power-on waves, totals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rackready.design.capacity import circuits, cooling
from rackready.design.capacity.cooling_loss import Cdu, cooled
from rackready.design.capacity.gaps import not_judged
from rackready.design.capacity.graph import SOURCES, PowerGraph, structure_problems
from rackready.design.capacity.limits import over
from rackready.design.capacity.losses import Flow, LossCase, losses
from rackready.design.capacity.notes import notes, unsplit
from rackready.design.capacity.parts import PoweredDevice, RackInput, total
from rackready.design.capacity.power_on import Staged, staged
from rackready.design.capacity.supply import Supplies
from rackready.design.capacity.violations import node_problems, rack_problems
from rackready.design.capacity.whole import Whole, unsurvived
from rackready.model.facility import Facility
from rackready.model.problems import Problem


@dataclass(frozen=True, slots=True)
class FeedLoad:
    """One feed of one rack with everything alive."""

    name: str
    source: str
    load_w: float
    usable_w: float | None


@dataclass(frozen=True, slots=True)
class RackLoad:
    """One rack. None: the figure of some device is not published."""

    name: str
    hall: str | None
    devices: dict[str, int]
    """Model -> number."""
    used_u: int
    height_u: int
    max_w: float
    """Highest draw of all devices with a published draw; ``unpublished`` names the others."""
    typical_w: float | None
    transient_w: float | None
    weight_kg: float | None
    heat: cooling.Heat
    feeds: tuple[FeedLoad, ...]
    unpublished: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NodeLoad:
    """One power node: with everything alive, and in the worst single loss."""

    name: str
    kind: str
    load_w: float
    worst_w: float
    worst_case: str
    usable_w: float | None
    partial: bool = False
    """Some draw that may reach it is not published: loads are lower bounds."""


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums of the site."""

    racks: int
    devices: int
    max_w: float
    typical_w: float | None
    transient_w: float | None
    weight_kg: float | None
    btu_h: float
    tons: float
    liquid_w: float | None
    air_w: float | None
    no_liquid_share: tuple[str, ...]
    """Models with an unknown split of heat: with any, ``liquid_w`` and ``air_w`` are None."""
    unplaced: tuple[str, ...]
    """Switches and devices in no rack. Their draw is in these sums, and in no rack."""
    facility_w: float | None
    """IT load x PUE; None if the site gives no PUE."""
    air_m3_h: float | None
    liquid_l_min: float | None
    """Flows of air and water at the site's temperature rise; None without it or if the split is not published."""


@dataclass(frozen=True, slots=True)
class CapacityReport:
    """Capacity of a site."""

    racks: tuple[RackLoad, ...]
    nodes: tuple[NodeLoad, ...]
    losses: tuple[LossCase, ...]
    problems: tuple[Problem, ...]
    notes: tuple[str, ...]
    power_on: Staged | None
    totals: Totals
    not_published: tuple[str, ...] = ()
    """Models whose highest draw is not published, unplaced ones included."""
    over_alive: int = 0
    """Elements over their rating with everything alive: power nodes, feeds, CDUs, all sources, the cooling plant."""


class _Loads:
    """Loads of racks; racks that are alike are computed once."""

    def __init__(self, supplies: Supplies) -> None:
        self.supplies = supplies
        self._known: dict[tuple[object, ...], RackLoad] = {}

    def of(self, rack: RackInput) -> RackLoad:
        """Return the load of one rack."""
        key = (rack.shape, rack.sources)
        like = self._known.get(key)
        if like is None:
            like = self._known[key] = self._new(rack)
        return RackLoad(rack.name, rack.hall, *(getattr(like, name) for name in _SHARED))

    def _new(self, rack: RackInput) -> RackLoad:
        models = [device.model for device in rack.devices]
        counts: dict[str, int] = {}
        for model in models:
            counts[model.label] = counts.get(model.label, 0) + 1
        return RackLoad(
            name=rack.name,
            hall=rack.hall,
            devices=counts,
            used_u=rack.used_u,
            height_u=rack.height_u,
            max_w=rack.max_w,
            typical_w=total(model.typical_w for model in models),
            transient_w=total(model.transient_w for model in models),
            weight_kg=total(model.weight_kg for model in models),
            heat=cooling.heat(rack),
            feeds=self._feeds(rack),
            unpublished=rack.unpublished,
        )

    def _feeds(self, rack: RackInput) -> tuple[FeedLoad, ...]:
        state = self.supplies.of(rack, (True,) * len(rack.feeds))
        return tuple(
            FeedLoad(feed.name, feed.source, seen, circuits.usable_w(feed))
            for feed, seen in zip(rack.feeds, state.judged_w, strict=True)
        )


_SHARED = (
    "devices",
    "used_u",
    "height_u",
    "max_w",
    "typical_w",
    "transient_w",
    "weight_kg",
    "heat",
    "feeds",
    "unpublished",
)


def _flow(of: Callable[[float, float], float], watts: float | None, rise_k: float | None) -> float | None:
    return None if watts is None or rise_k is None else of(watts, rise_k)


def _totals(
    inputs: Sequence[RackInput], racks: Sequence[RackLoad], unplaced: Sequence[PoweredDevice], facility: Facility
) -> Totals:
    beside = [device.model for device in unplaced]
    most = sum(rack.max_w for rack in racks) + sum(model.max_w or 0.0 for model in beside)
    split = [
        None if model.liquid_share is None and model.max_w != 0 else (model.liquid_share or 0.0) * (model.max_w or 0.0)
        for model in beside
    ]
    liquid = total([*(rack.heat.liquid_w for rack in racks), *split])
    heat = cooling.Heat(most, liquid)
    return Totals(
        racks=len(racks),
        devices=sum(sum(rack.devices.values()) for rack in racks) + len(unplaced),
        max_w=most,
        typical_w=total([*(rack.typical_w for rack in racks), *(model.typical_w for model in beside)]),
        transient_w=total([*(rack.transient_w for rack in racks), *(model.transient_w for model in beside)]),
        weight_kg=total([*(rack.weight_kg for rack in racks), *(model.weight_kg for model in beside)]),
        btu_h=heat.btu_h,
        tons=heat.tons,
        liquid_w=liquid,
        air_w=heat.air_w,
        no_liquid_share=tuple(unsplit(inputs, unplaced)),
        unplaced=tuple(device.name for device in unplaced),
        facility_w=None if facility.pue is None else most * facility.pue,
        air_m3_h=_flow(cooling.air_flow_m3_h, heat.air_w, facility.air_rise_k),
        liquid_l_min=_flow(cooling.liquid_flow_l_min, heat.liquid_w, facility.liquid_rise_k),
    )


def source_problems(racks: Sequence[RackInput], known: set[str]) -> list[Problem]:
    """Return feeds whose source is not a known power node."""
    return [
        Problem.of(
            f"rack {rack.name}",
            f"feed {feed.name} comes from {feed.source!r}",
            "Correct it or declare the power node.",
            expected="a name in facility.power",
            actual="not declared",
        )
        for rack in racks
        for feed in rack.feeds
        if feed.source not in known
    ]


def _node_loads(flow: Flow) -> tuple[NodeLoad, ...]:
    graph = flow.graph
    return tuple(
        NodeLoad(
            node.name,
            node.kind,
            graph.seen_w(number, flow.base[number]),
            flow.worst_w[number],
            flow.worst_case[number],
            usable,
            number in flow.partial,
        )
        for number, (node, usable) in enumerate(zip(graph.nodes, graph.usable, strict=True))
    )


def capacity(
    racks: Sequence[RackInput],
    facility: Facility | None,
    unplaced: Sequence[PoweredDevice] = (),
    cdus: Sequence[Cdu] = (),
) -> CapacityReport:
    """Return loads, losses, problems and the order of power-on.

    Nothing is raised: faults of the power graph itself are problems too.

    ``unplaced``: equipment in no rack, which counts only in the sums of the site. ``cdus``: coolant
    distribution units; the loss of each is a case like that of a power node.
    """
    facility = facility or Facility()
    supplies = Supplies()
    loads = _Loads(supplies)
    rows = tuple(loads.of(rack) for rack in racks)
    totals = _totals(racks, rows, unplaced, facility)
    missing = tuple(
        sorted(
            {name for rack in racks for name in rack.unpublished}
            | {item.model.label for item in unplaced if item.model.max_w is None}
        )
    )
    problems = structure_problems(facility.power) + source_problems(racks, {node.name for node in facility.power})
    flow, order = None, None
    if not problems and facility.power:
        flow = losses(PowerGraph(facility.power, facility.pue), racks, supplies)
        order = staged(flow.graph, racks, facility.power_on)
        problems += [*node_problems(flow), *order.problems]
    nodes, cases = (_node_loads(flow), flow.cases) if flow is not None else ((), [])
    liquid = cooled(cdus, racks)
    whole = Whole(facility, totals.max_w, totals.facility_w, bool(missing))
    grid, plant = whole.grid(), whole.plant()
    judged, after = (cases, []) if grid else whole.judged(cases)
    # With one source that is overloaded without any loss, the total would only repeat it.
    told = any(
        node.kind in SOURCES and node.usable_w is not None and over(node.load_w, node.usable_w) for node in nodes
    )
    shown = [] if told else grid
    problems += [*shown, *after]
    problems += [*plant, *rack_problems(racks, flow, supplies)]
    gaps = (
        *notes(racks, facility, unplaced),
        *not_judged(racks, unplaced, facility, flow, supplies),
        *whole.notes(cases, judged),
        *liquid.notes,
    )
    every = [*judged, *liquid.cases]
    every = list(unsurvived(every)) if grid or plant else every
    over_alive = _over_alive(rows, nodes) + liquid.over_alive + len(shown) + len(plant)
    return CapacityReport(
        rows, nodes, tuple(every), (*problems, *liquid.problems), gaps, order, totals, missing, over_alive
    )


def _over_alive(racks: Sequence[RackLoad], nodes: Sequence[NodeLoad]) -> int:
    loads = [
        *((node.load_w, node.usable_w) for node in nodes),
        *((feed.load_w, feed.usable_w) for rack in racks for feed in rack.feeds),
    ]
    return sum(usable is not None and over(load, usable) for load, usable in loads)
