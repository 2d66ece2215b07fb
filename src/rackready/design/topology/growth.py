"""What growing a fabric does to cables that lie already."""

from __future__ import annotations

from dataclasses import dataclass

from rackready.design.topology.types import FabricPlan


@dataclass(frozen=True, slots=True)
class Growth:
    """Cables of a fabric and of the same fabric grown, held against each other."""

    kept: int
    added: int
    moved_endpoints: int
    """Cables of NICs that change an end: 0 as long as unit size, ratio and kind stay."""
    moved_trunks: int
    """Cables between switches that must be pulled, because the spread over the tier above changes."""
    text: str


def growth(before: FabricPlan, after: FabricPlan) -> Growth:
    """Return what happens to the cables of ``before`` when ``after`` is built; both without problems."""
    endpoints = {(link.node, link.nic, link.plane, link.switch, link.port) for link in after.endpoints}
    trunks = {(trunk.lower, trunk.lower_port, trunk.upper, trunk.upper_port) for trunk in after.trunks}
    moved_endpoints = sum((link.node, link.nic, link.plane, link.switch, link.port) not in endpoints for link in before.endpoints)
    moved_trunks = sum((trunk.lower, trunk.lower_port, trunk.upper, trunk.upper_port) not in trunks for trunk in before.trunks)
    kept = len(before.endpoints) + len(before.trunks) - moved_endpoints - moved_trunks
    added = len(endpoints) + len(trunks) - kept
    return Growth(kept, added, moved_endpoints, moved_trunks, _text(before, after, moved_endpoints, moved_trunks))


def _text(before: FabricPlan, after: FabricPlan, moved_endpoints: int, moved_trunks: int) -> str:
    units = f"from {before.counts['units']} to {after.counts['units']} units"
    if not moved_endpoints and not moved_trunks:
        return f"topology: {units}: no cable that lies is moved."
    changed = [f"{tier} {before.counts[tier]} to {after.counts[tier]}" for tier in ("spine", "core") if before.counts[tier] != after.counts[tier]]
    why = f" ({', '.join(changed)})" if changed else ""
    return (
        f"topology: {units}{why} - Expected: no cable moved Actual: {moved_trunks} of {len(before.trunks)} trunks and "
        f"{moved_endpoints} of {len(before.endpoints)} cables of nodes. "
        f"Set topology.grow_to_su: {after.counts['units']} before the first unit is cabled, or plan the move."
    )
