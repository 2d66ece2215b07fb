"""Gives nodes and reserved devices their places in scalable units, and refuses those without a place."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from rackready.design.site_flaws import SLOT
from rackready.design.topology.types import EndpointNode
from rackready.model.problems import Problem
from rackready.model.topology import ReservedSlot

_AT = "topology"
"""Place of problems with nodes in the fabric."""


def place(
    nodes: Sequence[EndpointNode], reserved: Sequence[ReservedSlot], su_nodes: int
) -> tuple[list[EndpointNode], list[Problem]]:
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


def without_nodes(placed: Sequence[EndpointNode]) -> list[int]:
    """Return the units below the highest that hold neither a node nor a reserved device."""
    held = {node.su for node in placed}
    return [unit for unit in range(1, max(held)) if unit not in held]


class _Unit:
    """A unit and its size, for messages."""

    def __init__(self, number: int, size: int) -> None:
        self.number, self.size = number, size


def _next(taken: dict[int, str], slot: int) -> int:
    while slot in taken:
        slot += 1
    return slot


def _take(taken: dict[int, str], slot: int, name: str, unit: _Unit) -> list[Problem]:
    what = f"{name}: slot {slot} of unit {unit.number}"
    if unit.number < 1:
        return [
            Problem.of(_AT, f"{name}: unit", expected="1 or more", actual=unit.number, next_step="Number units from 1.")
        ]
    if not 1 <= slot <= unit.size:
        return [
            Problem.of(
                _AT,
                what,
                expected=f"1 to {unit.size}",
                actual=slot,
                next_step="Move the node to the next unit, or raise topology.su_nodes.",
            )
        ]
    before = taken.setdefault(slot, name)
    if before != name:
        return [
            Problem.of(
                _AT,
                what,
                expected="free",
                actual=f"taken by {before}",
                next_step="Give one of them another slot.",
                about=SLOT,
            )
        ]
    return []


def _named_twice(nodes: Sequence[EndpointNode]) -> list[Problem]:
    seen: set[str] = set()
    out = []
    for node in nodes:
        if node.name in seen:
            out.append(
                Problem.of(
                    _AT, node.name, expected="given once", actual="given twice", next_step="Rename one of the two."
                )
            )
        seen.add(node.name)
    return out


def _reserve(reserved: Sequence[ReservedSlot], su_nodes: int, taken: dict[int, dict[int, str]]) -> list[Problem]:
    problems = []
    for number, item in enumerate(reserved):
        owner = " and ".join(sorted(item.devices))
        problems += _take(taken[item.su], item.slot, owner, _Unit(item.su, su_nodes))
        rails = [rail for rails in item.devices.values() for rail in rails]
        double = sorted({rail for rail in rails if rails.count(rail) > 1})
        if double:
            listed = ", ".join(str(rail) for rail in double)
            problems.append(
                Problem.of(
                    f"topology.reserved[{number}].devices",
                    f"rail {listed}",
                    expected="given once",
                    actual="given twice",
                    next_step="A slot has one port on each leaf.",
                )
            )
    return problems


def _devices(reserved: Sequence[ReservedSlot], rate: int) -> list[EndpointNode]:
    return [
        EndpointNode(name, item.su, tuple(sorted(rails)), rate, item.slot)
        for item in reserved
        for name, rails in sorted(item.devices.items())
    ]
