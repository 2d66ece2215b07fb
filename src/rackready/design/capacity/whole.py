"""The site as a whole, including loads on no power node, compared with its sources and its cooling plant."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rackready.design.capacity import circuits
from rackready.design.capacity.graph import SOURCES
from rackready.design.capacity.limits import as_given, kilowatts, over
from rackready.design.capacity.losses import LossCase, Overload
from rackready.design.capacity.parts import least, total
from rackready.design.names import listed
from rackready.model.facility import Facility, PowerNode
from rackready.model.problems import Problem


@dataclass(frozen=True, slots=True)
class Whole:
    """Total load.

    ``max_w``: highest draw of everything; ``facility_w``: that with cooling and losses, None without a PUE;
    ``partial``: some draw is not published.
    """

    facility: Facility
    max_w: float
    facility_w: float | None
    partial: bool

    def plant(self) -> list[Problem]:
        """Return a problem if the heat exceeds the capacity of the plant."""
        limit = self.facility.cooling_kw
        if limit is None or not over(self.max_w, limit * 1000):
            return []
        most, have = as_given(self.max_w / 1000, limit, "kW")
        text = (
            f"the heat of the site exceeds its cooling plant - Expected: at most {most} "
            f"Actual: {least(partial=self.partial)}{have}."
        )
        more = math.ceil((self.max_w / 1000 - limit) * 10) / 10
        return [Problem("facility.cooling_kw", text, f"Add {more:.1f} kW of cooling, or plan fewer racks.")]

    def grid(self) -> list[Problem]:
        """Return a problem if the whole site needs more than all its sources provide."""
        outside = _main(self.facility)
        limit = _usable(outside)
        return [] if limit is None or not over(self._need, limit) else [self._over(outside, limit, "")]

    def judged(self, cases: Sequence[LossCase]) -> tuple[list[LossCase], list[Problem]]:
        """Return the losses with the effect of each lost source on the whole site, and sources that are then too small.

        A loss that takes racks down already reports it. If all racks stay up, loads on no power node stay up too.
        """
        main = [node.name for node in _main(self.facility)]
        out, problems = [], []
        for case in cases:
            left = [node for node in self.facility.power if node.kind in SOURCES and node.name != case.element]
            limit = _usable(left)
            if case.kind != "node" or case.element not in main or case.fails or (left and limit is None):
                out.append(case)
            elif limit is None:
                out.append(replace(case, partial=case.partial or self._need > 0))
            elif over(self._need, limit):
                problems.append(self._over(left, limit, f" at the loss of {case.element}"))
                out.append(
                    replace(case, overloads=(Overload(listed([node.name for node in left]), self._need, limit),))
                )
            else:
                out.append(replace(case, partial=case.partial or self.partial))
        return out, problems

    def notes(self, before: Sequence[LossCase], after: Sequence[LossCase]) -> list[str]:
        """Return which losses of a source ``judged`` left open, and why."""
        names = [case.element for was, case in zip(before, after, strict=True) if was.judged and not case.judged]
        why = (
            "some draw of the site is not published"
            if self.partial
            else "no other source is left for loads on no power node"
        )
        return [f"loss of {listed(names)} is not judged: {why}"] if names else []

    @property
    def _need(self) -> float:
        return self.max_w if self.facility_w is None else self.facility_w

    def _over(self, sources: Sequence[PowerNode], limit: float, when: str) -> Problem:
        most, have = kilowatts(self._need, limit)
        what = (
            "with cooling and losses (facility.pue)"
            if self.facility_w is not None
            else "without cooling and losses (facility.pue is not set)"
        )
        who = f"{listed([node.name for node in sources])} {'carries' if len(sources) == 1 else 'carry'}"
        return Problem.of(
            "facility.power",
            f"the site draws more than {who}{when}",
            "Agree a higher rating with the utility, or plan fewer racks.",
            expected=f"at most {most}",
            actual=f"{least(partial=self.partial)}{have} {what}",
        )


def unsurvived(cases: Sequence[LossCase]) -> Iterator[LossCase]:
    """Yield losses of a site that is overloaded without any loss: seeming survivals are not judged."""
    return (replace(case, partial=True) for case in cases)


def _main(facility: Facility) -> list[PowerNode]:
    """Return the sources of the site: utilities, or generators if there are none."""
    return [node for node in facility.power if node.kind == "utility"] or [
        node for node in facility.power if node.kind == "generator"
    ]


def _usable(sources: Sequence[PowerNode]) -> float | None:
    """Return the total capacity of sources, W; None without any, or if the rating of one is not given."""
    return total(circuits.usable_w(node) for node in sources) if sources else None
