"""Plain data of a compute fabric.

100,000 endpoints are 300,000 links: these are named tuples, which are created in a third of the time of frozen
dataclasses, and unpacked in one step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from rackready.model.problems import Problem

Tier = Literal["leaf", "spine", "core"]


@dataclass(frozen=True, slots=True)
class EndpointNode:
    """A node to be cabled.

    ``su`` and ``slot`` count from 1; ``slot`` 0 takes the next free place of the unit, in order.
    """

    name: str
    su: int
    rails: tuple[int, ...]
    rate: int
    """Gb/s of one link, per direction: of one port if a NIC is split over planes."""
    slot: int = 0


@dataclass(frozen=True, slots=True)
class TopoSwitch:
    """One switch.

    ``index`` counts from 1 and is unique within plane and tier. It stays when units are added, so it may have gaps.
    """

    name: str
    tier: Tier
    plane: int
    pod: int
    """Pod from 1; two tiers are one pod; 0 for a core, which belongs to none."""
    index: int
    model: str
    radix: int
    su: int = 0
    """Scalable unit of a leaf; 0 above."""
    rail: int = 0
    """Rail that a leaf carries in a rail-optimized fabric; 0 otherwise."""


class EndpointLink(NamedTuple):
    """One cable between a NIC and a leaf."""

    node: str
    nic: int
    """Rail number, from 1."""
    plane: int
    switch: str
    port: int
    """Port of the switch, from 1, at the rate of the link (after breakout); ``ports.port_name`` names it."""


class TrunkLink(NamedTuple):
    """One cable between two switches."""

    lower: str
    lower_port: int
    upper: str
    upper_port: int


@dataclass(frozen=True, slots=True)
class TierProof:
    """What holds for every switch of one tier, or how many violate it."""

    tier: Tier
    switches: int
    down: int
    """Links towards nodes, of all switches together."""
    up: int
    uppers: int
    """Switches of the tier above that each reaches (the fewest, if they differ)."""
    per_upper: int
    """Links to each of them (the fewest)."""
    ok: bool


@dataclass(frozen=True, slots=True)
class CutProof:
    """Max-flow between two named sides, in links."""

    name: str
    plane: int
    expected: int
    actual: int


@dataclass(frozen=True, slots=True)
class Loss:
    """The loss with any one of these switches."""

    switches: tuple[str, ...]
    text: str
    nodes: int
    """Nodes that lose something (the most, over these switches)."""
    links_lost_pct: float
    """Share of these nodes' links, or of the tier's capacity for spines and cores, percent."""
    cuts_off: bool
    """A rail, nodes or a part of the fabric has no other path: a single point of failure."""


@dataclass(frozen=True, slots=True)
class Proof:
    """The result of the proof: tiers, flows and problems."""

    tiers: tuple[TierProof, ...]
    cuts: tuple[CutProof, ...]
    problems: tuple[Problem, ...]

    @property
    def ok(self) -> bool:
        """Return whether no check found anything and tiers were checked: a check of nothing proves nothing."""
        return not self.problems and bool(self.tiers)


@dataclass(frozen=True, slots=True)
class FabricPlan:
    """A fabric with every switch and cable.

    A fabric that cannot be built has only ``problems``; one that fails its proof has its problems here too.
    """

    switches: tuple[TopoSwitch, ...] = ()
    endpoints: tuple[EndpointLink, ...] = ()
    trunks: tuple[TrunkLink, ...] = ()
    problems: tuple[Problem, ...] = ()
    counts: dict[str, int] = field(default_factory=dict)
    """Counts over all planes.

    ``leaf``, ``spine``, ``core``, ``endpoint_cables``, ``leaf_spine_cables``, ``spine_core_cables``; and ``tiers``,
    ``planes``, ``units``, ``nodes``, and ``devices`` in places of nodes."""
    spof: tuple[str, ...] = ()
    losses: tuple[Loss, ...] = ()
    """The loss with one switch of every kind. ``spof``: texts of those that cut something off."""
    proof: Proof | None = None
    notes: tuple[str, ...] = ()
    """Correct but wasteful settings, with the way to save."""
