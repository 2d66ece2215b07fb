"""Gives every run its length and its parts.

Cables that share a module share its fate: a twin-port module is either SR4 or DR4, so a 60 m cable in one half makes the 40 m cable in the other half
DR4 as well, and with it the module at that cable's far end. Runs are therefore decided in groups of those that are tied together by shared cages.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rackready.design.cabling.catalogue import Catalogue, Optics, Wanted
from rackready.design.cabling.length import LengthError, Ruler
from rackready.design.cabling.types import Cable, CablePlan, Cage, FloorPlan, Run
from rackready.model.parts import Assembly

CONNECTOR_LANES = 4
"""Lanes of one optical connector each way: SR4, DR4 and FR4 all have four."""
LARGEST_ASSEMBLY = 4
"""No assembly has more far ends: larger groups need not be tried."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The parts of one cable; ``group`` is the run whose label names the piece when several rows are one assembly, -1 otherwise."""

    medium: str = ""
    cable_part: str = ""
    stock_m: float = 0.0
    a_part: str = ""
    b_part: str = ""
    group: int = -1
    problem: str = ""


def plan_cables(runs: Iterable[Run], floor: FloorPlan, catalogue: Catalogue, notes: Sequence[str] = ()) -> CablePlan:
    """Return every cable, in the order of the runs. What cannot be served has its problem in the cable and in the plan, and no parts."""
    planner = _Planner(list(runs), Ruler(floor), catalogue)
    cables = tuple(planner.cables())
    return CablePlan(cables, tuple(cable.problem for cable in cables if cable.problem), tuple(notes))


def connectors(run: Run) -> int:
    """Return how many optical connectors one end of a run takes."""
    return max(1, run.lanes // CONNECTOR_LANES)


def label_of(run: Run) -> str:
    """Return the label of a run: both ends. It stays as long as the ports do."""
    return f"{run.a.device.name}:{run.a_port}/{run.b.device.name}:{run.b_port}"


class _Planner:
    """One pass over the runs for lengths and groups, one over the groups for parts."""

    def __init__(self, runs: list[Run], ruler: Ruler, catalogue: Catalogue) -> None:
        self._runs = runs
        self._catalogue = catalogue
        self._lengths = [0.0] * len(runs)
        self._choices: list[Choice | None] = [None] * len(runs)
        self._shared: dict[tuple[str, str, float, str, str], Choice] = {}
        self._cages: dict[Cage, int] = {}
        self._parent: list[int] = []
        self._used: list[int] = []
        for index, run in enumerate(runs):
            self._measure(index, run, ruler)
        self._groups()

    # --- lengths and groups

    def _measure(self, index: int, run: Run, ruler: Ruler) -> None:
        try:
            self._lengths[index] = ruler.length(run.a, run.b)
        except LengthError as error:
            self._refuse(index, str(error))
            return
        mask = (1 << connectors(run)) - 1
        a, b = self._cage(run.a), self._cage(run.b)
        bits_a, bits_b = mask << run.a_sub, mask << run.b_sub
        if a == b:
            self._refuse(index, "Expected: two cages Actual: both ends in one. Correct the link.")
        elif self._used[a] & bits_a or self._used[b] & bits_b:
            cage, port = (run.a, run.a_port) if self._used[a] & bits_a else (run.b, run.b_port)
            self._refuse(index, f"Expected: a free port Actual: {cage.device.name} {port} has a cable already. Give each port one link.")
        else:
            self._used[a] |= bits_a
            self._used[b] |= bits_b
            self._join(a, b)

    def _cage(self, cage: Cage) -> int:
        number = self._cages.get(cage)
        if number is None:
            number = self._cages[cage] = len(self._parent)
            self._parent.append(number)
            self._used.append(0)
        return number

    def _root(self, number: int) -> int:
        parent = self._parent
        while parent[number] != number:
            parent[number] = parent[parent[number]]
            number = parent[number]
        return number

    def _join(self, a: int, b: int) -> None:
        first, second = self._root(a), self._root(b)
        if first != second:
            self._parent[max(first, second)] = min(first, second)

    def _groups(self) -> None:
        groups: dict[int, list[int]] = {}
        for index, run in enumerate(self._runs):
            if self._choices[index] is None:
                groups.setdefault(self._root(self._cages[run.a]), []).append(index)
        for group in groups.values():
            self._decide(group)

    # --- parts

    def _decide(self, group: list[int]) -> None:
        if len(group) <= LARGEST_ASSEMBLY and self._assemble(group):
            return
        wanted = [self._wanted(self._runs[index]) for index in group]
        able = [self._able(index, want) for index, want in zip(group, wanted, strict=True)]
        kind = _common([optics for optics in able if optics])
        for index, want, optics in zip(group, wanted, able, strict=True):
            pair = next((pair for pair in optics if pair.kind == kind), None)
            if pair is not None:
                self._choices[index] = self._fibre(pair, self._lengths[index])
            elif optics:
                self._refuse(index, self._at_odds(index, optics))
            else:
                self._refuse(index, self._unserved(index, want))

    def _wanted(self, run: Run) -> Wanted:
        a, b = self._used[self._cages[run.a]].bit_length(), self._used[self._cages[run.b]].bit_length()
        return Wanted(run.a.form, a, run.b.form, b, run.rate, run.lanes, run.layer)

    def _able(self, index: int, wanted: Wanted) -> list[Optics]:
        """Return the optics that serve one run by itself, those that reach least first."""
        return [pair for pair in self._catalogue.optics(wanted) if self._catalogue.fibre(pair, self._lengths[index])]

    def _fibre(self, pair: Optics, length: float) -> Choice:
        found = self._catalogue.fibre(pair, length)
        part, stocked = found or ("", 0.0)
        key = (pair.a.fibre, part, stocked, pair.a.part, pair.b.part)
        if key not in self._shared:
            self._shared[key] = Choice(*key)
        return self._shared[key]

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

    def _refuse(self, index: int, reason: str) -> None:
        self._choices[index] = Choice(problem=f"{_where(self._runs[index])}: {reason}")

    def _at_odds(self, index: int, optics: Sequence[Optics]) -> str:
        kinds = ", ".join(pair.kind for pair in optics)
        return (
            f"{self._lengths[index]:g} m - Expected: one kind of optics for all cables of a shared module Actual: this one can have {kinds}, "
            "a cable beside it cannot. Put the two on different cages, or bring the longer one's racks closer."
        )

    def _unserved(self, index: int, wanted: Wanted) -> str:
        length = self._lengths[index]
        offers = self._catalogue.optics(wanted)
        run = self._runs[index]
        longest = [(max(shelf.lengths), assembly.series) for assembly, shelf in self._catalogue.assemblies if shelf.lengths and _fits(assembly, [run])]
        longest += [(self._longest(pair), f"{pair.a.part} to {pair.b.part}") for pair in offers]
        if not longest:
            return f"Expected: a part for {wanted.text} Actual: none in profiles/parts. Change cage or rate of one end, or add the part."
        most, part = max(longest)
        return (
            f"Expected: a part of at least {length:g} m for {wanted.text} Actual: {most:g} m ({part}). "
            "Bring the racks closer, stock a longer length, or add a part to profiles/parts."
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
        """Yield the rows: one for each run, or one for each of its fibres where a link takes several."""
        for index, (run, choice) in enumerate(zip(self._runs, self._choices, strict=True)):
            label, length = label_of(run), self._lengths[index]
            if choice is None:
                raise AssertionError(label)
            parts = (choice.medium, choice.cable_part, choice.a_part, choice.b_part)
            count = connectors(run) if choice.group < 0 and not choice.problem else 1
            if count == 1:
                group = label if choice.group in {-1, index} else label_of(self._runs[choice.group])
                yield Cable(label, run, run.a_sub, run.b_sub, length, choice.stock_m, *parts, group, choice.problem)
                continue
            for fibre in range(count):
                name = f"{label}#{fibre + 1}"
                yield Cable(name, run, run.a_sub + fibre, run.b_sub + fibre, length, choice.stock_m, *parts, name)


def _common(able: Sequence[Sequence[Optics]]) -> str:
    """Return the kind of optics that serves all of a group and reaches least; empty when there is none."""
    reach: dict[str, float] = {}
    for optics in able:
        for pair in optics:
            reach[pair.kind] = max(reach.get(pair.kind, 0.0), pair.reach)
    common = set.intersection(*({pair.kind for pair in optics} for optics in able)) if able else set()
    return min(common, key=lambda kind: (reach[kind], kind), default="")


def _where(run: Run) -> str:
    a, b = run.a.device, run.b.device
    return f"{a.rack} U{a.unit} {a.name} {run.a_port} to {b.rack} U{b.unit} {b.name} {run.b_port}"


def _fits(assembly: Assembly, group: list[Run]) -> bool:
    """Say whether one assembly carries these runs: they start in one cage and end in as many as it has far ends, with its plugs, lanes and rate."""
    if any(run.rate != assembly.lane_rate * run.lanes or run.layer not in assembly.layers for run in group):
        return False
    return _hangs(assembly, [(run.a, run.b, run.lanes) for run in group]) or _hangs(assembly, [(run.b, run.a, run.lanes) for run in group])


def _hangs(assembly: Assembly, ends: list[tuple[Cage, Cage, int]]) -> bool:
    trunk = {near for near, _, _ in ends}
    far: dict[Cage, int] = {}
    for _, cage, lanes in ends:
        far[cage] = far.get(cage, 0) + lanes
    if len(trunk) != 1 or len(far) != assembly.ways or next(iter(trunk)).form != assembly.a_form:
        return False
    return all(cage.form == assembly.b_form and lanes <= assembly.lanes // assembly.ways for cage, lanes in far.items())
