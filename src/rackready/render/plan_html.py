"""The plan as one HTML file: no external reference, inline SVG, light, dark and print styles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cache

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from rackready.design.capacity.cooling_loss import KIND as CDU
from rackready.design.capacity.limits import kilowatts
from rackready.design.capacity.losses import LossCase, tally
from rackready.design.capacity.notes import NOT_PUBLISHED
from rackready.design.capacity.parts import RackInput, least
from rackready.design.capacity.report import CapacityReport, RackLoad
from rackready.design.topology.types import FabricPlan
from rackready.model.problems import Problem
from rackready.render import pictures
from rackready.render.environment import template_root
from rackready.render.plan_text import losses_text

MOST_ELEVATIONS = 60
"""Most front views that are drawn; a site built from templates has a handful."""
MOST_ROWS = 5000
"""Most rows of a table; the page states how many are left out. 12,500 nodes need fewer racks."""
MOST_LOSSES = 300


@cache
def _template(name: str) -> Template:
    env = Environment(
        loader=FileSystemLoader(template_root()),
        undefined=StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.filters["kw"] = lambda watts: NOT_PUBLISHED if watts is None else f"{watts / 1000:,.1f}"
    env.filters["kg"] = lambda weight: NOT_PUBLISHED if weight is None else f"{weight:,.0f}"
    env.filters["against"] = lambda seen, usable: "/".join(
        text.removesuffix(" kW") for text in reversed(kilowatts(seen, usable))
    )
    return env.get_template(f"plan/{name}.html.j2")


def elevations(looks: Sequence[pictures.Look]) -> list[dict[str, object]]:
    """Return one picture per front view with the names of its racks; the most frequent first."""
    shown = sorted(looks, key=lambda look: -len(look.names))[:MOST_ELEVATIONS]
    return [
        {"svg": pictures.elevation(look.rack, look), "count": len(look.names), "names": look.names} for look in shown
    ]


def rows(racks: Sequence[RackLoad]) -> Iterator[tuple[str, str]]:
    """Yield every rack's name and the cells of its row; equal racks share the cells."""
    cells: dict[int, str] = {}
    template = _template("rack_cells")
    for rack in racks[:MOST_ROWS]:
        # Equal racks share feeds and device counts (design.capacity.report): one object.
        if id(rack.devices) not in cells:
            cells[id(rack.devices)] = template.render(rack=rack)
        yield rack.name, cells[id(rack.devices)]


def shown_losses(cases: Sequence[LossCase]) -> list[LossCase]:
    """Return the losses: not survived first, then not judged, then by number of racks."""
    return sorted(cases, key=lambda case: (not case.fails, case.judged, -len(case.short), -len(case.racks)))[
        :MOST_LOSSES
    ]


def plan_html(
    name: str,
    report: CapacityReport,
    racks: Sequence[RackInput],
    fabric: FabricPlan | None = None,
    problems: Sequence[Problem] = (),
    facts: Mapping[str, object] | None = None,
) -> str:
    """Return the page. ``problems``: of other parts of the plan; ``facts``: further lines of the summary, in order."""
    looks = pictures.alike(racks)
    unclear = sum(1 for rack in report.racks if rack.unpublished)
    losses = losses_text(
        asdict(tally(report.losses)), report.over_alive, cooling=any(case.kind == CDU for case in report.losses)
    )
    return _template("plan").render(
        name=name,
        report=report,
        facts=facts or {},
        problems=[*problems, *report.problems],
        elevations=elevations(looks),
        looks=len(looks),
        least=least(partial=bool(report.not_published)),
        losses_text=losses,
        rows=rows(report.racks),
        fabric=fabric,
        fabric_svg=pictures.fabric(fabric) if fabric is not None and fabric.switches else None,
        power_svg=pictures.power_bars(report.nodes)
        if any(node.usable_w is not None for node in report.nodes)
        else None,
        distribution_svg=pictures.distribution([rack.max_w for rack in report.racks], unclear)
        if len(report.racks) > 1
        else None,
        losses=shown_losses(report.losses),
        most_rows=MOST_ROWS,
    )
