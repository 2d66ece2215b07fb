"""The loss of a coolant distribution unit (CDU): which racks are left without liquid, and what the others must carry then.

A rack's heat into liquid is shared evenly by the CDUs that serve it and live. Judgement: they stand side by side on one
loop, and nothing published says otherwise. A rack whose last CDU is lost has no liquid cooling; its devices must be
switched off.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rackready.design.capacity import cooling
from rackready.design.capacity.findings import wet
from rackready.design.capacity.limits import over
from rackready.design.capacity.losses import LossCase, Overload
from rackready.design.capacity.parts import RackInput, least, where
from rackready.design.names import listed
from rackready.model.base import expand_names
from rackready.model.problems import Problem
from rackready.model.site import Site

KIND = "cdu"


@dataclass(frozen=True, slots=True)
class Cdu:
    """One coolant distribution unit. ``usable_w``: heat that it carries away, W; None when the site does not say."""

    name: str
    racks: tuple[str, ...]
    usable_w: float | None
    accepted: str | None = None


@dataclass(frozen=True, slots=True)
class Cooled:
    """``cases``: the loss of every CDU; ``problems`` and ``notes`` as those of capacity; ``over_alive``: CDUs over their rating with nothing lost."""

    cases: tuple[LossCase, ...] = ()
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()
    over_alive: int = 0


def cdus_of(site: Site) -> list[Cdu]:
    """Return the CDUs of a checked site, in the order of the file."""
    return [
        Cdu(
            device.name,
            tuple(dict.fromkeys(name for text in device.serves for name in expand_names(text))),
            None if device.cooling_kw is None else device.cooling_kw * 1000,
            device.loss_accepted,
        )
        for device in site.devices
        if device.kind == KIND
    ]


def cooled(cdus: Sequence[Cdu], racks: Sequence[RackInput]) -> Cooled:
    """Return what the loss of each CDU does; nothing for a site without CDUs."""
    if not cdus:
        return Cooled()
    serving = [cdu for cdu in cdus if cdu.racks]
    work = _Work(serving, racks)
    cases = tuple(work.loss(cdu) for cdu in serving)
    return Cooled(cases, tuple(work.problems(cases)), tuple(_notes(cdus, serving, work)), len(work.over_alive))


def _needs_liquid(rack: RackInput) -> bool:
    """Say whether heat of a rack goes into liquid, also where nobody publishes how much: the rack's cooling or a model in it says so."""
    heat = cooling.known(rack, "liquid")
    said = rack.cooling is not None or any(wet(device.model) for device in rack.devices)
    return heat.watts > 0 or (heat.partial and said)


class _Work:
    """What the cases share: heat into liquid of every rack that is served, and the CDUs that serve it."""

    def __init__(self, serving: Sequence[Cdu], racks: Sequence[RackInput]) -> None:
        wanted = {name for cdu in serving for name in cdu.racks}
        self._cdus = {cdu.name: cdu for cdu in serving}
        self.heat: Mapping[str, cooling.Known] = {
            rack.name: cooling.known(rack, "liquid") for rack in racks if rack.name in wanted
        }
        self._unserved = (
            [rack.name for rack in racks if rack.name not in wanted and _needs_liquid(rack)] if wanted else []
        )
        self._of: dict[str, list[str]] = {}
        for cdu in serving:
            for rack in cdu.racks:
                self._of.setdefault(rack, []).append(cdu.name)
        drawn = {rack.name: math.inf if rack.unpublished else rack.max_w for rack in racks if rack.name in wanted}
        self._most = {name: drawn[name] if known.partial else known.watts for name, known in self.heat.items()}
        """The most that can go into liquid: all that a rack draws where its liquid share is not published; no limit where its draw is not."""
        self._load = self._loads("", self._known())
        self.over_alive = [
            cdu.name for cdu in serving if cdu.usable_w is not None and over(self._load[cdu.name], cdu.usable_w)
        ]

    def _known(self) -> dict[str, float]:
        return {name: known.watts for name, known in self.heat.items()}

    def _loads(self, lost: str, heat: Mapping[str, float]) -> dict[str, float]:
        """Return what every CDU carries with one lost (none when empty) where racks give so much heat to liquid, W."""
        out = dict.fromkeys((name for name in self._cdus if name != lost), 0.0)
        for rack, names in self._of.items():
            live = [name for name in names if name != lost]
            for name in live:
                out[name] += heat[rack] / len(live)
        return out

    def others(self, rack: str, than: str) -> list[str]:
        """Return the CDUs beside one that serve a rack."""
        return [name for name in self._of[rack] if name != than]

    def loss(self, cdu: Cdu) -> LossCase:
        """Return what the loss of one CDU does."""
        dark = tuple(rack for rack in cdu.racks if not self.others(rack, cdu.name))
        after, most = self._loads(cdu.name, self._known()), self._loads(cdu.name, self._most)
        taking = dict.fromkeys(name for rack in cdu.racks for name in self.others(rack, cdu.name))
        usable = {name: self._cdus[name].usable_w for name in taking}
        overloads = tuple(
            Overload(name, after[name], limit)
            for name, limit in usable.items()
            if limit is not None and over(after[name], limit)
        )
        partial = any(limit is None or over(most[name], limit) for name, limit in usable.items())
        return LossCase(KIND, cdu.name, cdu.racks, dark, dark, overloads, cdu.accepted, partial=partial)

    def problems(self, cases: Iterable[LossCase]) -> Iterator[Problem]:
        """Yield racks that no CDU serves or that one loss leaves without liquid, and CDUs over their rating, with everything alive or when another is lost."""
        if self._unserved:
            they = "them" if len(self._unserved) > 1 else "it"
            text = f"heat goes into liquid, and no CDU serves {they} - Expected: a CDU that serves {they} Actual: none."
            yield Problem(
                where(self._unserved),
                text,
                f"Name {they} in serves of a CDU, or say that air cools {they} (cooling of kind air).",
            )
        told = set(self.over_alive)
        yield from (self._over(name, self._load[name], "") for name in self.over_alive)
        for case in cases:
            if case.dark and case.accepted is None:
                text = (
                    f"its loss leaves {where(case.dark)} without liquid cooling - "
                    "Expected: another CDU that serves them Actual: none."
                )
                yield Problem(
                    f"cdu {case.element}",
                    text,
                    "Let a second CDU serve them (serves), or say why the loss is accepted (loss_accepted).",
                )
            for item in case.overloads:
                if item.node not in told:
                    told.add(item.node)
                    yield self._over(item.node, item.seen_w, f" at the loss of {case.element}")

    def _over(self, name: str, load: float, when: str) -> Problem:
        usable = self._cdus[name].usable_w or 0.0
        racks = self._cdus[name].racks
        some = least(partial=any(self.heat[rack].partial for rack in racks))
        text = (
            f"it carries more heat than it can{when} - Expected: at most {usable / 1000:.1f} kW "
            f"Actual: {some}{load / 1000:.1f} kW, by {where(racks)}."
        )
        return Problem(
            f"cdu {name}",
            text,
            f"Let another CDU take {some}{(load - usable) / 1000:.1f} kW of it, or serve fewer racks.",
        )

    def rows(self) -> Iterator[tuple[str, str, float, bool, str]]:
        """Yield (CDU, rack, the rack's heat into liquid in W, whether some of it is not published, other CDUs of the rack)."""
        for cdu in self._cdus.values():
            for rack in cdu.racks:
                known = self.heat[rack]
                yield cdu.name, rack, known.watts, known.partial, " ".join(self.others(rack, cdu.name))


def served_racks(cdus: Sequence[Cdu], racks: Sequence[RackInput]) -> list[tuple[str, str, float, bool, str]]:
    """Return which CDU serves which rack: (CDU, rack, heat of the rack into liquid in W, whether that leaves something out, its other CDUs)."""
    return list(_Work([cdu for cdu in cdus if cdu.racks], racks).rows())


def _notes(cdus: Sequence[Cdu], serving: Sequence[Cdu], work: _Work) -> Iterator[str]:
    silent = [cdu.name for cdu in cdus if not cdu.racks]
    if silent:
        yield (
            f"loss of {listed(silent)} is not judged: the site does not say which racks "
            f"{'they serve' if len(silent) > 1 else 'it serves'} (serves)"
        )
    unrated = [cdu.name for cdu in serving if cdu.usable_w is None]
    if unrated:
        they = "they" if len(unrated) > 1 else "it"
        yield f"{listed(unrated)}: heat not judged, the site does not say how much {they} can carry (cooling_kw)"
    vague = [rack for rack, known in work.heat.items() if known.partial]
    if vague:
        yield (
            f"{where(vague)}: heat into liquid is not all published; the loss of a CDU is judged where all heat of "
            "its racks together would fit"
        )
    for cdu in serving:
        if cdu.accepted:
            yield f"loss of {cdu.name} is accepted: {cdu.accepted}"
