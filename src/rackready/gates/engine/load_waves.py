"""When which nodes may be loaded, from the capacity plan: so that a burn-in is no step that breakers, UPS or generators cannot take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rackready.design.capacity.from_site import racks_of
from rackready.design.capacity.report import capacity
from rackready.design.plan import fabric_of
from rackready.model.site import Site


@dataclass(frozen=True, slots=True)
class Waves:
    """Nodes whose load comes on together, wave after wave. ``refused``: node to why its load may not come on; ``note``: why nothing is staged."""

    order: tuple[tuple[str, ...], ...]
    refused: Mapping[str, str] = field(default_factory=dict)
    note: str = ""

    def load_after(self, gap_s: float) -> dict[str, float]:
        """Return node to the seconds after which it may be loaded."""
        return {node: gap_s * place for place, wave in enumerate(self.order) for node in wave}


def waves(site: Site, nodes: Sequence[str]) -> Waves:
    """Return the waves of the capacity plan as far as these nodes stand in them. Without a power graph in the site file all are one wave, which is said."""
    if site.facility is None or not site.facility.power:
        return Waves((tuple(nodes),), note="the site file has no facility.power: load comes on on all nodes at once")
    report = capacity(racks_of(site, fabric_of(site) if site.topology is not None else None), site.facility)
    if report.power_on is None:
        return Waves((), dict.fromkeys(nodes, _why([str(problem) for problem in report.problems])))
    rack_of = {node: site.rack_of(node).name for node in nodes}
    order = [tuple(node for node in nodes if rack_of[node] in wave.racks) for wave in report.power_on.waves]
    placed = {node for wave in order for node in wave}
    why = _why([str(problem) for problem in report.power_on.problems])
    return Waves(tuple(wave for wave in order if wave), {node: why for node in nodes if node not in placed})


def _why(problems: list[str]) -> str:
    met = "; ".join(problems[:2]) or "no order"
    return (
        f"the capacity plan has no wave for its rack - Expected: load within every rating Actual: {met}. "
        "See `rackready plan`."
    )
