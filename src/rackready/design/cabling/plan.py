"""Gives every run its length and its parts.

Cables that share a module need the same optics: a twin-port module is either SR4 or DR4, so a 60 m cable in one half
makes the 40 m cable in the other half DR4 as well, and with it the module at that cable's far end. Runs are therefore
decided in groups that shared cages tie together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from rackready.design.cabling.catalogue import Catalogue, Optics, WantedCable
from rackready.design.cabling.length import LengthError, Ruler
from rackready.design.cabling.sockets import CONNECTOR_LANES
from rackready.design.cabling.types import (
    Cable,
    CabledLink,
    CablePlan,
    CableRun,
    Cage,
    Choice,
    FloorPlan,
    Plug,
    label_of,
)
from rackready.design.collector import without_gc
from rackready.model.parts import Assembly
from rackready.model.problems import Problem

LARGEST_ASSEMBLY = 4
"""No assembly has more far ends, so larger groups need not be tried."""


def plan_cables(
    runs: Iterable[CableRun], floor: FloorPlan, catalogue: Catalogue, notes: Sequence[str] = ()
) -> CablePlan:
    """Return every cable, in the order of the runs.

    A run that cannot be served has the reason in its row, and no parts. The plan's problems list each cause once, with
    the number of cables affected.
    """
    with without_gc():
        planner = _Planner(list(runs), Ruler(floor), catalogue)
        cables = tuple(planner.cables())
    return CablePlan(cables, planner.problems(), tuple(notes))


def connectors(run: CableRun) -> int:
    """Return how many optical connectors one end of a run takes."""
    return 1 if run.lanes <= CONNECTOR_LANES else run.lanes // CONNECTOR_LANES


class _Ties:
    """Groups of cages tied together by runs (a union-find over numbers), and the connectors in use."""

    def __init__(self) -> None:
        self._number: dict[Cage, int] = {}
        self._parent: list[int] = []
        self._used: list[int] = []

    def add(self, run: CableRun, mask: int) -> str:
        """Take the connectors of both ends; return the problem, or empty text.

        ``mask`` has a bit for each connector, shifted to the run's own.
        """
        a, _, a_sub, b, _, b_sub, _ = run
        number, parent, used = self._number, self._parent, self._used
        first, second = number.get(a), number.get(b)
        if first is None:
            first = number[a] = len(parent)
            parent.append(first)
            used.append(0)
        if second is None:
            if a is b:
                return "Expected: two cages Actual: both ends in one. Correct the link."
            second = number[b] = len(parent)
            parent.append(second)
            used.append(0)
        bits_a, bits_b = mask << a_sub, mask << b_sub
        if used[first] & bits_a or used[second] & bits_b or first == second:
            return _clash(run, taken=bool(used[first] & bits_a))
        used[first] |= bits_a
        used[second] |= bits_b
        while parent[first] != first:
            parent[first] = first = parent[parent[first]]
        while parent[second] != second:
            parent[second] = second = parent[parent[second]]
        if first < second:
            parent[second] = first
        elif second < first:
            parent[first] = second
        return ""

    def root(self, cage: Cage) -> int:
        """Return the number that all cages of one group have in common."""
        number, parent = self._number[cage], self._parent
        while parent[number] != number:
            parent[number] = number = parent[parent[number]]
        return number


def _clash(run: CableRun, *, taken: bool) -> str:
    """Return why a run cannot have the connectors that it needs."""
    if run.a is run.b:
        return "Expected: two cages Actual: both ends in one. Correct the link."
    return _taken(run.a, run.a_port) if taken else _taken(run.b, run.b_port)


def _taken(cage: Cage, port: str) -> str:
    return f"Expected: a free port Actual: {cage.device.name} {port} already has a cable. Give each port one link."


_NOTHING = WantedCable("", 0, "", 0, 0, 1, "")
"""Placeholder for the requirements of a run that was refused early."""


class _Planner:
    """One pass over the runs for lengths and groups, then one over the groups for parts.

    Repeated work is done once: a site has few kinds of links.
    """

    def __init__(self, runs: list[CableRun], ruler: Ruler, catalogue: Catalogue) -> None:
        self._runs = runs
        self._catalogue = catalogue
        self._lengths = [0.0] * len(runs)
        self._choices: list[Choice | None] = [None] * len(runs)
        self._refused: dict[int, Problem] = {}
        self._wants: list[WantedCable] = [_NOTHING] * len(runs)
        self._known: dict[tuple[Plug, Plug, CabledLink], WantedCable] = {}
        self._alike: dict[tuple[Any, ...], WantedCable] = {}
        self._longest_assembly: dict[WantedCable, float] = {}
        self._kinds: dict[tuple[tuple[WantedCable, float], ...], str] = {}
        self._shared: dict[tuple[WantedCable, str, float], Choice | None] = {}
        self._groups(self._measure(ruler))

    # --- lengths and groups

    def _measure(self, ruler: Ruler) -> _Ties:
        ties = _Ties()
        lengths, wants, known, length_of = self._lengths, self._wants, self._known, ruler.length
        for index, run in enumerate(self._runs):
            a, b, link = run[0], run[3], run[6]
            try:
                lengths[index] = length_of(a.device, b.device)
            except LengthError as error:
                self._refuse(index, str(error), str(error))
                continue
            wants[index] = known.get((a.plug, b.plug, link)) or self._wanted(run)
            wrong = ties.add(run, 1 if link.lanes <= CONNECTOR_LANES else (1 << connectors(run)) - 1)
            if wrong:
                self._refuse(index, wrong)
        return ties

    def _wanted(self, run: CableRun) -> WantedCable:
        a, b = run.a, run.b
        found = self._wanted_by(a.form, a.connectors, b.form, b.connectors, run.rate, run.lanes, run.layer)
        self._known[a.plug, b.plug, run.link] = found
        return found

    def _wanted_by(self, *key: Any) -> WantedCable:
        """Return the one object for the requirements of one sort of links, whatever network they belong to."""
        found = self._alike.get(key)
        if found is None:
            found = self._alike[key] = WantedCable(*key)
            fits = [
                max(shelf.lengths)
                for assembly, shelf in self._catalogue.assemblies
                if shelf.lengths and _suits(assembly, found)
            ]
            self._longest_assembly[found] = max(fits, default=0.0)
        return found

    def _groups(self, ties: _Ties) -> None:
        groups: dict[int, list[int]] = {}
        root, choices = ties.root, self._choices
        for index, run in enumerate(self._runs):
            if choices[index] is None:
                number = root(run[0])
                group = groups.get(number)
                if group is None:
                    groups[number] = [index]
                else:
                    group.append(index)
        for group in groups.values():
            self._decide(group)

    # --- parts

    def _decide(self, group: list[int]) -> None:
        longest: dict[WantedCable, float] = {}
        short = len(group) <= LARGEST_ASSEMBLY
        wants, lengths = self._wants, self._lengths
        for index in group:
            want, length = wants[index], lengths[index]
            if length > longest.get(want, 0.0):
                longest[want] = length
                short = short and length <= self._longest_assembly[want]
        if short and self._assemble(group):
            return
        key = tuple(longest.items())
        kind = self._kinds.get(key)
        if kind is None:
            kind = self._kinds[key] = _common([self._able(want, length) for want, length in longest.items()])
        for index in group:
            choice = self._fibre(index, kind)
            if choice is None:
                self._settle(group)
                return
            self._choices[index] = choice

    def _settle(self, group: list[int]) -> None:
        """Decide a group without optics for all: refuse runs that cannot be served alone, and decide the rest."""
        able = {index: self._able(self._wants[index], self._lengths[index]) for index in group}
        kind = _common([optics for optics in able.values() if optics])
        for index, optics in able.items():
            if not optics:
                self._refuse(index, self._unserved(index, self._wants[index]), self._wants[index].text)
            elif kind:
                self._choices[index] = self._fibre(index, kind)
            else:
                self._refuse(index, self._at_odds(index, optics))

    def _able(self, wanted: WantedCable, length: float) -> list[Optics]:
        """Return the optics that serve one link by itself, shortest reach first."""
        return [pair for pair in self._catalogue.optics(wanted) if self._catalogue.fibre(pair, length)]

    def _fibre(self, index: int, kind: str) -> Choice | None:
        key = (self._wants[index], kind, self._lengths[index])
        found = self._shared.get(key)
        if found is None and key not in self._shared:
            found = self._shared[key] = self._parts(*key)
        return found

    def _parts(self, want: WantedCable, kind: str, length: float) -> Choice | None:
        pair = next((pair for pair in self._catalogue.optics(want) if pair.kind == kind), None)
        found = self._catalogue.fibre(pair, length) if pair else None
        return Choice(pair.a.fibre, *found, pair.a.part, pair.b.part) if pair and found else None

    def _assemble(self, group: list[int]) -> bool:
        length = max(self._lengths[index] for index in group)
        for assembly, shelf in self._catalogue.assemblies:
            stocked = shelf.at_least(length)
            if stocked is not None and _fits(assembly, [self._runs[index] for index in group]):
                part = assembly.lengths[stocked]
                choice = Choice(assembly.medium, part, stocked, part, part, group[0])
                for index in group:
                    self._choices[index] = choice
                return True
        return False

    # --- refusals

    def _refuse(self, index: int, reason: str, cause: str = "") -> None:
        """Record the problem of a run. Runs with the same ``cause`` appear once in the plan's problems."""
        problem = Problem(_where(self._runs[index]), reason)
        self._choices[index] = Choice(problem=str(problem), cause=cause)
        self._refused[index] = problem

    def problems(self) -> tuple[Problem, ...]:
        """Return every cause once, by its first cable, in the order of the runs."""
        first: dict[str, Problem] = {}
        count: Counter[str] = Counter()
        for index, choice in enumerate(self._choices):
            if choice is not None and choice.problem:
                cause = choice.cause or choice.problem
                first.setdefault(cause, self._refused[index])
                count[cause] += 1
        return tuple(_with_more(problem, count[cause] - 1) for cause, problem in first.items())

    def _at_odds(self, index: int, optics: Sequence[Optics]) -> str:
        kinds = ", ".join(pair.kind for pair in optics)
        return (
            f"{self._lengths[index]:g} m - Expected: one kind of optics for all cables of a shared module "
            f"Actual: this one can have {kinds}, "
            "a cable that shares its module cannot. Use different cages, or move the racks of the longer one closer."
        )

    def _unserved(self, index: int, wanted: WantedCable) -> str:
        length = self._lengths[index]
        offers = self._catalogue.optics(wanted)
        longest = [
            (max(shelf.lengths), assembly.series)
            for assembly, shelf in self._catalogue.assemblies
            if shelf.lengths and _suits(assembly, wanted)
        ]
        longest += [(self._longest(pair), f"{pair.a.part} to {pair.b.part}") for pair in offers]
        if not longest:
            return (
                f"Expected: a part for {wanted.text} Actual: none in profiles/parts. "
                "Change the cage or rate of one end, or add the part."
            )
        most, part = max(longest)
        return (
            f"Expected: a part of at least {length:g} m for {wanted.text} Actual: {most:g} m ({part}). "
            "Move the racks closer, stock a longer length, or add a part to profiles/parts."
        )

    def _longest(self, pair: Optics) -> float:
        plug = (pair.a.fibre, pair.a.connector, pair.a.polish)
        lengths = [
            length
            for fibre, shelf in self._catalogue.fibres
            for length in shelf.lengths
            if (fibre.fibre, fibre.connector, fibre.polish) == plug and length <= pair.reach
        ]
        return max(lengths, default=0.0)

    # --- result

    def cables(self) -> Iterable[Cable]:
        """Yield the rows: one for each run, or one for each of its fibres if a link takes several."""
        for run, length, choice in zip(self._runs, self._lengths, self._choices, strict=True):
            if choice is None:
                raise AssertionError(label_of(run))
            if choice.group >= 0:
                yield Cable(run, 0, length, choice, self._runs[choice.group])
            elif choice.problem or run[6].lanes <= CONNECTOR_LANES:
                yield Cable(run, 0, length, choice, run)
            else:
                yield from (Cable(run, fibre, length, choice, run, f"#{fibre + 1}") for fibre in range(connectors(run)))


def _common(able: Sequence[Sequence[Optics]]) -> str:
    """Return the kind of optics with the shortest reach that serves all of a group; empty if there is none."""
    reach: dict[str, float] = {}
    for optics in able:
        for pair in optics:
            reach[pair.kind] = max(reach.get(pair.kind, 0.0), pair.reach)
    common = set.intersection(*({pair.kind for pair in optics} for optics in able)) if able else set()
    return min(common, key=lambda kind: (reach[kind], kind), default="")


def _with_more(problem: Problem, more: int) -> Problem:
    """Return a problem that counts the other cables with the same cause."""
    if not more:
        return problem
    return replace(problem, message=f"{problem.message} {more} more cables have the same problem.")


def _where(run: CableRun) -> str:
    a, b = run.a.device, run.b.device
    return f"{a.rack} U{a.unit} {a.name} {run.a_port} to {b.rack} U{b.unit} {b.name} {run.b_port}"


def _suits(assembly: Assembly, wanted: WantedCable) -> bool:
    """Return whether an assembly has the plugs and lanes of one link, regardless of other links in its cages."""
    forms = {(wanted.a_form, wanted.b_form), (wanted.b_form, wanted.a_form)}
    return (assembly.a_form, assembly.b_form) in forms and _carries(assembly, wanted.rate, wanted.lanes, wanted.layer)


def _carries(assembly: Assembly, rate: int, lanes: int, layer: str) -> bool:
    """Return whether far ends carry links of that rate and lanes: as whole ends, or as halves of a twin-port plug."""
    each = assembly.lanes // assembly.ways
    return (
        rate == assembly.lane_rate * lanes
        and lanes <= each
        and lanes in {each, CONNECTOR_LANES}
        and layer in assembly.layers
    )


def _fits(assembly: Assembly, group: list[CableRun]) -> bool:
    """Return whether one assembly carries these runs.

    They start in one cage and end in as many as it has far ends, with its plugs, lanes and rate.
    """
    if not all(_carries(assembly, run.rate, run.lanes, run.layer) for run in group):
        return False
    return _hangs(assembly, [(run.a, run.b, run.lanes) for run in group]) or _hangs(
        assembly, [(run.b, run.a, run.lanes) for run in group]
    )


def _hangs(assembly: Assembly, ends: list[tuple[Cage, Cage, int]]) -> bool:
    trunk = {near for near, _, _ in ends}
    far: dict[Cage, int] = {}
    for _, cage, lanes in ends:
        far[cage] = far.get(cage, 0) + lanes
    if len(trunk) != 1 or len(far) != assembly.ways or next(iter(trunk)).form != assembly.a_form:
        return False
    return all(cage.form == assembly.b_form and lanes <= assembly.lanes // assembly.ways for cage, lanes in far.items())
