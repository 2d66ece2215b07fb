"""Gives nodes and reserved devices their places in scalable units, and refuses those without a place."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from rackready.design.topology.types import EndpointNode
from rackready.model.topology import ReservedSlot


def place(
    nodes: Sequence[EndpointNode], reserved: Sequence[ReservedSlot], su_nodes: int
) -> tuple[list[EndpointNode], list[str]]:
    """Return every node with its slot, reserved devices as nodes after them, and problems.

    A given slot is kept; other nodes take the lowest free slots of their unit, in order.
    """
    taken: dict[int, dict[int, str]] = defaultdict(dict)
    problems = _reserve(reserved, su_nodes, taken)
    problems += _named_twice(nodes)
    for node in nodes:
        if node.slot:
            problems += _take(taken[node.su], node.slot, node.name, _Unit(node.su, su_nodes))
    placed, free = [], dict.fromkeys(taken, 1)
    for node in nodes:
        slot = node.slot
        if not slot:
            slot = _next(taken[node.su], free.get(node.su, 1))
            problems += _take(taken[node.su], slot, node.name, _Unit(node.su, su_nodes))
            free[node.su] = slot + 1
        placed.append(node if node.slot == slot else EndpointNode(node.name, node.su, node.rails, node.rate, slot))
    rate = nodes[0].rate if nodes else 0
    return placed + _devices(reserved, rate), problems


class _Unit:
    """A unit and its size, for messages."""

    def __init__(self, number: int, size: int) -> None:
        self.number, self.size = number, size


def _next(taken: dict[int, str], slot: int) -> int:
    while slot in taken:
        slot += 1
    return slot


def _take(taken: dict[int, str], slot: int, name: str, unit: _Unit) -> list[str]:
    where = f"topology: {name}: slot {slot} of unit {unit.number}"
    if unit.number < 1:
        return [f"topology: {name}: unit - Expected: 1 or more Actual: {unit.number}. Number units from 1."]
    if not 1 <= slot <= unit.size:
        return [
            (
                f"{where} - Expected: 1 to {unit.size} Actual: {slot}. Move the node to the next unit, or raise "
                "topology.su_nodes."
            )
        ]
    before = taken.setdefault(slot, name)
    if before != name:
        return [f"{where} - Expected: free Actual: taken by {before}. Give one of them another slot."]
    return []


def _named_twice(nodes: Sequence[EndpointNode]) -> list[str]:
    seen: set[str] = set()
    out = []
    for node in nodes:
        if node.name in seen:
            out.append(f"topology: {node.name} - Expected: given once Actual: given twice. Rename one of the two.")
        seen.add(node.name)
    return out


def _reserve(reserved: Sequence[ReservedSlot], su_nodes: int, taken: dict[int, dict[int, str]]) -> list[str]:
    problems = []
    for number, item in enumerate(reserved):
        owner = " and ".join(sorted(item.devices))
        problems += _take(taken[item.su], item.slot, owner, _Unit(item.su, su_nodes))
        rails = [rail for rails in item.devices.values() for rail in rails]
        double = sorted({rail for rail in rails if rails.count(rail) > 1})
        if double:
            listed = ", ".join(str(rail) for rail in double)
            problems.append(
                f"topology.reserved[{number}].devices: rail {listed} - Expected: given once Actual: given twice. "
                "A slot has one port on each leaf."
            )
    return problems


def _devices(reserved: Sequence[ReservedSlot], rate: int) -> list[EndpointNode]:
    return [
        EndpointNode(name, item.su, tuple(sorted(rails)), rate, item.slot)
        for item in reserved
        for name, rails in sorted(item.devices.items())
    ]
