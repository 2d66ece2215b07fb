"""Power-on waves: racks that may be loaded together, for example in a burn-in, without overloading any element."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rackready.design.capacity.graph import PowerGraph
from rackready.design.capacity.limits import as_given, kilowatts, over
from rackready.design.capacity.parts import RackInput, least, where
from rackready.model.facility import PowerOn
from rackready.model.problems import Problem


@dataclass(frozen=True, slots=True)
class Wave:
    """Racks whose load comes on together, after that of all earlier waves."""

    number: int
    racks: tuple[str, ...]
    step_w: float
    """Highest step of load, W: transient draw if every device's is published, else the highest draw."""
    running_w: float
    """Load when it has settled, W."""
    step_partial: bool = False
    """Some draw of these racks is not published: the step is a lower bound."""
    running_partial: bool = False
    """Some draw of these or earlier racks is not published."""


@dataclass(frozen=True, slots=True)
class Staged:
    """The order of power-on."""

    waves: tuple[Wave, ...]
    problems: tuple[Problem, ...]
    assumed: tuple[str, ...]
    """Models whose transient draw is not published: the step uses their highest draw."""


@dataclass(slots=True)
class _Load:
    rack: RackInput
    shares: list[tuple[int, float]]
    """(power node, share of the rack's load that it carries with everything alive)."""
    step_w: float


def step_of(rack: RackInput) -> float:
    """Return the highest draw of a rack while its load comes on, W."""
    return sum(max(device.model.transient_w or 0.0, device.model.max_w or 0.0) for device in rack.devices)


def shares_of(graph: PowerGraph, rack: RackInput) -> list[tuple[int, float]]:
    """Return (power node, share of a rack's load) with everything alive and all feeds carrying equal parts."""
    part: dict[int, float] = {}
    for source in rack.sources:
        part[graph.index[source]] = part.get(graph.index[source], 0.0) + 1.0 / len(rack.sources)
    nobody: set[int] = set()
    for number in reversed(graph.upstream_of(rack.sources) if rack.sources else []):
        for parent, share in graph.shares(number, nobody):
            part[parent] = part.get(parent, 0.0) + share * part.get(number, 0.0)
    return [(number, share) for number, share in part.items() if share > 0]


class _Stage:
    """Fills wave after wave, in the order of the racks."""

    def __init__(self, graph: PowerGraph, limit: PowerOn) -> None:
        self.graph, self.limit = graph, limit
        self.running = [0.0] * len(graph.nodes)
        self.waves: list[Wave] = []
        self.problems: list[Problem] = []

    def fill(self, waiting: list[_Load]) -> list[_Load]:
        """Make one wave; return the racks that wait for the next."""
        rising = [0.0] * len(self.running)
        chosen: list[_Load] = []
        left: list[_Load] = []
        step = 0.0
        for load in waiting:
            full = self.limit.max_racks is not None and len(chosen) >= self.limit.max_racks
            if full or self._too_much(load, rising, step):
                left.append(load)
                continue
            chosen.append(load)
            step += load.step_w
            for node, share in load.shares:
                rising[node] += share * self._rise(node, load)
        if not chosen:
            return self._refuse(left)
        for load in chosen:
            for node, share in load.shares:
                self.running[node] += share * load.rack.max_w * self.graph.times[node]
        before = self.waves[-1].running_w if self.waves else 0.0
        running = before + sum(load.rack.max_w for load in chosen)
        partial = any(load.rack.unpublished for load in chosen)
        also = partial or (bool(self.waves) and self.waves[-1].running_partial)
        self.waves.append(
            Wave(len(self.waves) + 1, tuple(load.rack.name for load in chosen), step, running, partial, also)
        )
        return left

    def _rise(self, node: int, load: _Load) -> float:
        """Return the load that a rack adds to a node while it comes on, W.

        This is the step; at a source it includes cooling and losses of the highest draw.
        """
        return load.step_w + load.rack.max_w * (self.graph.times[node] - 1)

    def _too_much(self, load: _Load, rising: list[float], step: float) -> bool:
        if self.limit.max_step_kw is not None and over(step + load.step_w, self.limit.max_step_kw * 1000):
            return True
        return any(self._meets(pair, load, rising[pair[0]]) for pair in load.shares)

    def _refuse(self, waiting: list[_Load]) -> list[_Load]:
        """Report every waiting rack: none of them fits even alone, so no further wave can help."""
        limit = self.limit.max_step_kw
        alike: dict[tuple[str, str], list[str]] = {}
        for load in waiting:
            if limit is not None and over(load.step_w, limit * 1000):
                most, step = as_given(load.step_w / 1000, limit, "kW")
                some = least(partial=bool(load.rack.unpublished))
                text = (
                    f"load cannot come on within facility.power_on.max_step_kw - Expected: at most {most} "
                    f"Actual: {some}{step}."
                )
                fix = "Agree a higher limit with the facility, or start the rack's nodes a few at a time."
            else:
                text, fix = (
                    self._met(load),
                    "Reduce the load during burn-in by as much, or feed the rack from another source.",
                )
            alike.setdefault((text, fix), []).append(load.rack.name)
        self.problems += [Problem(where(names), text, fix) for (text, fix), names in alike.items()]
        return []

    def _met(self, load: _Load) -> str:
        number, share = next(pair for pair in load.shares if self._meets(pair, load))
        node, usable = self.graph.nodes[number], self.graph.usable[number] or 0.0
        most, have = kilowatts(self.running[number] + share * self._rise(number, load), usable)
        return (
            f"load cannot come on with all earlier waves running: {node.kind} {node.name} - Expected: at most {most} "
            f"Actual: {have}."
        )

    def _meets(self, pair: tuple[int, float], load: _Load, rising: float = 0.0) -> bool:
        node, share = pair
        usable = self.graph.usable[node]
        return usable is not None and over(self.running[node] + rising + share * self._rise(node, load), usable)


def staged(graph: PowerGraph, racks: Sequence[RackInput], limit: PowerOn) -> Staged:
    """Return waves of racks, in the order of the site, that never overload a power node while a wave comes on.

    Racks of earlier waves count with their highest draw, racks that come on with their transient draw. No step is
    above the limit of the facility. A breaker tolerates a step of milliseconds above its rating; UPS and generators
    may not. Only the facility knows which element is which, so all ratings are respected.
    """
    known: dict[tuple[str, ...], list[tuple[int, float]]] = {}
    waiting = []
    for rack in racks:
        if rack.sources not in known:
            known[rack.sources] = shares_of(graph, rack)
        waiting.append(_Load(rack, known[rack.sources], step_of(rack)))
    stage = _Stage(graph, limit)
    while waiting:
        waiting = stage.fill(waiting)
    unknown = {device.model.id for rack in racks for device in rack.devices if device.model.transient_w is None}
    return Staged(tuple(stage.waves), tuple(stage.problems), tuple(sorted(unknown)))
