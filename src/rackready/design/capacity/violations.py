"""Turns findings into problems with racks and the smallest fix; racks with the same problem share a line."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from rackready.design.capacity import circuits, findings
from rackready.design.capacity.findings import CapacityFinding
from rackready.design.capacity.limits import kilowatts, over
from rackready.design.capacity.losses import FeedGroup, Flow, grouped
from rackready.design.capacity.parts import RackInput, collapse, least, where
from rackready.design.capacity.remedies import Planner, bigger_feeds, movable, states_alone, whole_kw, without_moves
from rackready.design.capacity.supply import Supplies
from rackready.model.problems import Problem


def _first_of_topics(found: Sequence[CapacityFinding]) -> Iterator[CapacityFinding]:
    """Yield one finding per topic; losing more feeds at once adds no information.

    A finding with everything alive comes first, because then no loss is the cause; else for feeds the heaviest load,
    for supplies the fewest losses.
    """
    topics: dict[tuple[str, str], list[CapacityFinding]] = {}
    for item in found:
        topics.setdefault(item.about, []).append(item)
    for same in topics.values():
        first = min(
            same, key=lambda item: (_lost(item) > 0, _lost(item) if item.short is not None else 0, -item.seen_w)
        )
        yield _with_worst(first, max(same, key=lambda item: item.seen_w))


def _lost(finding: CapacityFinding) -> int:
    return sum(1 for alive in finding.live or () if not alive)


def _with_worst(finding: CapacityFinding, worst: CapacityFinding) -> CapacityFinding:
    """Return a finding of a feed with the effect of the worst loss, if the feed is overloaded without any loss."""
    if finding.feed is None or _lost(finding) or not over(worst.seen_w, finding.seen_w):
        return finding
    _, have = kilowatts(worst.seen_w, finding.seen_w)
    return replace(finding, message=f"{finding.message.removesuffix('.')}, and {have} on {worst.at}.")


def _fix_by_moves(
    planner: Planner, rack: RackInput, finding: CapacityFinding, found: Sequence[CapacityFinding]
) -> str | None:
    """Return the fix by moves; None if there is none."""
    if not movable(finding):
        return None
    moves = planner.moves(rack, finding.about)
    if not moves:
        return None
    fix = "Move " + ", ".join(str(move) for move in moves)
    return f"{fix}, or {bigger_feeds(rack, found)}." if finding.topic == "feed" else f"{fix}."


class _Shared:
    """Problems that many racks share."""

    def __init__(self) -> None:
        self.racks: dict[tuple[str, str], list[str]] = {}
        self.causes: dict[tuple[str, str], dict[str, None]] = {}
        self.about: dict[tuple[str, str], tuple[str, str]] = {}

    def add(self, finding: CapacityFinding, fix: str, racks: Sequence[str], causes: Sequence[str]) -> None:
        """Record a problem of some racks, together with the same problem of others."""
        key = (finding.message, fix)
        self.racks.setdefault(key, []).extend(racks)
        self.causes.setdefault(key, {}).update(dict.fromkeys(causes))
        self.about[key] = finding.about

    def problems(self) -> Iterator[Problem]:
        """Yield one problem for all racks that share it."""
        for (text, fix), names in self.racks.items():
            causes = list(self.causes[text, fix])
            also = f" The loss of {collapse(causes, 'power nodes')} has the same effect." if causes else ""
            yield Problem(where(names), text + also, fix, self.about[text, fix])


def _causes(group: FeedGroup | None, finding: CapacityFinding) -> list[str]:
    """Return the power nodes whose loss leaves a rack with just these feeds."""
    return [] if group is None or finding.live is None else group.states.get(finding.live, [])


def rack_problems(racks: Sequence[RackInput], flow: Flow | None, supplies: Supplies) -> list[Problem]:
    """Return problems of racks. Racks with the same problem and the same fix share a line."""
    planner = Planner(racks, flow, supplies)
    powered = {name: group for group in (flow.groups if flow is not None else []) for name in group.names}
    by_name = {rack.name: rack for rack in racks}
    shared = _Shared()
    for group in grouped(racks):
        known = powered.get(group.names[0])
        states = known.states if known else states_alone(group.rack) if flow is None else []
        found = findings.all_of(group.rack, states, supplies)
        for finding in _first_of_topics(found):
            causes = _causes(known, finding)
            for name in group.names:
                fix = _fix_by_moves(planner, by_name[name], finding, found) or without_moves(group.rack, finding, found)
                shared.add(finding, fix, [name], causes)
    return list(shared.problems())


def node_problems(flow: Flow) -> list[Problem]:
    """Return power nodes over their rating in some case, with the cause and a sufficient rating."""
    out = []
    given: dict[int, float] = {}
    for number, usable in enumerate(flow.graph.usable):
        if usable is not None and over(flow.worst_w[number], usable):
            node, what = flow.graph.nodes[number], _cause(flow, number, usable)
            racks = _fed_racks(flow, number)
            text = f"{node.kind} ({circuits.rating_text(node)}) is over its rating {what}, from {racks}."
            out.append(
                Problem(f"power node {node.name}", text, _node_fix(flow, number, (flow.worst_w[number], usable), given))
            )
    return out


def _cause(flow: Flow, number: int, usable: float) -> str:
    """Return when a node is over its rating, with both figures.

    If it is so with everything alive, that is the cause, whatever a loss adds.
    """
    alive, worst = flow.graph.seen_w(number, flow.base[number]), flow.worst_w[number]
    some = least(partial=number in flow.partial)
    when, seen, more = f"at the {flow.worst_case[number]}", worst, ""
    if over(alive, usable):
        when, seen = "with everything alive", alive
        more = f", and {kilowatts(worst, alive)[1]} at the {flow.worst_case[number]}" if over(worst, alive) else ""
    most, have = kilowatts(seen, usable)
    times = flow.graph.times[number]
    overhead = f" with cooling and losses (PUE {times:g})" if times != 1 else ""
    return f"{when} - Expected: at most {most} Actual: {some}{have}{more}{overhead}"


def _fed_racks(flow: Flow, number: int) -> str:
    return where(
        [name for group in flow.groups if number in flow.graph.upstream_of(group.rack.sources) for name in group.names]
    )


def _node_fix(flow: Flow, number: int, load: tuple[float, float], given: dict[int, float]) -> str:
    node, (seen, usable) = flow.graph.nodes[number], load
    size = circuits.standard_breaker(node, seen)
    some = least(partial=number in flow.partial)
    bigger = (
        f"a breaker of {some}{size} A"
        if node.breaker_a is not None and size is not None
        else f"a rating of {some}{whole_kw(seen)} kW"
    )
    spare = _spare(flow, number, seen - usable, given)
    doubt = ", based on the published draw of its racks" if spare in flow.partial else ""
    source = (
        f"{flow.graph.nodes[spare].name}, which has that much spare capacity{doubt}"
        if spare is not None
        else "elsewhere"
    )
    racks_kw = math.ceil((seen - usable) / flow.graph.times[number] / 100) / 10
    return f"Feed {some}{racks_kw:.1f} kW of racks from {source}, or use {bigger}."


def _spare(flow: Flow, number: int, need_w: float, given: dict[int, float]) -> int | None:
    """Return the element of the same kind with most spare capacity in every case, if it suffices; offers are used once.

    An element with only known draws comes before one with unpublished draws, regardless of its apparent capacity.
    """
    graph = flow.graph
    free = {
        other: usable - flow.worst_w[other] - given.get(other, 0.0)
        for other, usable in enumerate(graph.usable)
        if usable is not None and graph.nodes[other].kind == graph.nodes[number].kind
    }
    enough = [other for other in free if not over(need_w, free[other])]
    if not enough:
        return None
    best = max(enough, key=lambda other: (other not in flow.partial, free[other]))
    given[best] = given.get(best, 0.0) + need_w
    return best
