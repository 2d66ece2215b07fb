"""Power-on waves of the capacity plan: they keep a burn-in from overloading breakers, UPS or generators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rackready.design.capacity.from_site import racks_of
from rackready.design.capacity.report import capacity
from rackready.design.plan import fabric_of
from rackready.model.site import Site


@dataclass(frozen=True, slots=True)
class Waves:
    """Nodes that are loaded together, wave after wave.

    ``refused``: node -> why it may not be loaded. ``note``: why the load is not staged.
    """

    order: tuple[tuple[str, ...], ...]
    refused: Mapping[str, str] = field(default_factory=dict)
    note: str = ""

    def load_after(self, gap_s: float) -> dict[str, float]:
        """Return node -> seconds after which it may be loaded."""
        return {node: gap_s * place for place, wave in enumerate(self.order) for node in wave}


def waves(site: Site, nodes: Sequence[str]) -> Waves:
    """Return the capacity plan's waves of these nodes: one wave, with a note, if the site file has no power graph."""
    if site.facility is None or not site.facility.power:
        return Waves((tuple(nodes),), note="the site file has no facility.power: all nodes are loaded at once")
    report = capacity(racks_of(site, fabric_of(site) if site.topology is not None else None), site.facility)
    if report.power_on is None:
        return Waves((), dict.fromkeys(nodes, _why([str(problem) for problem in report.problems])))
    rack_of = {node: site.rack_of(node).name for node in nodes}
    order = [tuple(node for node in nodes if rack_of[node] in wave.racks) for wave in report.power_on.waves]
    placed = {node for wave in order for node in wave}
    why = _why([str(problem) for problem in report.power_on.problems])
    return Waves(tuple(wave for wave in order if wave), {node: why for node in nodes if node not in placed})


def _why(problems: list[str]) -> str:
    actual = "; ".join(problems[:2]) or "no order"
    return (
        f"the capacity plan has no wave for its rack - Expected: load within every rating Actual: {actual}. "
        "See `rackready plan`."
    )
