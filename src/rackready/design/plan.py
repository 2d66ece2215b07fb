"""The whole plan of a site: fabric, cables, addresses, capacity and bill of materials."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rackready.design.addresses import AddressPlan, addresses, number_notes
from rackready.design.addresses_fabric import trunk_problem
from rackready.design.bom_devices import device_lines
from rackready.design.cabling.bom import bill_of_materials
from rackready.design.cabling.catalogue import Catalogue, StockError
from rackready.design.cabling.cords import cord_lines, cord_notes
from rackready.design.cabling.nvlink import nvlink_notes
from rackready.design.cabling.plan import plan_cables
from rackready.design.cabling.runs import site_runs
from rackready.design.cabling.types import BomLine, CablePlan
from rackready.design.capacity.cooling_loss import cdus_of
from rackready.design.capacity.from_site import racks_of, unplaced_of
from rackready.design.capacity.parts import RackInput
from rackready.design.capacity.report import CapacityReport, capacity
from rackready.design.check_gates import today, warnings
from rackready.design.collector import without_gc
from rackready.design.other_fabrics import other_layout
from rackready.design.overlay import vlan_overlaps
from rackready.design.part_notes import part_notes
from rackready.design.plan_links import written_fabric
from rackready.design.planned_switches import switch_problems
from rackready.design.topology.types import FabricPlan
from rackready.design.wiring import topology_fabric
from rackready.model.problems import Message, Problem
from rackready.model.site import Site
from rackready.profiles import loader

SLACK_M = 0.5
"""Spare length at each end of a cable, m: a planning input, not a published figure."""
SPARES_PCT = 5.0
"""Spares of each cable part, percent: a planning input, not a published figure."""


@dataclass(frozen=True, slots=True)
class Laid:
    """The part of a plan that is applied to devices: links, cables and addresses."""

    site: Site
    fabric: FabricPlan
    cables: CablePlan
    addresses: AddressPlan


@dataclass(frozen=True, slots=True)
class Plan(Laid):
    """The complete plan of a site. If there are ``problems``, do not order, build or configure from it."""

    racks: tuple[RackInput, ...]
    capacity: CapacityReport
    bom: tuple[BomLine, ...]
    problems: tuple[Problem, ...]
    notes: tuple[str, ...]


def plan_site(site: Site, *, slack_m: float = SLACK_M, spares_pct: float = SPARES_PCT) -> Plan:
    """Return the plan of a checked site, whether a topology or links define its fabric.

    Problems are collected in ``problems``, not raised.

    Raises ValueError for negative ``spares_pct``, UnknownProfileError for a missing profile.
    """
    with without_gc():
        fabric = fabric_of(site)
        made = fabric if site.topology is not None else None
        cabling, catalogue = _cables(site, made, slack_m)
        given = addresses(site, made)
        racks = tuple(racks_of(site, made))
        report = capacity(racks, site.facility, unplaced_of(site, made), cdus_of(site))
        ordered = bill_of_materials(cabling.cables, catalogue, spares_pct, _models(site, fabric))
        bom = (*ordered, *device_lines(site), *cord_lines(racks, spares_pct))
        trunks = trunk_problem(site, fabric) if made is not None else None
        listed = [_problem(message) for message in (*switch_problems(site, made), *vlan_overlaps(site))]
        found = [
            *fabric.problems,
            *listed,
            *cabling.problems,
            *given.problems,
            *([trunks] if trunks is not None else []),
        ]
        problems = tuple(dict.fromkeys([*found, *report.problems]))
        notes = (
            *warnings(site, today()),
            *part_notes(site),
            *number_notes(site),
            *fabric.notes,
            *cabling.notes,
            *nvlink_notes(site),
            *cord_notes(racks),
            *report.notes,
        )
        return Plan(site, fabric, cabling, given, racks, report, bom, problems, notes)


def _problem(found: Message) -> Problem:
    return Problem.of(
        str(found.where), found.what, expected=found.expected, actual=found.actual, next_step=found.next_step
    )


def lay(site: Site, *, slack_m: float = SLACK_M) -> Laid:
    """Return the part of a plan that is applied to devices, without capacity and bill of materials."""
    with without_gc():
        fabric = fabric_of(site)
        made = fabric if site.topology is not None else None
        return Laid(site, fabric, _cables(site, made, slack_m)[0], addresses(site, made))


def fabric_of(site: Site) -> FabricPlan:
    """Return the compute fabric: from the topology, else from the links of the site file."""
    if site.topology is None:
        return written_fabric(site)
    return topology_fabric(site)


def _cables(site: Site, fabric: FabricPlan | None, slack_m: float) -> tuple[CablePlan, Catalogue]:
    profiles = [loader.parts(name) for name in loader.known("parts")]
    try:
        catalogue = Catalogue(profiles, site.cable_stock)
    except StockError as error:
        return CablePlan((), tuple(error.problems)), Catalogue(profiles)
    if fabric is not None and fabric.problems and not fabric.switches:
        return CablePlan((), (), ("compute fabric: it has problems, so no cables are listed.",)), catalogue
    runs = site_runs(site, fabric, slack_m)
    laid = plan_cables(runs.runs, runs.floor, catalogue, runs.notes)
    return CablePlan(laid.cables, (*runs.problems, *laid.problems), laid.notes, runs.node_ports), catalogue


def _models(site: Site, fabric: FabricPlan) -> Mapping[str, Mapping[str, int]]:
    """Return how many of each model the site needs; a switch both listed and made by a topology counts once."""
    written = {switch.name: switch.model for switch in site.switches}
    switches = (
        {switch.name: switch.model for switch in other_layout(site).switches}
        | written
        | {switch.name: switch.model for switch in fabric.switches}
    )
    nodes = Counter(node.platform for node in site.nodes() if node.kind == "metal")
    return {"switch": dict(sorted(Counter(switches.values()).items())), "node": dict(sorted(nodes.items()))}


def switch_models(plan: Laid) -> Iterable[tuple[str, str, str]]:
    """Yield (name, tier or role, model) of every switch.

    The compute fabric comes first, then other fabrics, then switches that only the site file lists.
    """
    made = {switch.name for switch in plan.fabric.switches}
    yield from ((switch.name, switch.tier, switch.model) for switch in plan.fabric.switches)
    others = other_layout(plan.site).switches
    yield from ((switch.name, f"{switch.fabric} {switch.tier}", switch.model) for switch in others)
    made |= {switch.name for switch in others}
    yield from ((switch.name, switch.role, switch.model) for switch in plan.site.switches if switch.name not in made)
