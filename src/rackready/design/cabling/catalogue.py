"""Parts that serve a cable: modules, fibres and assemblies of the parts profiles, within reach and in stocked lengths.

Among suitable optics the shortest-reaching ones win, since they cost least and draw least. Copper comes before optics
if its plugs, lanes and length fit, passive before active. Lengths are rounded up to a stocked length.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rackready.model.parts import Assembly, Fibre, PartsProfile, Stocked, Transceiver
from rackready.model.problems import Problem, RackreadyError


class StockError(RackreadyError):
    """The site's stock names a series or length that the parts profiles do not have; ``problems`` lists every one."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = problems
        super().__init__("\n".join(map(str, problems)))
        self.messages = tuple(problems)


@dataclass(frozen=True, slots=True, eq=False)
class WantedCable:
    """Requirements of one kind of link for its parts: one object per kind, compared by identity.

    ``a_ports`` and ``b_ports``: optical connectors of the module that the cage at that end takes.
    """

    a_form: str
    a_ports: int
    b_form: str
    b_ports: int
    rate: int
    lanes: int
    layer: str

    @property
    def lane_rate(self) -> float:
        """Return the rate of one lane, Gb/s."""
        return self.rate / self.lanes

    @property
    def text(self) -> str:
        """Return the requirements in words."""
        return f"{self.rate} Gb/s {self.layer} over {self.lanes} lanes between {self.a_form} and {self.b_form}"


@dataclass(frozen=True, slots=True)
class Optics:
    """Modules for both ends of a link."""

    kind: str
    a: Transceiver
    b: Transceiver

    @property
    def reach(self) -> float:
        """Return the longest possible fibre, m: the reach of the weaker module."""
        return min(self.a.reach.value, self.b.reach.value)


class Shelf:
    """One series in the lengths that may be used, ascending."""

    def __init__(self, series: Stocked, stock: Sequence[float] | None) -> None:
        self.series = series
        self.lengths = sorted(series.lengths if stock is None else stock)

    def at_least(self, length: float) -> float | None:
        """Return the shortest stocked length of at least that many m; None if there is none."""
        place = bisect_left(self.lengths, length)
        return self.lengths[place] if place < len(self.lengths) else None


class Catalogue:
    """All parts that may be used at one site."""

    def __init__(self, profiles: Iterable[PartsProfile], stock: Mapping[str, Sequence[float]] | None = None) -> None:
        """Index the parts. Raises StockError if ``stock`` (series -> lengths on the shelf, m) has an unknown entry."""
        listed = list(profiles)
        self.transceivers = {item.part: item for profile in listed for item in profile.transceivers}
        fibres = [item for profile in listed for item in profile.fibres]
        assemblies = [item for profile in listed for item in profile.assemblies]
        self._check(stock or {}, [*fibres, *assemblies])
        self.fibres: list[tuple[Fibre, Shelf]] = [
            (item, Shelf(item, (stock or {}).get(item.series))) for item in fibres
        ]
        self.assemblies: list[tuple[Assembly, Shelf]] = [
            (item, Shelf(item, (stock or {}).get(item.series))) for item in assemblies
        ]
        self.assemblies.sort(key=lambda pair: (_MEDIA.index(pair[0].medium), max(pair[0].lengths)))
        self.parts: dict[str, Stocked] = {
            part: item for item in (*fibres, *assemblies) for part in item.lengths.values()
        }
        self._optics: dict[WantedCable, tuple[Optics, ...]] = {}
        self._fibres: dict[tuple[str, float], tuple[str, float] | None] = {}

    @staticmethod
    def _check(stock: Mapping[str, Sequence[float]], series: Sequence[Stocked]) -> None:
        known = {item.series: item for item in series}
        problems = []
        for name, lengths in stock.items():
            where = f"cable_stock.{name}"
            if name not in known:
                listed = ", ".join(sorted(known))
                problems.append(
                    Problem.of(
                        where,
                        "",
                        expected=f"one of {listed}",
                        actual=name,
                        next_step="Correct the series, or add it to profiles/parts.",
                    )
                )
                continue
            have = ", ".join(f"{length:g}" for length in known[name].lengths)
            wrong = [length for length in lengths if length not in known[name].lengths]
            problems += [
                Problem.of(
                    where,
                    "",
                    expected=f"lengths of {have} m",
                    actual=f"{length:g} m",
                    next_step="Correct it, or add its part number to profiles/parts.",
                )
                for length in wrong
            ]
        if problems:
            raise StockError(problems)

    def optics(self, wanted: WantedCable) -> tuple[Optics, ...]:
        """Return the optics that fit both cages, shortest reach first."""
        found = self._optics.get(wanted)
        if found is None:
            kinds = sorted({item.optics for item in self.transceivers.values()})
            pairs = [self._pair(kind, wanted) for kind in kinds]
            found = self._optics[wanted] = tuple(sorted((pair for pair in pairs if pair), key=lambda pair: pair.reach))
        return found

    def _pair(self, kind: str, wanted: WantedCable) -> Optics | None:
        a = self._module(kind, wanted, wanted.a_form, wanted.a_ports)
        b = self._module(kind, wanted, wanted.b_form, wanted.b_ports)
        return Optics(kind, a, b) if a and b else None

    def _module(self, kind: str, wanted: WantedCable, form: str, ports: int) -> Transceiver | None:
        fits = [
            item
            for item in self.transceivers.values()
            if item.optics == kind
            and item.form == form
            and item.ports == ports
            and item.lane_rate == wanted.lane_rate
            and wanted.lanes % item.lanes == 0
            and wanted.lanes // item.lanes <= ports
            and wanted.layer in item.layers
        ]
        return min(fits, key=lambda item: item.part, default=None)

    def fibre(self, optics: Optics, length: float) -> tuple[str, float] | None:
        """Return (part, stocked length in m) of the shortest fibre that is long enough and within reach, or None."""
        key = (f"{optics.a.part} {optics.b.part}", length)
        if key not in self._fibres:
            self._fibres[key] = self._shortest(optics, length)
        return self._fibres[key]

    def _shortest(self, optics: Optics, length: float) -> tuple[str, float] | None:
        plug = (optics.a.fibre, optics.a.connector, optics.a.polish)
        best: tuple[float, str] | None = None
        for fibre, shelf in self.fibres:
            stocked = shelf.at_least(length) if (fibre.fibre, fibre.connector, fibre.polish) == plug else None
            most = min(optics.reach, fibre.longest.value) if fibre.longest else optics.reach
            if stocked is not None and stocked <= most and (best is None or stocked < best[0]):
                best = (stocked, fibre.lengths[stocked])
        return (best[1], best[0]) if best else None


_MEDIA: list[str] = ["twisted_pair", "dac", "acc", "aoc", "mmf", "smf"]
"""Order in which media are tried: lowest cost and power first."""
