"""Every violation as a problem that names racks and the smallest fix; racks with the same one share a line."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from rackready.design.capacity import circuits, findings
from rackready.design.capacity.findings import Finding
from rackready.design.capacity.losses import Flow, Group, grouped
from rackready.design.capacity.parts import RackInput, collapse, least, where
from rackready.design.capacity.remedies import Planner, bigger_feeds, movable, without_moves
from rackready.design.capacity.supply import Supplies
from rackready.model.problems import Problem


def _first_of_topics(found: Sequence[Finding]) -> Iterator[Finding]:
    """Yield one finding a topic: of feeds the heaviest load, of supplies the fewest that live; losing more feeds at once says nothing new."""
    topics: dict[str, Finding] = {}
    for item in found:
        known = topics.get(item.topic)
        if known is None or item.seen_w > known.seen_w or _fewer(item, known):
            topics[item.topic] = item
    yield from topics.values()


def _fewer(one: Finding, other: Finding) -> bool:
    return one.short is not None and other.short is not None and _lost(one) < _lost(other)


def _lost(finding: Finding) -> int:
    return sum(1 for alive in finding.live or () if not alive)


def _mended(planner: Planner, rack: RackInput, finding: Finding, found: Sequence[Finding]) -> str | None:
    """Return the fix by moves; None when there is none."""
    if not movable(finding):
        return None
    moves = planner.moves(rack, finding.topic)
    if not moves:
        return None
    fix = "Move " + ", ".join(str(move) for move in moves)
    return f"{fix}, or {bigger_feeds(rack, found)}." if finding.topic == "feed" else f"{fix}."


class _Shared:
    """Problems that many racks share."""

    def __init__(self) -> None:
        self.racks: dict[tuple[str, str], list[str]] = {}
        self.causes: dict[tuple[str, str], dict[str, None]] = {}

    def add(self, text: str, fix: str, racks: Sequence[str], causes: Sequence[str]) -> None:
        """Note a problem of some racks; the same one of others is noted with it."""
        self.racks.setdefault((text, fix), []).extend(racks)
        self.causes.setdefault((text, fix), {}).update(dict.fromkeys(causes))

    def problems(self) -> Iterator[Problem]:
        """Yield one problem for all racks that share it."""
        for (text, fix), names in self.racks.items():
            causes = list(self.causes[text, fix])
            also = f" The loss of {collapse(causes, 'power nodes')} does the same." if causes else ""
            yield Problem(where(names), text + also, fix)


def _causes(group: Group | None, finding: Finding) -> list[str]:
    """Return the power nodes whose loss leaves a rack with just these feeds."""
    if group is None or finding.live is None:
        return []
    return [cause for cause in group.states.get(finding.live, []) if not cause.startswith("feed ")]


def rack_problems(racks: Sequence[RackInput], flow: Flow | None, supplies: Supplies) -> list[Problem]:
    """Return what is wrong in racks. Racks with the same problem and the same fix share a line."""
    planner = Planner(racks, flow, supplies)
    powered = {name: group for group in (flow.groups if flow is not None else []) for name in group.names}
    by_name = {rack.name: rack for rack in racks}
    shared = _Shared()
    for group in grouped(racks):
        known = powered.get(group.names[0])
        found = findings.all_of(group.rack, known.states if known else [], supplies)
        for finding in _first_of_topics(found):
            causes = _causes(known, finding)
            for name in group.names:
                fix = _mended(planner, by_name[name], finding, found) or without_moves(group.rack, finding, found)
                shared.add(finding.message, fix, [name], causes)
    return list(shared.problems())


def node_problems(flow: Flow) -> list[Problem]:
    """Return power nodes that are over their rating in some case, with the worst case and the rating that would do."""
    out = []
    given: dict[int, float] = {}
    for number, usable in enumerate(flow.graph.usable):
        seen = flow.worst_w[number]
        if usable is None or seen <= usable + 0.5:
            continue
        node = flow.graph.nodes[number]
        when = f" at the {flow.worst_case[number]}" if flow.worst_case[number] else ""
        text = (
            f"{node.kind} ({circuits.rating_text(node)}) is over its rating{when}"
            f" - Expected: at most {usable / 1000:.1f} kW Actual: {least(partial=number in flow.partial)}{seen / 1000:.1f} kW, by {_fed(flow, number)}."
        )
        out.append(Problem(f"power node {node.name}", text, _node_fix(flow, number, (seen, usable), given)))
    return out


def _fed(flow: Flow, number: int) -> str:
    return where([name for group in flow.groups if number in flow.graph.upstream_of(group.rack.sources) for name in group.names])


def _node_fix(flow: Flow, number: int, load: tuple[float, float], given: dict[int, float]) -> str:
    node, (seen, usable) = flow.graph.nodes[number], load
    size = circuits.standard_breaker(node, seen)
    some = least(partial=number in flow.partial)
    bigger = f"a breaker of {some}{size} A" if node.breaker_a is not None and size is not None else f"a rating of {some}{math.ceil(seen / 1000)} kW"
    spare = _spare(flow, number, seen - usable, given)
    doubt = ", as far as its racks' draw is published" if spare in flow.partial else ""
    source = f"{flow.graph.nodes[spare].name}, which has that to spare{doubt}" if spare is not None else "elsewhere"
    return f"Feed {some}{(seen - usable) / 1000:.1f} kW of racks from {source}, or give it {bigger}."


def _spare(flow: Flow, number: int, need_w: float, given: dict[int, float]) -> int | None:
    """Return the element of the same kind with most to spare in every case, if that is enough; what was offered before is gone.

    One of which every draw is known comes before one of which some is not published, however much that seems to have.
    """
    graph = flow.graph
    free = {
        other: usable - flow.worst_w[other] - given.get(other, 0.0)
        for other, usable in enumerate(graph.usable)
        if usable is not None and graph.nodes[other].kind == graph.nodes[number].kind
    }
    enough = [other for other in free if free[other] >= need_w]
    if not enough:
        return None
    best = max(enough, key=lambda other: (other not in flow.partial, free[other]))
    given[best] = given.get(best, 0.0) + need_w
    return best
