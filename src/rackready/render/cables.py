"""Cables as text: one CSV for the site, written as a stream, and one printable page a rack with its list and labels."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TextIO

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from rackready.design.cabling.types import BomLine, Cable
from rackready.render.environment import template_root

CSV_COLUMNS = (
    "label",
    "kind",
    "a_rack",
    "a_unit",
    "a_device",
    "a_port",
    "a_connector",
    "a_module",
    "b_rack",
    "b_unit",
    "b_device",
    "b_port",
    "b_connector",
    "b_module",
    "rate_gbps",
    "length_m",
    "stock_m",
    "medium",
    "cable",
    "piece",
    "problem",
)
"""``piece`` names the physical cable: rows that share it are one splitter or twin-port cable."""
BOM_COLUMNS = ("group", "part", "description", "needed", "spare", "total", "source")


def write_csv(cables: Iterable[Cable], file: TextIO) -> int:
    """Write the list of cables, one row each, and return how many there were. Nothing but the row at hand is held."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    count = 0
    for count, cable in enumerate(cables, 1):  # noqa: B007 - the count is the result
        writer.writerow(_row(cable))
    return count


def _row(cable: Cable) -> tuple[object, ...]:
    run = cable.run
    a, b = run.a.device, run.b.device
    fixed = cable.a_part == cable.cable_part
    stock = f"{cable.stock_m:g}" if cable.stock_m else ""
    return (
        cable.label,
        run.kind,
        *(a.rack, a.unit, a.name, run.a_port, "" if fixed else cable.a_sub + 1, "" if fixed else cable.a_part),
        *(b.rack, b.unit, b.name, run.b_port, "" if fixed else cable.b_sub + 1, "" if fixed else cable.b_part),
        *(run.rate, f"{cable.length_m:.2f}", stock, cable.medium, cable.cable_part, cable.group, cable.problem),
    )


def write_bom(lines: Iterable[BomLine], file: TextIO) -> None:
    """Write the bill of materials as CSV."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(BOM_COLUMNS)
    writer.writerows((line.group, line.part, line.description, line.needed, line.spare, line.total, line.source) for line in lines)


def rack_ends(cables: Iterable[Cable]) -> dict[str, list[tuple[Cable, bool]]]:
    """Return the cable ends of every rack: (cable, whether it is end B). A cable inside one rack has both ends there."""
    racks: dict[str, list[tuple[Cable, bool]]] = defaultdict(list)
    for cable in cables:
        racks[cable.a_rack].append((cable, False))
        racks[cable.b_rack].append((cable, True))
    return dict(sorted(racks.items()))


def rack_page(site: str, rack: str, ends: Sequence[tuple[Cable, bool]]) -> str:
    """Return the page of one rack: a self-contained file that prints on A4. Every value is escaped."""
    rows = sorted((_end(cable, other=other) for cable, other in ends), key=lambda row: (row["unit"], row["device"], row["order"], row["label"]))
    return _template().render(site=site, rack=rack, rows=rows)


def write_rack_pages(site: str, cables: Iterable[Cable], folder: Path) -> Iterator[Path]:
    """Write one page a rack into a folder that exists, and yield each path as it is done."""
    for rack, ends in rack_ends(cables).items():
        path = folder / f"cables-{rack}.html"
        path.write_text(rack_page(site, rack, ends), encoding="utf-8")
        yield path


def _end(cable: Cable, *, other: bool) -> dict[str, Any]:
    run = cable.run
    sides = [(run.a, run.a_port, cable.a_sub, cable.a_part), (run.b, run.b_port, cable.b_sub, cable.b_part)]
    (near, port, sub, part), (far, far_port, far_sub, far_part) = reversed(sides) if other else sides
    fixed = cable.a_part == cable.cable_part
    return {
        "unit": near.device.unit,
        "device": near.device.name,
        "order": (len(near.name), near.name, sub),
        "port": port,
        "connector": "" if fixed else sub + 1,
        "part": "" if fixed else part,
        "far_rack": far.device.rack,
        "far_unit": far.device.unit,
        "far_device": far.device.name,
        "far_port": far_port,
        "far_connector": "" if fixed else far_sub + 1,
        "far_part": "" if fixed else far_part,
        "length": f"{cable.length_m:.2f}",
        "stock": f"{cable.stock_m:g}",
        "cable": cable.cable_part,
        "label": cable.label,
        "problem": cable.problem,
    }


@cache
def _template() -> Template:
    pages = Environment(loader=FileSystemLoader(template_root()), undefined=StrictUndefined, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    return pages.get_template("plan/cables_rack.html.j2")
