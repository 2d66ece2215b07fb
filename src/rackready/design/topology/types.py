"""What a compute fabric is made of, as plain derived facts.

100,000 endpoints are 300,000 links: these are named tuples, which are made in a third of the time of frozen
dataclasses, and unpacked in one step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Tier = Literal["leaf", "spine", "core"]


@dataclass(frozen=True, slots=True)
class EndpointNode:
    """A node that is to be cabled. ``su`` and ``slot`` count from 1; ``slot`` 0 takes the next free place of the unit, in the order given."""

    name: str
    su: int
    rails: tuple[int, ...]
    rate: int
    """Gb/s of one link, per direction: of one port when a NIC is split over planes."""
    slot: int = 0


@dataclass(frozen=True, slots=True)
class TopoSwitch:
    """One switch. ``index`` counts from 1 and is unique within plane and tier; it stays when units are added, so it may have gaps."""

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
    """What holds for every switch of one tier, or how many do not."""

    tier: Tier
    switches: int
    down: int
    """Links towards nodes, of all switches together."""
    up: int
    uppers: int
    """Switches of the tier above that each reaches (the least, when they differ)."""
    per_upper: int
    """Links to each of them (the least)."""
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
    """What is lost with any one of these switches."""

    switches: tuple[str, ...]
    text: str
    nodes: int
    """Nodes that lose something (the most, over these switches)."""
    links_lost_pct: float
    """Share of these nodes' links, or of the tier's capacity for spines and cores, per cent."""
    cuts_off: bool
    """A rail, nodes or a part of the fabric has no other way: a single point of failure."""


@dataclass(frozen=True, slots=True)
class Proof:
    """Whether the fabric carries what it says, and why."""

    tiers: tuple[TierProof, ...]
    cuts: tuple[CutProof, ...]
    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """True when no check found anything, and tiers were looked at: nothing looked at is no proof."""
        return not self.problems and bool(self.tiers)


@dataclass(frozen=True, slots=True)
class FabricPlan:
    """A fabric with every switch and cable. What cannot be built has ``problems`` and nothing else; what fails its proof has its problems here too."""

    switches: tuple[TopoSwitch, ...] = ()
    endpoints: tuple[EndpointLink, ...] = ()
    trunks: tuple[TrunkLink, ...] = ()
    problems: tuple[str, ...] = ()
    counts: dict[str, int] = field(default_factory=dict)
    """Of all planes together: ``leaf``, ``spine``, ``core``, ``endpoint_cables``, ``leaf_spine_cables``, ``spine_core_cables``; and ``tiers``, ``planes``,
    ``units``, ``nodes``, and ``devices`` that have places of nodes."""
    spof: tuple[str, ...] = ()
    losses: tuple[Loss, ...] = ()
    """Every kind of switch: what one of them takes with it. ``spof`` are the texts of those that cut something off."""
    proof: Proof | None = None
    notes: tuple[str, ...] = ()
    """What is right but wasteful, with the way to save it."""
