"""Cables and bill of materials as table rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rackready.design.cabling.types import BomLine, Cable, label_of
from rackready.render.tables import Row

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
"""``piece`` names the physical cable; rows with one piece are one splitter or twin-port cable."""
CSV_NUMBERS = frozenset({"length_m", "stock_m"})
"""Columns with numbers formatted for people."""
BOM_COLUMNS = ("group", "part", "description", "needed", "spare", "total", "source")


def cable_rows(cables: Iterable[Cable]) -> Iterator[Row]:
    """Yield one row per cable."""
    return map(_row, cables)


def _row(cable: Cable) -> Row:
    run, fibre, length, choice, leader, mark = cable
    a, a_port, a_sub, b, b_port, b_sub, link = run
    near, far = a.device, b.device
    label = f"{near.name}:{a_port}/{far.name}:{b_port}{mark}"
    piece = label if leader is run else label_of(leader) + mark
    # Fixed plugs have neither module nor connector.
    ends = (
        ("", "", "", "")
        if choice.a_part == choice.cable_part
        else (a_sub + fibre + 1, choice.a_part, b_sub + fibre + 1, choice.b_part)
    )
    return (
        label,
        link.kind,
        *(near.rack, near.unit, near.name, a_port, ends[0], ends[1]),
        *(far.rack, far.unit, far.name, b_port, ends[2], ends[3]),
        *(
            link.rate,
            f"{length:.2f}",
            f"{choice.stock_m:g}" if choice.stock_m else "",
            choice.medium,
            choice.cable_part,
            piece,
            choice.problem,
        ),
    )


def bom_rows(lines: Iterable[BomLine]) -> Iterator[Row]:
    """Yield the bill of materials."""
    for line in lines:
        yield line.group, line.part, line.description, line.needed, line.spare, line.total, line.source
