"""Max-flow over several named cuts: the cross-check of the structural proof."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from rackready.design.topology.graph import Adjacency, classes, contracted, max_flow
from rackready.design.topology.types import CutProof, TopoSwitch

Share = tuple[int, int]
"""Ratio (down, up)."""


def sides(leafs: Sequence[TopoSwitch]) -> dict[str, dict[str, bool]]:
    """Return the named cuts: leaf -> side. A cut with one side empty is left out."""
    units = sorted({leaf.su for leaf in leafs})
    half = set(units[: len(units) // 2])
    place: dict[str, int] = {}
    seen: dict[int, int] = defaultdict(int)
    for leaf in leafs:
        place[leaf.name] = seen[leaf.su]
        seen[leaf.su] += 1
    out = {
        "first half of the units against the second": {leaf.name: leaf.su in half for leaf in leafs},
        "odd units against even ones": {leaf.name: leaf.su % 2 == 0 for leaf in leafs},
        "odd leafs of every unit against even ones": {leaf.name: place[leaf.name] % 2 == 0 for leaf in leafs},
        "first unit against all others": {leaf.name: leaf.su == units[0] for leaf in leafs},
        "first half of every unit's leafs against the second": {
            leaf.name: place[leaf.name] < seen[leaf.su] // 2 for leaf in leafs
        },
    }
    return {name: cut for name, cut in out.items() if len(set(cut.values())) > 1}


def flows(
    plane: int,
    switches: Sequence[TopoSwitch],
    ends: Mapping[str, int],
    up: Adjacency,
    down: Adjacency,
    ratios: tuple[Share, Share],
) -> list[CutProof]:
    """Return the flow over every named cut of one plane, in links, and the required flow.

    The ratios require the smaller side's endpoints x up / down.
    """
    leafs = [switch for switch in switches if switch.tier == "leaf"]
    named = sides(leafs)
    colours: dict[str, object] = {switch.name: switch.tier for switch in switches}
    # Leafs of one class have the same number of endpoints and are on the same side of every cut.
    colours.update(
        {leaf.name: (leaf.tier, ends.get(leaf.name, 0), *(cut[leaf.name] for cut in named.values())) for leaf in leafs}
    )
    groups = classes(colours, up, down)
    capacities = contracted({name: up[name] for name in colours if name in up}, groups)
    (leaf_down, leaf_up), (spine_down, spine_up) = ratios
    out = []
    for name, cut in named.items():
        sending, receiving = (_totals(cut, ends, groups, side=side) for side in (False, True))
        expected = min(sum(sending.values()), sum(receiving.values())) * leaf_up * spine_up // (leaf_down * spine_down)
        out.append(CutProof(name, plane, expected, max_flow(sending, receiving, capacities)))
    return out


def _totals(
    cut: Mapping[str, bool], ends: Mapping[str, int], groups: Mapping[str, int], *, side: bool
) -> dict[int, int]:
    """Return class -> endpoints of one side."""
    totals: dict[int, int] = defaultdict(int)
    for leaf, own in cut.items():
        if own == side:
            totals[groups[leaf]] += ends.get(leaf, 0)
    return dict(totals)
