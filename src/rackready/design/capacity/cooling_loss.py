"""Loss of a coolant distribution unit (CDU): racks left without liquid, and the load on the other CDUs.

The live CDUs that serve a rack share its heat into liquid evenly. Judgement: they are side by side on one loop, and no
publication contradicts it. A rack whose last CDU is lost has no liquid cooling; its devices must be switched off.
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
    """One coolant distribution unit. ``usable_w``: heat that it can carry away, W; None if not given."""

    name: str
    racks: tuple[str, ...]
    usable_w: float | None
    accepted: str | None = None


@dataclass(frozen=True, slots=True)
class Cooled:
    """Results.

    ``cases``: the loss of every CDU; ``problems`` and ``notes`` as in capacity; ``over_alive``: CDUs over their rating
    without any loss.
    """

    cases: tuple[LossCase, ...] = ()
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()
    over_alive: int = 0


def cdus_of(site: Site) -> list[Cdu]:
    """Return the CDUs of a checked site, in the order of the file."""
    out = []
    for device in site.devices:
        if device.kind == KIND:
            racks = dict.fromkeys(name for text in device.serves for name in expand_names(text))
            usable_w = None if device.cooling_kw is None else device.cooling_kw * 1000
            out.append(Cdu(device.name, tuple(racks), usable_w, device.loss_accepted))
    return out


def cooled(cdus: Sequence[Cdu], racks: Sequence[RackInput]) -> Cooled:
    """Return the effects of the loss of each CDU; empty for a site without CDUs."""
    if not cdus:
        return Cooled()
    serving = [cdu for cdu in cdus if cdu.racks]
    work = _Work(serving, racks)
    cases = tuple(work.loss(cdu) for cdu in serving)
    return Cooled(cases, tuple(work.problems(cases)), tuple(_notes(cdus, serving, work)), len(work.over_alive))


def _needs_liquid(rack: RackInput) -> bool:
    """Return whether heat of a rack goes into liquid, even if its share is not published.

    The cooling of the rack or of a model in it decides.
    """
    heat = cooling.known(rack, "liquid")
    said = rack.cooling is not None or any(wet(device.model) for device in rack.devices)
    return heat.watts > 0 or (heat.partial and said)


class _Work:
    """Data that the cases share: heat into liquid of every served rack, and the CDUs that serve it."""

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
        """Upper bound of heat into liquid: all draw of a rack without a published share; none without a draw."""
        self._load = self._loads("", self._known())
        self.over_alive = [
            cdu.name for cdu in serving if cdu.usable_w is not None and over(self._load[cdu.name], cdu.usable_w)
        ]

    def _known(self) -> dict[str, float]:
        return {name: known.watts for name, known in self.heat.items()}

    def _loads(self, lost: str, heat: Mapping[str, float]) -> dict[str, float]:
        """Return the load of every CDU, W, given the heat into liquid by rack, with one CDU lost (none if empty)."""
        out = dict.fromkeys((name for name in self._cdus if name != lost), 0.0)
        for rack, names in self._of.items():
            live = [name for name in names if name != lost]
            for name in live:
                out[name] += heat[rack] / len(live)
        return out

    def others(self, rack: str, than: str) -> list[str]:
        """Return the other CDUs that serve a rack."""
        return [name for name in self._of[rack] if name != than]

    def loss(self, cdu: Cdu) -> LossCase:
        """Return the effects of the loss of one CDU."""
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
        """Yield racks that no CDU serves or that one loss leaves without liquid, and CDUs over their rating."""
        if self._unserved:
            they = "them" if len(self._unserved) > 1 else "it"
            yield Problem.of(
                where(self._unserved),
                f"heat goes into liquid, but no CDU serves {they}",
                f"Add {they} to serves of a CDU, or set cooling of kind air.",
                expected=f"a CDU that serves {they}",
                actual="none",
            )
        told = set(self.over_alive)
        yield from (self._over(name, self._load[name], "") for name in self.over_alive)
        for case in cases:
            if case.dark and case.accepted is None:
                yield Problem.of(
                    f"cdu {case.element}",
                    f"its loss leaves {where(case.dark)} without liquid cooling",
                    "Add them to serves of a second CDU, or accept the loss with a reason (loss_accepted).",
                    expected="another CDU that serves them",
                    actual="none",
                )
            for item in case.overloads:
                if item.node not in told:
                    told.add(item.node)
                    yield self._over(item.node, item.seen_w, f" at the loss of {case.element}")

    def _over(self, name: str, load: float, when: str) -> Problem:
        usable = self._cdus[name].usable_w or 0.0
        racks = self._cdus[name].racks
        some = least(partial=any(self.heat[rack].partial for rack in racks))
        return Problem.of(
            f"cdu {name}",
            f"its heat load exceeds its rating{when}",
            f"Move {some}{(load - usable) / 1000:.1f} kW to another CDU, or serve fewer racks.",
            expected=f"at most {usable / 1000:.1f} kW",
            actual=f"{some}{load / 1000:.1f} kW, from {where(racks)}",
        )

    def rows(self) -> Iterator[tuple[str, str, float, bool, str]]:
        """Yield (CDU, rack, heat of the rack into liquid in W, whether that is incomplete, other CDUs of the rack)."""
        for cdu in self._cdus.values():
            for rack in cdu.racks:
                known = self.heat[rack]
                yield cdu.name, rack, known.watts, known.partial, " ".join(self.others(rack, cdu.name))


def served_racks(cdus: Sequence[Cdu], racks: Sequence[RackInput]) -> list[tuple[str, str, float, bool, str]]:
    """Return (CDU, rack, heat of the rack into liquid in W, whether incomplete, other CDUs) of every served rack."""
    return list(_Work([cdu for cdu in cdus if cdu.racks], racks).rows())


def _notes(cdus: Sequence[Cdu], serving: Sequence[Cdu], work: _Work) -> Iterator[str]:
    silent = [cdu.name for cdu in cdus if not cdu.racks]
    if silent:
        yield (
            f"loss of {listed(silent)} is not judged: the site does not list which racks "
            f"{'they serve' if len(silent) > 1 else 'it serves'} (serves)"
        )
    unrated = [cdu.name for cdu in serving if cdu.usable_w is None]
    if unrated:
        yield f"{listed(unrated)}: heat not judged, the site does not give the capacity (cooling_kw)"
    vague = [rack for rack, known in work.heat.items() if known.partial]
    if vague:
        yield (
            f"{where(vague)}: heat into liquid is not fully published; the loss of a CDU is judged if all heat of "
            "its racks together fits"
        )
    for cdu in serving:
        if cdu.accepted:
            yield f"loss of {cdu.name} is accepted: {cdu.accepted}"
