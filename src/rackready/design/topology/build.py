"""Builds a compute fabric from its topology and its nodes: every switch, every cable with both ports, and the proof."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from rackready.design.collector import without_gc
from rackready.design.topology import growth, wire
from rackready.design.topology.graph import downward, upward
from rackready.design.topology.place import place, without_nodes
from rackready.design.topology.ports import radix_of
from rackready.design.topology.prove import Design, prove
from rackready.design.topology.refuse import too_large
from rackready.design.topology.sizing import Demand, Shape, ports_down, shape
from rackready.design.topology.spof import losses
from rackready.design.topology.types import EndpointNode, FabricPlan, TrunkLink
from rackready.model.host_list import spans
from rackready.model.problems import Problem
from rackready.model.topology import Topology

Radix = tuple[int, int, int]
"""Ports of a leaf, a spine and a core, at the rate of the links."""


def build(topology: Topology, nodes: Sequence[EndpointNode], *, platform_su_nodes: int | None = None) -> FabricPlan:
    """Return the proved fabric for these nodes; or only ``problems``, all of them, each with place and next step.

    ``platform_su_nodes`` is the platform's own size of a scalable unit, used if the topology gives none. Ports come
    from switch profiles.
    """
    if not nodes:
        return FabricPlan(
            problems=(
                Problem.of(
                    "topology",
                    "nodes with a NIC",
                    expected="at least one",
                    actual="none",
                    next_step="Add nodes to the racks, or remove topology.",
                ),
            )
        )
    radix, problems = _radix(topology, nodes)
    if problems:
        return FabricPlan(problems=tuple(problems))
    return build_at(radix, topology, nodes, platform_su_nodes=platform_su_nodes)


def build_at(
    radix: Radix, topology: Topology, nodes: Sequence[EndpointNode], *, platform_su_nodes: int | None = None
) -> FabricPlan:
    """Return the same as ``build``, with these numbers of ports (leaf, spine, core) instead of those of profiles."""
    with without_gc():
        planes, placed, problems = _planes(radix, topology, nodes, platform_su_nodes)
        if problems:
            return FabricPlan(problems=tuple(problems))
        moved = _moved(topology, planes)
        return (
            FabricPlan(problems=(moved,)) if moved else _wired(topology, planes, placed, {node.name for node in nodes})
        )


def _planes(
    radix: Radix, topology: Topology, nodes: Sequence[EndpointNode], platform_su_nodes: int | None
) -> tuple[list[wire.Plane], list[EndpointNode], list[Problem]]:
    rails = sorted({rail for node in nodes for rail in node.rails})
    su_nodes = topology.su_nodes or platform_su_nodes or ports_down(radix[0], topology.oversubscription)
    placed, problems = place(nodes, topology.reserved, su_nodes)
    problems = _rail_problems(topology, rails, placed[len(nodes) :]) + problems
    if problems:
        return [], [], problems
    populated = max(node.su for node in placed)
    units = max(populated, topology.grow_to_su or 0, topology.laid_for_su or 0)
    dealt = _rails_of_planes(topology, rails)
    optimized = topology.kind == "rail_optimized"
    demand = Demand(
        radix, len(dealt[0]), su_nodes, units, optimized, topology.oversubscription, topology.spine_oversubscription
    )
    found = _shape(topology, demand)
    if found is None:
        return [], [], [too_large(topology, demand, _room(nodes, units, su_nodes))]
    unread = _unused_settings(topology, found.tiers)
    if unread:
        return [], [], unread
    return (
        [
            wire.Plane(number, found, topology, tuple(own), radix, populated, demand)
            for number, own in enumerate(dealt, 1)
        ],
        placed,
        [],
    )


def _unused_settings(topology: Topology, tiers: int) -> list[Problem]:
    """Return settings of a third tier in a topology with two."""
    if tiers != 2:  # noqa: PLR2004 - two tiers
        return []
    given = (
        {"spine_oversubscription": topology.spine_oversubscription} if topology.spine_oversubscription != "1:1" else {}
    )
    given |= {"core": topology.core.model} if topology.core is not None else {}
    return [
        Problem.of(
            f"topology.{key}",
            "two tiers are enough for these nodes",
            expected=f"no {key}",
            actual=value,
            next_step="Remove it, or set tiers: 3.",
        )
        for key, value in given.items()
    ]


def _moved(topology: Topology, planes: list[wire.Plane]) -> Problem | None:
    """Return why the site must not grow like this, if it would move cables (``laid_for_su``); else None."""
    if topology.laid_for_su is None or topology.laid_for_su == planes[0].shape.units:
        return None
    laid = _sized(topology, planes[0], topology.laid_for_su)
    if laid is None or growth.keeps(
        laid, planes[0].shape
    ):  # never None: the fabric is also sized for these units, and fewer always fit
        return None
    before = [replace(plane, shape=laid, populated=min(plane.populated, laid.units)) for plane in planes]
    most = growth.furthest(laid, partial(_sized, topology, planes[0]))
    return growth.laid_problem(laid, planes[0].shape, most, (_trunks(before), _trunks(planes)))


def _sized(topology: Topology, plane: wire.Plane, units: int) -> Shape | None:
    """Return the shape of the same fabric for that many units."""
    return _shape(topology, replace(plane.demand, units=units))


def _trunks(planes: list[wire.Plane]) -> Iterator[TrunkLink]:
    for plane in planes:
        yield from wire.leaf_trunks(plane)
        yield from wire.core_trunks(plane)


def _room(nodes: Sequence[EndpointNode], units: int, su_nodes: int) -> int:
    """Return the nodes to make room for: the existing ones, or full units with gaps (``grow_to_su``)."""
    return len(nodes) if len(nodes) > (units - 1) * su_nodes else units * su_nodes


def _shape(topology: Topology, demand: Demand) -> Shape | None:
    for tiers in (topology.tiers,) if topology.tiers else (2, 3):
        found = shape(demand, tiers)
        if found is not None:
            return found
    return None


def _rails_of_planes(topology: Topology, rails: list[int]) -> list[list[int]]:
    """Return the rails of each plane: all, or distributed in turn."""
    if topology.planes_by == "port":
        return [rails] * topology.planes
    return [rails[number :: topology.planes] for number in range(topology.planes)]


def _rail_problems(topology: Topology, rails: list[int], devices: Sequence[EndpointNode]) -> list[Problem]:
    out = [
        Problem.of(
            "topology.reserved",
            f"{device.name}: rail",
            expected=f"one of {', '.join(map(str, rails))}",
            actual=rail,
            next_step="Correct the rail.",
        )
        for device in devices
        for rail in device.rails
        if rail not in rails
    ]
    if topology.planes_by == "rail" and len(rails) % topology.planes:
        out.append(
            Problem.of(
                "topology.planes",
                f"{len(rails)} rails over {topology.planes} planes",
                expected=f"a number that divides {len(rails)}",
                actual=topology.planes,
                next_step="Use another number of planes, or planes_by: port.",
            )
        )
    return out


def _radix(topology: Topology, nodes: Sequence[EndpointNode]) -> tuple[Radix, list[Problem]]:
    """Return ports of a leaf, a spine and a core at the rate of the links, and problems with switch models."""
    rates = sorted({node.rate for node in nodes})
    if len(rates) > 1:
        listed = ", ".join(str(rate) for rate in rates)
        return (0, 0, 0), [
            Problem.of(
                "topology",
                "rates of compute NICs (Gb/s)",
                expected="one rate in one fabric",
                actual=listed,
                next_step="Describe a separate fabric for each rate.",
            )
        ]
    tiers = {"leaf": topology.leaf, "spine": topology.spine_switches(), "core": topology.core_switches()}
    found = {name: radix_of(f"topology.{name}", tier, rates[0], topology.link) for name, tier in tiers.items()}
    values = [value for value, _ in found.values()]
    return (values[0], values[1], values[2]), list(
        dict.fromkeys(problem for _, problem in found.values() if problem is not None)
    )


def _wired(topology: Topology, planes: list[wire.Plane], placed: list[EndpointNode], nodes: set[str]) -> FabricPlan:
    switches = tuple(switch for plane in planes for switch in wire.switches(plane))
    endpoints = tuple(link for plane in planes for link in wire.endpoints(plane, placed))
    trunks = tuple(_trunks(planes))
    design = Design(topology.oversubscription, topology.spine_oversubscription, topology.kind == "rail_optimized")
    up = upward(trunks)
    proof = prove(switches, endpoints, trunks, design, up)
    devices = {node.name for node in placed} - nodes
    lost = losses(switches, endpoints, up, downward(up), devices)
    counts = wire.counts({plane.number: plane for plane in planes}) | {
        "tiers": planes[0].shape.tiers,
        "planes": len(planes),
        "units": planes[0].populated,
        "nodes": len(nodes),
        "devices": len(devices),
        "endpoint_cables": len(endpoints),
    }
    cut_off = tuple(loss.text for loss in lost if loss.cuts_off)
    return FabricPlan(
        switches, endpoints, trunks, proof.problems, counts, cut_off, lost, proof, tuple(_notes(planes[0], placed))
    )


def _notes(plane: wire.Plane, placed: Sequence[EndpointNode]) -> Iterator[str]:
    """Yield notes on units, leafs and spines that nodes do not need, and on cables that one more unit would move."""
    empty = without_nodes(placed)
    if empty:
        leafs = len(empty) * plane.shape.leaf.per_unit * plane.topology.planes
        yield (
            f"topology: units below the highest without a node ({spans(empty)}): {leafs} leafs are planned for them "
            "all the same. If nothing will stand there, set index or su of racks, so that units are filled from 1."
        )
    if plane.shape.leafs == 1:
        yield (
            f"topology: switches above the only leaf of a plane - Expected: none, since they join no other leaf "
            f"Actual: {plane.shape.spines} with {plane.shape.leaf.up} cables. Describe the cables of nodes by links "
            "instead of topology, or set grow_to_su if more units follow."
        )
    yield from _growth_note(plane)
    leaf, radix = plane.shape.leaf, plane.radix[0]
    down = ports_down(radix, plane.topology.oversubscription)
    if plane.shape.units > 1 and 2 * leaf.down <= down:
        size = down if plane.optimized else down // len(plane.rails) * leaf.per_unit
        yield (
            f"topology.su_nodes: ports of a leaf in use - Expected: {down} down of {radix} ports "
            f"Actual: {leaf.down} down and {leaf.up} up. "
            f"su_nodes: {size} needs fewer leafs for the same nodes."
        )


def _growth_note(plane: wire.Plane) -> Iterator[str]:
    topology, shape = plane.topology, plane.shape
    if topology.grow_to_su is not None or topology.laid_for_su is not None:
        return
    larger = _sized(topology, plane, shape.units + 1)
    if larger is not None and not growth.keeps(shape, larger):
        yield (
            f"topology: sized for {shape.units} units; one more would move cables between switches. "
            f"Set grow_to_su before the cables are installed, or laid_for_su: {shape.units} afterwards, so that growth "
            "is refused."
        )
