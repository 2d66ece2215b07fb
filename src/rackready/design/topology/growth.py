"""Effects of growth on the existing cables of a fabric."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from rackready.design.topology.sizing import Shape
from rackready.design.topology.types import FabricPlan, TrunkLink
from rackready.model.problems import Problem


@dataclass(frozen=True, slots=True)
class Growth:
    """Cables of a fabric compared with those of the same fabric after growth."""

    kept: int
    added: int
    moved_endpoints: int
    """Cables of NICs that change an end: 0 as long as unit size, ratio and kind stay."""
    moved_trunks: int
    """Cables between switches that must move, because their spread over the tier above changes."""
    text: str


def growth(before: FabricPlan, after: FabricPlan) -> Growth:
    """Return what happens to the cables of ``before`` when ``after`` is built; both without problems."""
    endpoints = {(link.node, link.nic, link.plane, link.switch, link.port) for link in after.endpoints}
    trunks = {(trunk.lower, trunk.lower_port, trunk.upper, trunk.upper_port) for trunk in after.trunks}
    moved_endpoints = sum(
        (link.node, link.nic, link.plane, link.switch, link.port) not in endpoints for link in before.endpoints
    )
    moved_trunks = sum(
        (trunk.lower, trunk.lower_port, trunk.upper, trunk.upper_port) not in trunks for trunk in before.trunks
    )
    kept = len(before.endpoints) + len(before.trunks) - moved_endpoints - moved_trunks
    added = len(endpoints) + len(trunks) - kept
    return Growth(kept, added, moved_endpoints, moved_trunks, _text(before, after, moved_endpoints, moved_trunks))


def _text(before: FabricPlan, after: FabricPlan, moved_endpoints: int, moved_trunks: int) -> str:
    units = f"from {before.counts['units']} to {after.counts['units']} units"
    if not moved_endpoints and not moved_trunks:
        return f"topology: {units}: no existing cable moves."
    changed = [
        f"{tier} {before.counts[tier]} to {after.counts[tier]}"
        for tier in ("spine", "core")
        if before.counts[tier] != after.counts[tier]
    ]
    why = f" ({', '.join(changed)})" if changed else ""
    return (
        f"topology: {units}{why} - Expected: no cable moved Actual: {moved_trunks} of {len(before.trunks)} trunks and "
        f"{moved_endpoints} of {len(before.endpoints)} cables of nodes. "
        f"Set topology.grow_to_su: {after.counts['units']} before the first unit is cabled, or plan the move."
    )


def keeps(before: Shape, after: Shape) -> bool:
    """Return whether growth from one shape to another keeps every cable between switches: same tiers, same spread."""
    pods = -(-before.units // before.units_per_pod)
    alike = (before.tiers, before.leaf, before.spine_down, before.spine_up, before.groups, before.group_cores)
    same = alike == (after.tiers, after.leaf, after.spine_down, after.spine_up, after.groups, after.group_cores)
    within = before.units_per_pod == after.units_per_pod or before.tiers == 2  # noqa: PLR2004 - two tiers are one pod, whatever its units
    return same and within and before.pod_spines[:pods] == after.pod_spines[:pods]


def furthest(laid: Shape, shape_of: Callable[[int], Shape | None]) -> int:
    """Return the most units up to which growth one by one moves no existing cable.

    ``shape_of``: units -> shape, None if no shape carries them.
    """
    units = laid.units
    while (larger := shape_of(units + 1)) is not None and keeps(laid, larger):
        units += 1
    return units


def laid_problem(
    before: Shape, after: Shape, most: int, trunks: tuple[Iterable[TrunkLink], Iterable[TrunkLink]]
) -> Problem | None:
    """Return why growth is refused; None if it moves no cable. ``trunks``: the existing ones, and the planned ones."""
    lie, wanted = set(trunks[0]), set(trunks[1])
    moved = len(lie - wanted)
    if not moved:
        return None
    counts = [("spine", before.spines, after.spines), ("core", before.cores, after.cores)]
    changed = ", ".join(f"{tier} {old} to {new}" for tier, old, new in counts if old != new)
    why = f" ({changed} in every plane)" if changed else ""
    return Problem.of(
        "topology.laid_for_su",
        f"from {before.units} to {after.units} units{why}",
        expected="no cable moved",
        actual=f"{moved} of {len(lie)} trunks",
        next_step=f"Options: at most {most} units; a separate fabric for the others; laid_for_su: "
        f"{after.units}, once you decide to move these cables.",
    )
