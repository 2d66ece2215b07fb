"""Every single loss: racks that lose feeds, the new loads, and elements over their rating."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from rackready.design.capacity import poles
from rackready.design.capacity.graph import Loads, PowerGraph
from rackready.design.capacity.limits import over
from rackready.design.capacity.parts import RackInput
from rackready.design.capacity.poles import Poles
from rackready.design.capacity.supply import Live, Supplies, overloaded


@dataclass(frozen=True, slots=True)
class Overload:
    """A power node over its rating in one case."""

    node: str
    seen_w: float
    usable_w: float


@dataclass(frozen=True, slots=True)
class LossCase:
    """Effects of one loss.

    For ``kind`` feed each rack of ``racks`` stands for itself: they are alike, and one at a time loses that feed.
    """

    kind: str
    """node or feed."""
    element: str
    """Name of the power node, or of the feed."""
    racks: tuple[str, ...]
    """Racks that lose a feed or more."""
    dark: tuple[str, ...]
    """Racks in which some device is left without any supply."""
    short: tuple[str, ...]
    """Racks in which some device keeps fewer supplies than it needs (dark ones included)."""
    overloads: tuple[Overload, ...]
    accepted: str | None = None
    """Why the site accepts that this loss takes nodes down."""
    over_feeds: tuple[str, ...] = ()
    """Racks in which a feed that is left is over its rating."""
    partial: bool = False
    """Load with unpublished draw moves: of racks that lose feeds, or on an affected rated power node."""

    @property
    def fails(self) -> bool:
        """Return whether something goes down or is over its rating by known figures alone."""
        return bool(self.short or self.overloads or self.over_feeds)

    @property
    def judged(self) -> bool:
        """Return whether the known figures suffice to judge this loss."""
        return self.fails or not self.partial

    @property
    def survived(self) -> bool:
        """Return whether everything stays up after this loss. A loss that is not judged does not count as survived."""
        return self.judged and not self.fails

    @property
    def taken(self) -> bool:
        """Return whether devices go down and the site accepts it.

        A power node over its rating is never accepted: it takes others with it.
        """
        return self.fails and self.accepted is not None and not self.overloads


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts of losses by result. ``looked_at`` is the sum of the others."""

    looked_at: int
    survived: int
    accepted: int
    not_survived: int
    not_judged: int


def tally(cases: Sequence[LossCase]) -> Tally:
    """Return the counts of losses by result: the same counts for text, JSON and page."""
    survived, accepted = sum(case.survived for case in cases), sum(case.taken for case in cases)
    not_judged = sum(not case.judged for case in cases)
    return Tally(len(cases), survived, accepted, len(cases) - survived - accepted - not_judged, not_judged)


@dataclass(slots=True)
class FeedGroup:
    """Racks that are alike and hang on the same power nodes: computed once."""

    rack: RackInput
    names: list[str]
    states: dict[Live, list[str]] = field(default_factory=dict)
    """Every state of feeds that a single loss causes, with the power nodes lost (accepted losses left out)."""


@dataclass(slots=True)
class Flow:
    """Result: loads with everything alive, every loss, and the highest load of each node in any case."""

    graph: PowerGraph
    groups: list[FeedGroup]
    base: list[Poles]
    cases: list[LossCase]
    worst_w: list[float]
    worst_case: list[str]
    """Per node, the loss in which its load is highest; empty if it is highest with everything alive."""
    partial: frozenset[int] = frozenset()
    """Nodes whose loads are lower bounds: some draw that may reach them is not published."""


def grouped(racks: Sequence[RackInput]) -> list[FeedGroup]:
    """Return racks grouped by what makes them alike for power."""
    groups: dict[tuple[object, ...], FeedGroup] = {}
    for rack in racks:
        key = (rack.shape, rack.sources)
        if key in groups:
            groups[key].names.append(rack.name)
        else:
            groups[key] = FeedGroup(rack, [rack.name])
    return list(groups.values())


def _all_live(group: FeedGroup) -> Live:
    return (True,) * len(group.rack.feeds)


class _Run:
    """One calculation, with the data that its steps share."""

    def __init__(self, graph: PowerGraph, racks: Sequence[RackInput], supplies: Supplies) -> None:
        self.graph, self.supplies = graph, supplies
        self.groups = [group for group in grouped(racks) if group.rack.feeds]
        self.at_node: dict[int, set[int]] = {}
        asked: Loads = {}
        for number, group in enumerate(self.groups):
            for source in group.rack.sources:
                self.at_node.setdefault(graph.index[source], set()).add(number)
            self._ask(asked, group, _all_live(group), float(len(group.names)))
        self.partial = {
            node for group in self.groups if group.rack.unpublished for node in graph.upstream_of(group.rack.sources)
        }
        """Power nodes that carry, or may have to carry, a rack with an unpublished draw."""
        self.base = graph.flow(asked)
        self.worst = [graph.seen_w(node, load) for node, load in enumerate(self.base)]
        self.worst_case = [""] * len(self.base)

    def _ask(self, asked: Loads, group: FeedGroup, live: Live, times: float) -> None:
        for source, load in zip(group.rack.sources, self.supplies.of(group.rack, live).upstream, strict=True):
            node = self.graph.index[source]
            asked[node] = poles.add(asked.get(node, poles.NONE), poles.scaled(load, times))

    def _partial(self, new: Loads) -> bool:
        return any(node in self.partial and self.graph.usable[node] is not None for node in new)

    def _over(self, new: Loads, what: str) -> tuple[Overload, ...]:
        out = []
        for node in sorted(new):
            seen, usable = self.graph.seen_w(node, new[node]), self.graph.usable[node]
            # More than the slack, so that a loss that adds nothing is not named as the cause.
            if over(seen, self.worst[node]):
                self.worst[node], self.worst_case[node] = seen, what
            if usable is not None and over(seen, usable):
                out.append(Overload(self.graph.nodes[node].name, seen, usable))
        return tuple(out)

    def node_loss(self, node: int) -> LossCase:
        """Return the effects of the loss of one power node."""
        element, dead = self.graph.nodes[node], self.graph.lost_with(node)
        asked: Loads = {}
        racks: list[str] = []
        hurt = _Hurt()
        partial = False
        for number in sorted({number for lost in dead for number in self.at_node.get(lost, ())}):
            group = self.groups[number]
            live = tuple(self.graph.index[source] not in dead for source in group.rack.sources)
            self._ask(asked, group, _all_live(group), -float(len(group.names)))
            self._ask(asked, group, live, float(len(group.names)))
            racks += group.names
            partial = partial or bool(group.rack.unpublished)
            _note_state(self, group, live, element.name if element.loss_accepted is None else None, hurt)
        new = self.graph.change(self.base, asked, dead)
        overloads = self._over(new, f"loss of {element.name}")
        partial = partial or self._partial(new)
        found = (tuple(hurt.dark), tuple(hurt.short), overloads, element.loss_accepted, tuple(hurt.over))
        return LossCase("node", element.name, tuple(racks), *found, partial)

    def feed_losses(self, group: FeedGroup) -> Iterator[LossCase]:
        """Yield the effects of the loss of each feed in any one rack of a group."""
        for lost, feed in enumerate(group.rack.feeds):
            live = tuple(number != lost for number in range(len(group.rack.feeds)))
            asked: Loads = {}
            self._ask(asked, group, _all_live(group), -1.0)
            self._ask(asked, group, live, 1.0)
            hurt = _Hurt()
            group.states.setdefault(live, [])
            _note_state(self, group, live, None, hurt)
            what = f"loss of feed {feed.name} of rack {group.names[0]}"
            new = self.graph.change(self.base, asked, set())
            partial = bool(group.rack.unpublished) or self._partial(new)
            found = (tuple(hurt.dark), tuple(hurt.short), self._over(new, what), None, tuple(hurt.over))
            yield LossCase("feed", feed.name, tuple(group.names), *found, partial)


@dataclass(slots=True)
class _Hurt:
    """Racks that a loss affects."""

    dark: list[str] = field(default_factory=list)
    short: list[str] = field(default_factory=list)
    over: list[str] = field(default_factory=list)


def _note_state(run: _Run, group: FeedGroup, live: Live, cause: str | None, hurt: _Hurt) -> None:
    if cause is not None:
        group.states.setdefault(live, []).append(cause)
    state = run.supplies.of(group.rack, live)
    if any(shortage.live == 0 for shortage in state.short):
        hurt.dark.extend(group.names)
    if state.short:
        hurt.short.extend(group.names)
    if overloaded(group.rack, state):
        hurt.over.extend(group.names)


def losses(graph: PowerGraph, racks: Sequence[RackInput], supplies: Supplies) -> Flow:
    """Return the flow with everything alive and with each power node and each feed lost alone.

    Every feed's source must be a node of the graph. Only what a loss touches is computed, and racks that are alike are
    computed once, so thousands of racks under hundreds of power nodes take a fraction of a second.
    """
    run = _Run(graph, racks, supplies)
    for group in run.groups:
        group.states.setdefault(_all_live(group), [])
    cases = [run.node_loss(node) for node in range(len(graph.nodes))]
    cases += [case for group in run.groups for case in run.feed_losses(group)]
    return Flow(graph, run.groups, run.base, cases, run.worst, run.worst_case, frozenset(run.partial))
